//! Renewal in a process that does not get to it: its one worker computes something else nearly all
//! the time. Another process, as far as Redis can see, asks for each of its locks all the time. One
//! test, so that the metrics are its own.

mod support;

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use distlock::{LockName, Locks, LostSignal};
use metrics::set_global_recorder;
use support::redisson::{Service, kept};
use support::told::{self, RecordedMetrics};
use support::{LONG, connect_with, fresh_name, options, server};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;

const HELD: usize = 150;
const LEASE: Duration = Duration::from_millis(1500);
const RENEWALS: usize = 1000;
/// The worker is kept busy for so long at a time, and now and then for longer than a lease.
const BLOCKED: Duration = Duration::from_millis(150);
const STALLED: Duration = Duration::from_secs(2);
/// The period of the longer one.
const STALLS_AFTER: usize = 20;
/// A tick that is later than that is late.
const LATE_AFTER_S: f64 = 0.02;
/// All that is waited for comes within that, or never.
const DEADLINE: Duration = Duration::from_mins(1);

/// What is known of one lock.
struct Slot {
    name: LockName,
    /// Whether the starved process relies on its hold.
    first: Mutex<Option<LostSignal>>,
    /// Whether the other one is in.
    other: AtomicBool,
}

#[derive(Default)]
struct Judge {
    slots: Vec<Slot>,
    /// Holds that the starved process has lost.
    lost: AtomicUsize,
    /// How often the other one got in.
    entered: AtomicUsize,
    /// How often two holds of one lock were valid at a time.
    two: AtomicUsize,
    over: AtomicBool,
}

impl Judge {
    fn of_fresh_locks() -> Arc<Self> {
        let slot = || Slot { name: fresh_name(), first: Mutex::default(), other: false.into() };
        Arc::new(Self { slots: (0..HELD).map(|_| slot()).collect(), ..Self::default() })
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn count(of: &AtomicUsize) {
        of.fetch_add(1, Ordering::SeqCst);
    }

    fn read(of: &AtomicUsize) -> usize {
        of.load(Ordering::SeqCst)
    }
}

impl Slot {
    /// The starved process has got the lock.
    fn first_enters(&self, loss: LostSignal) -> bool {
        // It may have stood still since; then it is told so here, and the other may be in.
        let alone = !self.other.load(Ordering::SeqCst) || loss.is_lost();
        *self.first.lock().expect("no panic") = Some(loss);
        alone
    }

    /// The other one has got it, for longer than the test takes.
    fn other_enters(&self) -> bool {
        self.other.store(true, Ordering::SeqCst);
        self.first.lock().expect("no panic").as_ref().is_none_or(LostSignal::is_lost)
    }
}

/// Holds a lock, and takes it again whenever it is lost.
async fn hold(judge: Arc<Judge>, number: usize, locks: Locks) {
    let slot = &judge.slots[number];
    while !judge.is_over() {
        // A starved process may run out of time, or find its lock lost.
        let Ok(guard) = locks.lock(&slot.name, &kept(DEADLINE, LEASE)).await else { continue };
        if !slot.first_enters(guard.lost_signal()) {
            Judge::count(&judge.two);
        }
        guard.lost().await;
        Judge::count(&judge.lost);
    }
}

/// Keeps the worker that it runs on busy, nearly all the time. One processor is enough for that:
/// other tests run beside this one.
async fn block(judge: Arc<Judge>) {
    for number in 1_usize.. {
        if judge.is_over() {
            break;
        }
        let stalls = number.is_multiple_of(STALLS_AFTER);
        let until = Instant::now() + if stalls { STALLED } else { BLOCKED };
        while Instant::now() < until {
            hint::spin_loop();
        }
        // A few rounds of the other processes.
        for _ in 0..4 {
            yield_now().await;
        }
    }
}

/// Asks for each lock again and again, and leaves what it gets at once.
async fn intrude(judge: &Judge, locks: &Locks) {
    let at_once = options(Duration::ZERO, LONG);
    while !judge.is_over() {
        for slot in &judge.slots {
            let Ok(guard) = locks.lock(&slot.name, &at_once).await else { continue };
            if !slot.other_enters() {
                Judge::count(&judge.two);
            }
            Judge::count(&judge.entered);
            slot.other.store(false, Ordering::SeqCst);
            guard.release().await.expect("its lease has not ended");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn one_worker() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

async fn a_process() -> Locks {
    // Patience: an answer is read late.
    Service::on(connect_with(server().url(), Duration::from_secs(5)).await).locks
}

#[test]
fn a_thousand_renewals_of_a_starved_process_are_counted_late_and_never_make_two_holders() {
    let (judge, told) = (Judge::of_fresh_locks(), RecordedMetrics::default());
    assert!(set_global_recorder(told.clone()).is_ok(), "the first recorder");
    let (starved, other) = (one_worker(), one_worker());
    let (locks, others) = (starved.block_on(a_process()), other.block_on(a_process()));
    for number in 0..HELD {
        starved.spawn(hold(Arc::clone(&judge), number, locks.clone()));
    }
    starved.spawn(block(Arc::clone(&judge)));
    let intruding = Arc::clone(&judge);
    let intruder = other.spawn(async move { intrude(&intruding, &others).await });

    let mut late = Vec::new();
    let deadline = Instant::now() + DEADLINE;
    while late.len() < RENEWALS || Judge::read(&judge.entered) == 0 {
        assert!(Instant::now() < deadline, "{} renewals", late.len());
        thread::sleep(Duration::from_millis(20));
        late.extend(told.take(told::LATE));
    }
    judge.over.store(true, Ordering::SeqCst);
    other.block_on(intruder).expect("it has not broken off");
    let ticks = late.iter().filter(|late| **late > LATE_AFTER_S).count();
    let [lost, entered, two] = [&judge.lost, &judge.entered, &judge.two].map(Judge::read);
    println!(
        "{} renewals, {ticks} of them late, {lost} holds lost, {entered} times the other was in, \
         {two} times both",
        late.len()
    );
    assert_eq!(two, 0, "two holders");
    // Those that go early with a late one are not late.
    assert!(ticks > RENEWALS / 10, "{ticks} of {} renewals are counted as late", late.len());
    assert!(lost > 0, "nothing was starved");
    starved.shutdown_background();
}
