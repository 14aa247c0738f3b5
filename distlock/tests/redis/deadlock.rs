//! Tasks that wait for each other's locks are found, also in several processes. A process is here
//! what has a connection and a detector of its own.

use std::env;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{
    Backends, Deadlock, DeadlockDetector, Guard, Lease, LockKind, LockName, LockOptions, Locks,
    OwnerTag, RedisServer, RedisWaitExchange, locker,
};
use tokio::runtime::Builder;
use tokio::sync::{Barrier, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber, subscriber};

use crate::support::redisson::OwnServer;
use crate::support::{LONG, connect, fresh_name, granted};

/// Far more than a look takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process that publishes on that server.
struct Process {
    server: RedisServer,
    detector: DeadlockDetector,
}

impl Process {
    async fn start(own: &OwnServer, label: &str) -> Self {
        Self::start_inside(own, label, "").await
    }

    /// A process that another one has started, and waits for.
    async fn start_inside(own: &OwnServer, label: &str, inherited: &str) -> Self {
        let server = connect(own.redis.url()).await;
        let exchange = Arc::new(RedisWaitExchange::new(&server));
        let tag = OwnerTag::of_this_process(label);
        let detector = DeadlockDetector::new(exchange, &tag, inherited).expect("a detector");
        Self { server, detector }
    }

    fn locks(&self, kind: LockKind) -> Locks {
        let backends = Backends { redis: Some(self.server.clone()), ..Backends::default() };
        let locks = Locks::new(locker(kind, &backends).expect("a locker"));
        locks.with_deadlock_detector(self.detector.clone())
    }
}

fn name(text: &str) -> LockName {
    LockName::new(format!("{}:{text}", fresh_name())).expect("a good name")
}

fn options() -> LockOptions {
    LockOptions::new(LONG, Lease::Renewed(LONG))
}

async fn take(locks: &Locks, name: &LockName) -> Guard {
    locks.lock(name, &options()).await.expect("the lock")
}

/// Waits until deadlocks are found.
async fn find(observer: &Process) -> Vec<Deadlock> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = observer.detector.find().await.expect("an answer");
        if !found.is_empty() {
            return found;
        }
        assert!(Instant::now() < deadline, "no deadlock is found");
    }
}

/// The locks of a deadlock in its order: held and waited for.
fn locks_in(deadlock: &Deadlock) -> Vec<(&str, &str)> {
    let tasks = deadlock.tasks.iter();
    tasks.map(|task| (task.holds.1.as_str(), task.waits_for.1.as_str())).collect()
}

/// Waits until all tasks are there.
async fn all_at(barrier: &Barrier) {
    timeout(PATIENCE, barrier.wait()).await.expect("all tasks come");
}

/// A task that takes the first lock, waits until `go`, and takes the second one.
fn take_both(
    tasks: &mut JoinSet<()>,
    (first, second): ((Locks, LockName), (Locks, LockName)),
    go: &Arc<Barrier>,
) {
    let go = Arc::clone(go);
    tasks.spawn(async move {
        let _held = take(&first.0, &first.1).await;
        all_at(&go).await;
        let _both = take(&second.0, &second.1).await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_that_take_two_locks_in_opposite_order_are_found_and_named() {
    let own = OwnServer::start();
    let (a, b) = (Process::start(&own, "a").await, Process::start(&own, "b").await);
    let (x, y) = (name("x"), name("y"));
    let (redisson, fair) = (LockKind::Redisson, LockKind::Fair);
    let (mut tasks, go) = (JoinSet::new(), Arc::new(Barrier::new(2)));
    let of = |process: &Process| {
        ((process.locks(redisson), x.clone()), (process.locks(fair), y.clone()))
    };
    take_both(&mut tasks, of(&a), &go);
    let (first, second) = of(&b);
    take_both(&mut tasks, (second, first), &go);

    let observer = Process::start(&own, "observer").await;
    let found = find(&observer).await;
    assert_eq!(found.len(), 1, "{found:?}");
    let mut held_and_wanted = locks_in(&found[0]);
    held_and_wanted.sort_unstable();
    let mut expected = [(x.as_str(), y.as_str()), (y.as_str(), x.as_str())];
    expected.sort_unstable();
    assert_eq!(held_and_wanted, expected);
    let text = found[0].to_string();
    for part in
        ["a on ", "b on ", "(redisson)", "(fair)", &format!("process {}", std::process::id())]
    {
        assert!(text.contains(part), "{part} is not in {text}");
    }

    tasks.shutdown().await;
    let deadline = Instant::now() + PATIENCE;
    while !observer.detector.find().await.expect("an answer").is_empty() {
        assert!(Instant::now() < deadline, "a deadlock that has ended is still found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_tasks_of_one_process_are_found_and_a_fourth_that_waits_for_them_is_left_out() {
    let own = OwnServer::start();
    let process = Process::start(&own, "one").await;
    let names = ["x", "y", "z", "outside"].map(name);
    let (mut tasks, go) = (JoinSet::new(), Arc::new(Barrier::new(4)));
    for (first, second) in [(0, 1), (1, 2), (2, 0), (3, 0)] {
        let lock = |number: usize| (process.locks(LockKind::Redisson), names[number].clone());
        take_both(&mut tasks, (lock(first), lock(second)), &go);
    }
    let found = find(&process).await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].tasks.len(), 3, "{}", found[0]);
    assert!(!found[0].to_string().contains("outside"), "{}", found[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_wants_to_write_waits_for_itself() {
    let own = OwnServer::start();
    let process = Process::start(&own, "reader").await;
    let (writers, x) = (process.locks(LockKind::ReadWrite), name("x"));
    let readers = writers.read_side().expect("a read side");
    let (mut tasks, go) = (JoinSet::new(), Arc::new(Barrier::new(1)));
    take_both(&mut tasks, ((readers, x.clone()), (writers, x.clone())), &go);
    let found = find(&process).await;
    assert_eq!(found.iter().map(locks_in).collect::<Vec<_>>(), [[(x.as_str(), x.as_str())]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_of_the_process_that_started_one_count_for_it() {
    let own = OwnServer::start();
    let (outer, other) = (Process::start(&own, "outer").await, Process::start(&own, "other").await);
    let (x, y) = (name("x"), name("y"));
    let _held = take(&outer.locks(LockKind::Redisson), &x).await;
    let inherited = outer.detector.held_by_this_task();
    let inner = Process::start_inside(&own, "inner", &inherited).await;
    let (mut tasks, go) = (JoinSet::new(), Arc::new(Barrier::new(2)));
    let of = |process: &Process, name: &LockName| (process.locks(LockKind::Redisson), name.clone());
    take_both(&mut tasks, (of(&other, &y), of(&other, &x)), &go);
    all_at(&go).await;
    let (locks, wanted) = of(&inner, &y);
    tasks.spawn(async move { drop(take(&locks, &wanted).await) });
    let found = find(&other).await;
    assert_eq!(found.len(), 1, "{found:?}");
    let text = found[0].to_string();
    assert!(text.contains("inner on ") && text.contains("other on "), "{text}");
}

/// A daemon keeps the environment of a command that has ended.
#[tokio::test(flavor = "multi_thread")]
async fn holds_of_a_process_that_has_ended_count_no_more() {
    let own = OwnServer::start();
    let other = Process::start(&own, "other").await;
    let mut ended = std::process::Command::new("true").spawn().expect("a process");
    ended.wait().expect("its end");
    for (process, is_found) in [(ended.id(), false), (std::process::id(), true)] {
        let (x, y) = (name("x"), name("y"));
        let inherited = format!("hold\tredisson\t{x}\talone\tid@host/{process}/job/1\n");
        let inner = Process::start_inside(&own, "inner", &inherited).await;
        let third = Process::start(&own, "third").await.locks(LockKind::Redisson);
        let _held = take(&third, &x).await;
        let (mut tasks, go) = (JoinSet::new(), Arc::new(Barrier::new(2)));
        let of = |name: &LockName| (other.locks(LockKind::Redisson), name.clone());
        take_both(&mut tasks, (of(&y), of(&x)), &go);
        all_at(&go).await;
        let (locks, wanted) = (inner.locks(LockKind::Redisson), y.clone());
        tasks.spawn(async move { drop(take(&locks, &wanted).await) });
        if is_found {
            find(&other).await;
        } else {
            assert_eq!(other.detector.find().await.expect("an answer"), []);
        }
        tasks.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_is_lost_keeps_no_task_waiting() {
    let own = OwnServer::start();
    let process = Process::start(&own, "a").await;
    let (x, y) = (name("x"), name("y"));
    let locks = || (process.locks(LockKind::Redisson), x.clone(), y.clone());
    let (lost, taken) = (Arc::new(Barrier::new(3)), Arc::new(Barrier::new(3)));
    let mut tasks = JoinSet::new();
    let (steps, (loser, x_of_loser, y_of_loser)) = ((lost.clone(), taken.clone()), locks());
    tasks.spawn(async move {
        let short = LockOptions::new(LONG, Lease::Fixed(Duration::from_millis(300)));
        let held = granted(&loser, &x_of_loser, &short).await;
        held.lost().await;
        all_at(&steps.0).await;
        all_at(&steps.1).await;
        drop(take(&loser, &y_of_loser).await);
        drop(held);
    });
    let (steps, (waiter, x_of_waiter, y_of_waiter)) = ((lost.clone(), taken.clone()), locks());
    tasks.spawn(async move {
        let _held = take(&waiter, &y_of_waiter).await;
        all_at(&steps.0).await;
        all_at(&steps.1).await;
        drop(take(&waiter, &x_of_waiter).await);
    });
    all_at(&lost).await;
    // What is lost is free for this task, which waits for nothing.
    let (locks, x, _) = locks();
    let _held = take(&locks, &x).await;
    all_at(&taken).await;
    for _ in 0..2 {
        assert_eq!(process.detector.find().await.expect("an answer"), []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_that_take_locks_in_one_order_are_never_reported() {
    let own = OwnServer::start();
    let processes = [Process::start(&own, "a").await, Process::start(&own, "b").await];
    let (x, y) = (name("x"), name("y"));
    let mut tasks = JoinSet::new();
    for process in processes.iter().cycle().take(6) {
        let (locks, x, y) = (process.locks(LockKind::Redisson), x.clone(), y.clone());
        tasks.spawn(async move {
            loop {
                let outer = take(&locks, &x).await;
                let inner = take(&locks, &y).await;
                sleep(Duration::from_millis(200)).await;
                // The next one waits for the inner lock with the outer one held.
                outer.release().await.expect("a release");
                sleep(Duration::from_millis(200)).await;
                inner.release().await.expect("a release");
            }
        });
    }
    let observer = Process::start(&own, "observer").await;
    for _ in 0..4 {
        assert_eq!(observer.detector.find().await.expect("an answer"), []);
    }
}

/// When deadlocks were logged by one thread.
#[derive(Default)]
struct DeadlockLog(Mutex<Vec<Instant>>);

impl DeadlockLog {
    fn times(&self) -> Vec<Instant> {
        self.0.lock().expect("no panic").clone()
    }
}

impl Subscriber for DeadlockLog {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut |_: &Field, value: &dyn Debug| {
            if format!("{value:?}").starts_with("deadlock: ") {
                self.0.lock().expect("no panic").push(Instant::now());
            }
        });
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Closes a cycle of two processes. Returns the times until the first of them has logged it, and
/// until the last has: these two, and a process that observes.
async fn time_until_logged(own: &OwnServer, log: &DeadlockLog) -> (Duration, Duration) {
    let (a, b) = (Process::start(own, "a").await, Process::start(own, "b").await);
    let observer = Process::start(own, "observer").await.detector;
    let (x, y) = (name("x"), name("y"));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { match observer.observe().await {} });
    let go = Arc::new(Barrier::new(2));
    let lock = |name: &LockName| (a.locks(LockKind::Redisson), name.clone());
    take_both(&mut tasks, (lock(&x), lock(&y)), &go);
    let locks = b.locks(LockKind::Redisson);
    let (sender, moment) = oneshot::channel();
    let logged_before = log.times().len();
    tasks.spawn(async move {
        let _held = take(&locks, &y).await;
        all_at(&go).await;
        // The other one may publish at any moment of its interval.
        sleep(Duration::from_millis(fastrand::u64(0..300))).await;
        sender.send(Instant::now()).expect("a receiver");
        drop(take(&locks, &x).await);
    });
    let closed = moment.await.expect("the second wait");
    loop {
        let times = log.times();
        if let [first, _, last] = times[logged_before..] {
            tasks.shutdown().await;
            return (first - closed, last - closed);
        }
        assert!(closed.elapsed() < PATIENCE, "no deadlock is logged");
        sleep(Duration::from_millis(1)).await;
    }
}

/// `DEADLOCK_ROUNDS=100` takes as many rounds, and each has to take a second at most.
#[test]
fn a_cycle_is_logged_by_its_processes_and_by_an_observer() {
    let own = OwnServer::start();
    let rounds = env::var("DEADLOCK_ROUNDS").map(|rounds| rounds.parse().expect("a number"));
    let log = Arc::new(DeadlockLog::default());
    let measure = async {
        let mut times = Vec::new();
        for _ in 0..*rounds.as_ref().unwrap_or(&2) {
            times.push(time_until_logged(&own, &log).await);
        }
        times
    };
    // All tasks of this runtime log on this thread.
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let times = subscriber::with_default(Arc::clone(&log), || runtime.block_on(measure));
    let (mut first, mut last): (Vec<_>, Vec<_>) = times.into_iter().unzip();
    first.sort_unstable();
    last.sort_unstable();
    for (what, times) in [("first", &first), ("last", &last)] {
        let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
        println!("from the closed cycle to the {what} line: median {median:?}, most {most:?}");
        assert!(rounds.is_err() || most <= Duration::from_secs(1), "{what}: {most:?}");
    }
}
