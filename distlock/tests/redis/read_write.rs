//! `read-write` on a real Redis. Several pairs of `Locks`, each with a connection of its own, are
//! several processes as far as the server can see.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support::scene::{LOOK, PATIENCE, SOON, Scene, at_once, patient, waiting};
use crate::support::{LONG, but_for_one_standstill, connect, eventually, granted, server};
use distlock::{
    Guard, Lease, LockError, LockKind, LockOptions, Locks, LossCause, ReadWrite, Release,
    guarantees,
};
use redis::AsyncCommands;
use tokio::task::JoinSet;
use tokio::time::timeout;

const WRITE: &str = "distlock_rw_write";
const READ: &str = "distlock_rw_read";
const WRITERS: &str = "distlock_rw_writers";
const READERS: &str = "distlock_rw_readers";
const INVITED: &str = "distlock_rw_invited";
/// Of both channels.
const CHANNELS: &str = "distlock_rw_*_channel";

/// Both sides, of one process.
#[derive(Clone)]
struct Process {
    readers: Locks,
    writers: Locks,
}

impl Process {
    async fn new() -> Self {
        let both = ReadWrite::new(&connect(server().url()).await);
        Self { readers: Locks::new(both.reader()), writers: Locks::new(both.writer()) }
    }

    async fn read(&self, scene: &Scene, lease: Lease) -> Guard {
        let options = LockOptions::new(Duration::ZERO, lease);
        granted(&self.readers, &scene.name, &options).await
    }

    async fn write(&self, scene: &Scene) -> Guard {
        self.writers.lock(&scene.name, &at_once()).await.expect("the write lock")
    }

    async fn may_read(&self, scene: &Scene) -> bool {
        let guard = self.readers.try_lock(&scene.name, Lease::Renewed(LONG)).await;
        release(guard.expect("an answer")).await
    }

    async fn may_write(&self, scene: &Scene) -> bool {
        let guard = self.writers.try_lock(&scene.name, Lease::Renewed(LONG)).await;
        release(guard.expect("an answer")).await
    }
}

async fn release(guard: Option<Guard>) -> bool {
    let Some(guard) = guard else { return false };
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
    true
}

fn fixed(ms: u64) -> Lease {
    Lease::Fixed(Duration::from_millis(ms))
}

fn renewed(ms: u64) -> Lease {
    Lease::Renewed(Duration::from_millis(ms))
}

async fn processes() -> (Scene, Process, Process) {
    (Scene::new().await, Process::new().await, Process::new().await)
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_share_and_writers_are_alone() {
    let scene = Scene::new().await;
    let (inside, shared) = (Arc::<AtomicI32>::default(), Arc::<AtomicU32>::default());
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let process = Process::new().await;
        for task in 0..8 {
            let (scene, inside, shared) = (scene.clone(), Arc::clone(&inside), Arc::clone(&shared));
            let writes = task < 3;
            let locks = if writes { process.writers.clone() } else { process.readers.clone() };
            // A writer counts as the number of all readers, so no reader may be there with it.
            let weight = if writes { 1000 } else { 1 };
            tasks.spawn(async move {
                for _ in 0..6 {
                    let guard = locks.lock(&scene.name, &patient()).await.expect("the lock");
                    let met = inside.fetch_add(weight, Ordering::SeqCst);
                    assert!(met == 0 || (!writes && met < 1000), "{met}, writes: {writes}");
                    shared.fetch_add(u32::from(met > 0), Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    inside.fetch_sub(weight, Ordering::SeqCst);
                    assert!(!guard.is_lost());
                    assert_eq!(guard.release().await.expect("a release"), Release::Released);
                }
            });
        }
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("a visitor");
    }
    assert!(shared.load(Ordering::SeqCst) > 0, "no reader has met another");
    assert_eq!(scene.keys().await, [""; 0]);
}

#[tokio::test]
async fn both_sides_promise_what_the_table_says() {
    let both = ReadWrite::new(&connect(server().url()).await);
    for side in [both.reader(), both.writer()] {
        assert_eq!(side.guarantees(), guarantees(LockKind::ReadWrite));
    }
    assert!(!both.reader().uses_local_queue(), "readers of one process would not share");
}

#[tokio::test]
async fn a_dead_reader_is_not_kept_alive_by_the_others() {
    let (scene, process, other) = processes().await;
    process.read(&scene, renewed(700)).await.leave_to_lease();
    let reading = process.read(&scene, renewed(4500)).await;
    let dead = Instant::now();
    let writing = tokio::spawn({
        let (other, scene) = (other.clone(), scene.clone());
        async move { other.writers.lock(&scene.name, &patient()).await }
    });
    // The other one is renewed after the end of the dead one's lease.
    eventually("time goes by", async || dead.elapsed() > Duration::from_secs(2)).await;
    assert!(!writing.is_finished() && !reading.is_lost());
    release(Some(reading)).await;
    let writer = timeout(SOON, writing).await.expect("at once").expect("no panic");
    release(Some(writer.expect("the write lock"))).await;

    // Alone, it keeps a writer out until its own lease ends.
    let asked = Instant::now();
    process.read(&scene, fixed(700)).await.leave_to_lease();
    let granted = Instant::now();
    let writer = other.writers.lock(&scene.name, &patient()).await.expect("the write lock");
    assert!(asked.elapsed() >= Duration::from_millis(700), "{:?}", asked.elapsed());
    assert!(granted.elapsed() < Duration::from_millis(700) + SOON, "{:?}", granted.elapsed());
    writer.leave_to_lease();
}

#[tokio::test]
async fn a_reader_with_a_short_lease_does_not_shorten_the_others() {
    let (scene, process, other) = processes().await;
    let long = process.read(&scene, Lease::Fixed(LONG)).await;
    let short = other.read(&scene, fixed(50)).await;
    let cause = timeout(SOON, short.lost()).await.expect("its lease ends");
    assert_eq!(cause, LossCause::Expired);
    short.leave_to_lease();
    // Validity ends before the lease: it has ended on the server, too, when as much again is over.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!other.may_write(&scene).await, "the long one reads");
    let ms: i64 = scene.connection.clone().pttl(scene.key(READ)).await.expect("an answer");
    assert!(ms > 50_000, "{ms} ms");
    assert_eq!(long.release().await.expect("a release"), Release::Released);
    assert!(other.may_write(&scene).await);
}

#[tokio::test]
async fn a_reader_that_entered_many_times_is_renewed_until_the_last_release_and_not_beyond() {
    let (scene, process, other) = processes().await;
    let lease = LockOptions::new(Duration::ZERO, renewed(4500));
    let first = process.read(&scene, renewed(4500)).await;
    let mut guards = Vec::new();
    for _ in 0..20 {
        let again = process.readers.lock_as(first.owner().clone(), &scene.name, &lease).await;
        guards.push(again.expect("its own lock"));
    }
    release(Some(first)).await;
    let last = guards.pop();
    for guard in guards {
        release(Some(guard)).await;
    }
    let refused = other.writers.lock(&scene.name, &waiting(Duration::from_secs(6))).await;
    assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{:?}", refused.err());
    assert!(last.as_ref().is_some_and(|guard| !guard.is_lost()));
    let members = scene.members(READ).await;
    release(last).await;
    assert_eq!(scene.keys().await, [""; 0]);
    // If anything still renewed it, it would not end.
    scene.add_member(READ, &members[0], Duration::from_millis(400)).await;
    let writer = timeout(SOON * 3, other.writers.lock(&scene.name, &patient())).await;
    release(Some(writer.expect("it ends").expect("the write lock"))).await;
}

#[tokio::test]
async fn a_writer_that_continues_as_a_reader_is_renewed_and_admits_readers() {
    let (scene, process, other) = processes().await;
    let lease = LockOptions::new(Duration::ZERO, renewed(4500));
    let writing = process.writers.lock(&scene.name, &lease).await.expect("the write lock");
    let owner = writing.owner().clone();
    let reading = process.readers.lock_as(owner.clone(), &scene.name, &lease).await;
    let reading = reading.expect("the writer may read");
    let again = process.writers.lock_as(owner, &scene.name, &lease).await;
    release(Some(again.expect("the writer may write"))).await;
    assert!(!other.may_read(&scene).await, "it still writes");
    release(Some(writing)).await;
    let refused = other.writers.lock(&scene.name, &waiting(Duration::from_secs(6))).await;
    assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{:?}", refused.err());
    assert!(!reading.is_lost(), "nobody renewed it");
    other.writers.flush().await;
    assert!(other.may_read(&scene).await);
    release(Some(reading)).await;
    assert!(other.may_write(&scene).await);
    assert_eq!(scene.keys().await, [""; 0]);
}

#[tokio::test]
async fn a_reader_that_wants_to_write_is_refused_at_once_and_continues_reading() {
    let (scene, process, other) = processes().await;
    let reading = process.read(&scene, Lease::Renewed(LONG)).await;
    let also = other.read(&scene, Lease::Renewed(LONG)).await;
    for options in [at_once(), patient()] {
        let upgrade = process.writers.lock_as(reading.owner().clone(), &scene.name, &options);
        let refused = timeout(SOON, upgrade).await.expect("it does not wait");
        assert!(matches!(refused, Err(LockError::Unsupported(_))), "{:?}", refused.err());
    }
    process.writers.flush().await;
    assert_eq!(scene.keys().await, [scene.key(READ)], "it does not keep readers out");
    assert!(other.may_read(&scene).await);
    release(Some(reading)).await;
    release(Some(also)).await;
    assert!(process.may_write(&scene).await);
}

#[tokio::test]
async fn a_reader_that_wants_to_write_is_refused_at_once_although_a_writer_of_its_process_waits() {
    let (scene, process, _) = processes().await;
    let reading = process.read(&scene, Lease::Renewed(LONG)).await;
    let order = Arc::default();
    let writer = scene.waiter(&process.writers, 1, &order);
    scene.wait_for_members(WRITERS, 1).await;
    for options in [at_once(), patient()] {
        let upgrade = process.writers.lock_as(reading.owner().clone(), &scene.name, &options);
        let refused = timeout(SOON, upgrade).await.expect("it does not wait");
        assert!(matches!(refused, Err(LockError::Unsupported(_))), "{:?}", refused.err());
    }
    release(Some(reading)).await;
    writer.await.expect("the writer");
    assert_eq!(*order.lock().expect("no panic"), [1]);
}

#[tokio::test]
async fn a_waiting_writer_keeps_new_readers_out_until_it_gives_up() {
    let (scene, process, other) = processes().await;
    let reading = process.read(&scene, Lease::Renewed(LONG)).await;
    let order = Arc::default();
    let writer = scene.waiter(&other.writers, 1, &order);
    scene.wait_for_members(WRITERS, 1).await;
    assert!(!other.may_read(&scene).await && !process.may_read(&scene).await);
    let owner = reading.owner().clone();
    let again = process.readers.lock_as(owner, &scene.name, &at_once()).await;
    release(Some(again.expect("it is inside already"))).await;
    let reader = scene.waiter(&process.readers, 2, &order);
    scene.wait_for_members(READERS, 1).await;
    let messages = scene.messages(CHANNELS).await;
    writer.abort();
    reader.await.expect("the reader");
    assert_eq!(*order.lock().expect("no panic"), [2]);
    let readers_channel = scene.key("distlock_rw_readers_channel");
    assert_eq!(messages.seen(), [(readers_channel, "1".into())], "it was told");
    // A writer that comes in time is told when the last reader leaves.
    let writer = scene.waiter(&other.writers, 3, &order);
    scene.wait_for_members(WRITERS, 1).await;
    release(Some(reading)).await;
    writer.await.expect("the writer");
    let writers_channel = scene.key("distlock_rw_writers_channel");
    assert_eq!(messages.seen()[1..], [(writers_channel, "0".into())], "it was told");
    assert_eq!(scene.keys().await, [""; 0]);
}

#[tokio::test]
async fn readers_that_wait_when_a_writer_leaves_enter_before_the_next_writer() {
    let (scene, process, other) = processes().await;
    for writer_first in [true, false, true, false] {
        // A waiter that stands still for longer than its patience is passed over.
        but_for_one_standstill(async || {
            enter_before(&scene, [&process, &other], writer_first).await
        })
        .await;
    }
    assert_eq!(scene.keys().await, [""; 0]);
}

async fn enter_before(
    scene: &Scene,
    [process, other]: [&Process; 2],
    writer_first: bool,
) -> Result<(), String> {
    let order = Arc::default();
    let writing = process.write(scene).await;
    let mut tasks = Vec::new();
    if writer_first {
        tasks.push(scene.waiter(&other.writers, 1, &order));
        scene.wait_for_members(WRITERS, 1).await;
    }
    tasks.push(scene.waiter(&process.readers, 2, &order));
    tasks.push(scene.waiter(&other.readers, 3, &order));
    scene.wait_for_members(READERS, 2).await;
    if !writer_first {
        tasks.push(scene.waiter(&other.writers, 1, &order));
        scene.wait_for_members(WRITERS, 1).await;
    }
    release(Some(writing)).await;
    for task in tasks {
        task.await.expect("a waiter");
    }
    let order = order.lock().expect("no panic").clone();
    let why = format!("writer first: {writer_first}, {order:?}");
    if order[2] == 1 { Ok(()) } else { Err(why) }
}

/// A dead waiter among these keeps others out until its time is over, and no longer.
async fn is_excluded_for_a_bounded_time(
    scene: &Scene,
    ghosts: &str,
    locks: &Locks,
) -> Result<(), String> {
    scene.add_member(ghosts, "ghost", PATIENCE).await;
    let early = locks.try_lock(&scene.name, Lease::Renewed(LONG)).await.expect("an answer");
    if release(early).await {
        return Err(format!("a ghost of {ghosts} keeps none out"));
    }
    let began = Instant::now();
    let guard = locks.lock(&scene.name, &patient()).await.expect("the lock");
    let took = began.elapsed();
    release(Some(guard)).await;
    if took < PATIENCE + LOOK { Ok(()) } else { Err(format!("{ghosts}: {took:?}")) }
}

#[tokio::test]
async fn a_waiter_that_died_excludes_others_for_a_bounded_time() {
    let (scene, process, other) = processes().await;
    for (ghosts, locks) in [(WRITERS, &process.readers), (INVITED, &other.writers)] {
        but_for_one_standstill(async || {
            is_excluded_for_a_bounded_time(&scene, ghosts, locks).await
        })
        .await;
    }
    let writer = other.writers.lock(&scene.name, &patient()).await.expect("the write lock");
    // A hold that is removed without a message costs its successors a look.
    let order = Arc::default();
    let readers =
        [scene.waiter(&process.readers, 1, &order), scene.waiter(&other.readers, 2, &order)];
    scene.wait_for_members(READERS, 2).await;
    scene.delete(WRITE).await;
    for reader in readers {
        timeout(LOOK + SOON, reader).await.expect("in time").expect("the reader");
    }
    assert_eq!(writer.release().await.expect("an answer"), Release::Gone);
}

#[tokio::test]
async fn a_key_of_another_type_is_an_error_and_stays_as_it_is() {
    let (scene, process, _) = processes().await;
    for prefix in [WRITE, READ, WRITERS, READERS, INVITED] {
        let mut connection = scene.connection.clone();
        connection.set::<_, _, ()>(scene.key(prefix), "text").await.expect("an answer");
        for locks in [&process.readers, &process.writers] {
            let refused = locks.lock(&scene.name, &patient()).await;
            assert!(matches!(refused, Err(LockError::HeldByOtherKind)), "{:?}", refused.err());
        }
        let text: String = connection.get(scene.key(prefix)).await.expect("it is still there");
        assert_eq!(text, "text");
        scene.delete(prefix).await;
    }
}
