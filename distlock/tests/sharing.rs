//! How processes share a lock whose waiters poll, in simulated time: tokio's clock is paused, and
//! the server is a map. What is asserted of real servers is in `conformance/tests/fairness.rs`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::BoxFuture;
use distlock::{
    Acquisition, Guarantees, Hold, Lease, LockError, LockKind, LockName, LockOptions, Locker,
    Locks, Owner, Release, Request, Validity, guarantees,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// How long an answer takes.
const ROUND_TRIP: Duration = Duration::from_millis(1);
const WORK: Duration = Duration::from_millis(2);
const RUN_TIME: Duration = Duration::from_secs(30);
const LEASE: Duration = Duration::from_secs(20);

/// A process's way to a server with one lock.
#[derive(Clone)]
struct Server {
    process: usize,
    lock: Arc<Mutex<Lock>>,
}

#[derive(Default)]
struct Lock {
    holder: Option<Owner>,
    /// By which process, and when.
    freed: Option<(usize, Instant)>,
}

impl Server {
    /// The worst that can happen: a process that frees the lock always is the first to ask.
    fn take(&self, owner: &Owner) -> bool {
        let mut lock = self.lock.lock().expect("no panic");
        let comes_late = |(process, at)| process != self.process && at == Instant::now();
        if lock.holder.is_some() || lock.freed.is_some_and(comes_late) {
            return false;
        }
        lock.holder = Some(owner.clone());
        true
    }
}

impl Locker for Server {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::LuaRelease)
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        Box::new(PendingReader(self.clone(), request))
    }
}

struct PendingReader(Server, Request);

impl Acquisition for PendingReader {
    fn attempt(&mut self) -> BoxFuture<'_, Result<Option<Box<dyn Hold>>, LockError>> {
        Box::pin(async move {
            let sent = Instant::now();
            let taken = self.0.take(&self.1.owner);
            sleep(ROUND_TRIP).await;
            let held = || HeldLock(self.0.clone(), Validity::of_lease(sent, self.1.lease));
            Ok(taken.then(|| Box::new(held()) as Box<dyn Hold>))
        })
    }

    fn abandon(&mut self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move { Ok(()) })
    }
}

struct HeldLock(Server, Validity);

impl Hold for HeldLock {
    fn validity(&self) -> Validity {
        self.1
    }

    fn release(&mut self) -> BoxFuture<'_, Result<Release, LockError>> {
        Box::pin(async move {
            let mut lock = self.0.lock.lock().expect("no panic");
            (lock.holder, lock.freed) = (None, Some((self.0.process, Instant::now())));
            Ok(Release::Released)
        })
    }
}

/// Tasks of as many processes, which want the lock all the time; how often each process had it.
async fn turns(processes: &[u32]) -> Vec<u32> {
    let (lock, end) = (Arc::<Mutex<Lock>>::default(), Instant::now() + RUN_TIME);
    let mut all = JoinSet::new();
    for (process, tasks) in processes.iter().enumerate() {
        let locks = Locks::new(Arc::new(Server { process, lock: Arc::clone(&lock) }));
        for _ in 0..*tasks {
            let locks = locks.clone();
            all.spawn(async move { (process, work_until(end, &locks).await) });
        }
    }
    let mut turns = vec![0; processes.len()];
    while let Some(done) = all.join_next().await {
        let (process, times) = done.expect("no panic");
        turns[process] += times;
    }
    println!("{processes:?} tasks: {turns:?} turns");
    turns
}

async fn work_until(end: Instant, locks: &Locks) -> u32 {
    let name = LockName::new("lock:shared").expect("a name");
    let options = LockOptions::new(LEASE, Lease::Fixed(LEASE));
    let mut turns = 0;
    while Instant::now() < end {
        let guard = locks.lock(&name, &options).await.expect("it comes free again and again");
        sleep(WORK).await;
        guard.release().await.expect("a release");
        turns += 1;
    }
    turns
}

fn assert_shared(turns: &[u32]) {
    let (least, most) = (turns.iter().min(), turns.iter().max());
    assert!(least.zip(most).is_some_and(|(least, most)| *most <= 2 * least), "{turns:?}");
}

#[tokio::test(start_paused = true)]
async fn processes_with_many_waiters_each_have_about_as_many_turns() {
    assert_shared(&turns(&[16, 16]).await);
    assert_shared(&turns(&[16, 16, 16]).await);
    assert_shared(&turns(&[16, 16, 16, 16, 16]).await);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_locks_again_at_once_does_not_starve_the_tasks_of_other_processes() {
    assert_shared(&turns(&[1, 1]).await);
    assert_shared(&turns(&[1, 1, 1]).await);
    assert_shared(&turns(&[1, 16, 16]).await);
}

#[tokio::test(start_paused = true)]
async fn giving_way_costs_an_uncontended_process_a_few_percent() {
    let undisturbed = u32::try_from(RUN_TIME.as_millis() / (ROUND_TRIP + WORK).as_millis());
    for tasks in [1, 16] {
        let turns = turns(&[tasks]).await[0];
        let most = undisturbed.expect("a small number");
        assert!(turns >= most * 97 / 100, "{turns} of {most}");
    }
}
