//! `fair` on a real Redis. Several `Locks`, each with a connection of its own, are several
//! processes as far as the server can see.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::dropped::up_to;
use crate::support::scene::{LOOK, PATIENCE, SOON, Scene, at_once, patient, waiting};
use crate::support::{
    LONG, but_for_one_standstill, connect, eventually, granted, locks_of, server,
};
use distlock::{
    Backends, Lease, LockError, LockKind, LockOptions, Locks, LossCause, OwnerTag, Release, locker,
};
use redis::AsyncCommands;
use tokio::runtime;

const HOLDS: &str = "distlock_fair";
const QUEUE: &str = "distlock_fair_queue";
const WAITERS: &str = "distlock_fair_waiters";
const CHANNEL: &str = "distlock_fair_channel";

async fn process() -> Locks {
    locks_of(LockKind::Fair, connect(server().url()).await)
}

async fn queue_of(scene: &Scene) -> Vec<String> {
    scene.connection.clone().lrange(scene.key(QUEUE), 0, -1).await.expect("an answer")
}

async fn wait_for_queue(scene: &Scene, length: usize) {
    let what = format!("a queue of {length}");
    eventually(&what, async || queue_of(scene).await.len() == length).await;
}

/// A waiter without a process. It counts as alive for that long.
async fn add_ghost(scene: &Scene, alive: Duration) {
    let queued = scene.connection.clone().rpush::<_, _, ()>(scene.key(QUEUE), "ghost").await;
    queued.expect("an answer");
    scene.add_member(WAITERS, "ghost", alive).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_waiters_of_three_processes_are_served_in_the_order_of_their_arrival() {
    let processes = [process().await, process().await, process().await];
    // A waiter that stands still for longer than its patience is passed over.
    but_for_one_standstill(async || are_served_in_order(&processes).await).await;
}

async fn are_served_in_order(processes: &[Locks; 3]) -> Result<(), String> {
    let scene = Scene::new().await;
    let holder = processes[0].lock(&scene.name, &at_once()).await.expect("the lock");
    let order = Arc::default();
    let mut tasks = Vec::new();
    for number in 0..50 {
        tasks.push(scene.waiter(&processes[number % 3], number, &order));
        wait_for_queue(&scene, number + 1).await;
    }
    let (messages, queue) = (scene.messages(CHANNEL).await, queue_of(&scene).await);
    holder.release().await.expect("a release");
    for task in tasks {
        task.await.expect("a waiter");
    }
    let order = order.lock().expect("no panic").clone();
    if !order.is_sorted() {
        return Err(format!("{order:?}"));
    }
    assert_eq!(order.len(), 50);
    // Each of them was told, once, and alone.
    eventually("a message each", async || messages.seen().len() >= 50).await;
    let told: Vec<_> = messages.seen().into_iter().map(|(channel, _)| channel).collect();
    let channels = queue.iter().map(|id| format!("{}:{id}", scene.key(CHANNEL)));
    assert_eq!(scene.keys().await, [""; 0]);
    if told == channels.collect::<Vec<_>>() { Ok(()) } else { Err(format!("{told:?}")) }
}

#[tokio::test(flavor = "multi_thread")]
async fn five_waiters_whose_process_was_killed_are_passed_over_within_the_bound() {
    but_for_one_standstill(are_passed_over).await;
}

async fn are_passed_over() -> Result<(), String> {
    let scene = Scene::new().await;
    let (holding, living) = (process().await, process().await);
    let holder = holding.lock(&scene.name, &at_once()).await.expect("the lock");
    let dying = runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let killed = dying.spawn(process()).await.expect("a process");
    for number in 1..=5 {
        let (killed, name) = (killed.clone(), scene.name.clone());
        dying.spawn(async move { killed.lock(&name, &patient()).await.map(drop) });
        wait_for_queue(&scene, number).await;
    }
    let order = Arc::default();
    let survivor = scene.waiter(&living, 6, &order);
    wait_for_queue(&scene, 6).await;
    // Nothing of that process runs any more, neither a task nor a connection.
    dying.shutdown_background();
    drop(killed);
    if queue_of(&scene).await.len() != 6 {
        return Err("they left of themselves".to_owned());
    }
    let freed = Instant::now();
    holder.release().await.expect("a release");
    survivor.await.expect("the survivor");
    assert!(freed.elapsed() < PATIENCE + LOOK + SOON, "{:?}", freed.elapsed());
    assert_eq!(scene.keys().await, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn a_waiter_that_gives_up_leaves_the_queue_at_once() {
    let (scene, locks) = (Scene::new().await, process().await);
    let holder = locks.lock(&scene.name, &at_once()).await.expect("the lock");
    let order = Arc::default();
    let first = scene.waiter(&locks, 1, &order);
    wait_for_queue(&scene, 1).await;
    let second = scene.waiter(&locks, 2, &order);
    wait_for_queue(&scene, 2).await;
    let refused = locks.lock(&scene.name, &waiting(Duration::from_millis(150))).await;
    assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{:?}", refused.err());
    let queue = queue_of(&scene).await;
    first.abort();
    locks.flush().await;
    assert!(first.await.is_err_and(|error| error.is_cancelled()));
    locks.flush().await;
    assert_eq!(queue_of(&scene).await, queue[1..2], "only the one that waits is in the queue");
    holder.release().await.expect("a release");
    tokio::time::timeout(SOON, second).await.expect("the lock at once").expect("the waiter");
    assert_eq!(*order.lock().expect("no panic"), [2]);
}

#[tokio::test]
async fn a_head_that_gives_up_a_free_lock_wakes_the_next() {
    let (scene, locks) = (Scene::new().await, process().await);
    add_ghost(&scene, LONG).await;
    // Dead, and behind a live one, so it is not removed yet.
    let dead = scene.connection.clone().rpush::<_, _, ()>(scene.key(QUEUE), "dead").await;
    dead.expect("an answer");
    let order = Arc::default();
    let waiter = scene.waiter(&locks, 1, &order);
    wait_for_queue(&scene, 3).await;
    let (messages, queue) = (scene.messages(CHANNEL).await, queue_of(&scene).await);
    assert_eq!(queue[0], "ghost");
    let release = redis::Script::new(include_str!("../../lua/fair_release.lua"));
    let mut release = release.prepare_invoke();
    for prefix in [HOLDS, QUEUE, WAITERS, "distlock_fair_latch"] {
        release.key(scene.key(prefix));
    }
    let channel = format!("{}:", scene.key(CHANNEL));
    release.arg(&["nobody", "ghost", "1000", channel.as_str(), "PUBLISH"]);
    let answer: i64 = release.invoke_async(&mut scene.connection.clone()).await.expect("an answer");
    assert_eq!(answer, -1);
    waiter.await.expect("the waiter");
    assert_eq!(messages.seen(), [(format!("{channel}{}", queue[2]), "0".into())]);
}

#[tokio::test]
async fn a_waiter_that_was_passed_over_by_mistake_stands_at_the_end_of_the_queue_again() {
    but_for_one_standstill(stands_at_the_end_again).await;
}

async fn stands_at_the_end_again() -> Result<(), String> {
    let (scene, locks) = (Scene::new().await, process().await);
    let holder = locks.lock(&scene.name, &at_once()).await.expect("the lock");
    let order = Arc::default();
    let frozen = scene.waiter(&locks, 1, &order);
    wait_for_queue(&scene, 1).await;
    let id = queue_of(&scene).await.remove(0);
    let other = scene.waiter(&locks, 2, &order);
    wait_for_queue(&scene, 2).await;
    // What others do to a waiter that has given no sign of life.
    let mut connection = scene.connection.clone();
    connection.lrem::<_, _, ()>(scene.key(QUEUE), 0, &id).await.expect("an answer");
    connection.zrem::<_, _, ()>(scene.key(WAITERS), &id).await.expect("an answer");
    wait_for_queue(&scene, 2).await;
    let is_at_the_end = queue_of(&scene).await.get(1) == Some(&id);
    holder.release().await.expect("a release");
    frozen.await.expect("the frozen one");
    other.await.expect("the other one");
    let order = order.lock().expect("no panic").clone();
    if is_at_the_end && order == [2, 1] { Ok(()) } else { Err(format!("{order:?}")) }
}

#[tokio::test]
async fn an_attempt_without_a_wait_is_not_queued_and_overtakes_no_waiter() {
    let (scene, locks) = (Scene::new().await, process().await);
    let holder = locks.lock(&scene.name, &at_once()).await.expect("the lock");
    let refused = locks.lock(&scene.name, &at_once()).await;
    assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{:?}", refused.err());
    locks.flush().await;
    assert_eq!(queue_of(&scene).await, [""; 0]);
    holder.release().await.expect("a release");
    add_ghost(&scene, PATIENCE * 4).await;
    for _ in 0..3 {
        assert!(locks.try_lock(&scene.name, Lease::Renewed(LONG)).await.expect("no").is_none());
        assert_eq!(queue_of(&scene).await, ["ghost"]);
    }
    // No message has reported it.
    let guard = locks.lock(&scene.name, &patient()).await.expect("the lock");
    assert_eq!(queue_of(&scene).await, [""; 0]);
    guard.release().await.expect("a release");
}

#[tokio::test]
async fn the_owner_enters_again_past_the_waiters_and_the_last_release_frees() {
    let (scene, locks) = (Scene::new().await, process().await);
    let outer = locks.lock(&scene.name, &at_once()).await.expect("the lock");
    let order = Arc::default();
    let waiter = scene.waiter(&locks, 1, &order);
    wait_for_queue(&scene, 1).await;
    let mut inner = Vec::new();
    for _ in 0..3 {
        let again = locks.lock_as(outer.owner().clone(), &scene.name, &at_once()).await;
        inner.push(again.expect("its own lock"));
    }
    assert_eq!(outer.release().await.expect("a release"), Release::Released);
    for guard in inner.drain(1..) {
        assert_eq!(guard.release().await.expect("a release"), Release::Released);
    }
    assert_eq!(scene.members(HOLDS).await.len(), 1);
    assert!(order.lock().expect("no panic").is_empty(), "it is still held");
    assert_eq!(inner.remove(0).release().await.expect("a release"), Release::Released);
    waiter.await.expect("the waiter");
    assert_eq!(scene.keys().await, [""; 0]);
}

#[tokio::test]
async fn a_dead_holder_is_succeeded_when_its_lease_ends_and_a_removed_one_at_the_next_poll() {
    let (scene, locks) = (Scene::new().await, process().await);
    let lease = Duration::from_millis(400);
    let (asked, options) = (Instant::now(), LockOptions::new(Duration::ZERO, Lease::Fixed(lease)));
    let holder = granted(&locks, &scene.name, &options).await;
    let granted = Instant::now();
    holder.leave_to_lease();
    let heir = locks.lock(&scene.name, &patient()).await.expect("the lock");
    assert!(asked.elapsed() >= lease, "it was let in after {:?}", asked.elapsed());
    assert!(granted.elapsed() < lease + SOON, "{:?}", granted.elapsed());

    let order = Arc::default();
    let waiters = [scene.waiter(&locks, 1, &order), scene.waiter(&locks, 2, &order)];
    wait_for_queue(&scene, 2).await;
    // No message is sent, as if it were lost.
    scene.delete(HOLDS).await;
    let removed = Instant::now();
    for waiter in waiters {
        waiter.await.expect("a waiter");
    }
    assert!(removed.elapsed() < LOOK + SOON, "{:?}", removed.elapsed());
    assert_eq!(heir.release().await.expect("an answer"), Release::Gone);
}

#[tokio::test]
async fn a_renewed_hold_outlives_its_lease_and_a_late_release_is_distinguished() {
    let (scene, locks, other) = (Scene::new().await, process().await, process().await);
    let locks = locks.with_owner_tag(OwnerTag::of_this_process("renewed"));
    let lease = Duration::from_millis(4500);
    let renewed = LockOptions::new(Duration::ZERO, Lease::Renewed(lease));
    let guard = locks.lock(&scene.name, &renewed).await.expect("the lock");
    let refused = other.lock(&scene.name, &waiting(lease * 2)).await;
    assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{:?}", refused.err());
    assert!(!guard.is_lost());
    scene.delete(HOLDS).await;
    let successor = other.lock(&scene.name, &at_once()).await.expect("the lock");
    let cause = tokio::time::timeout(lease * 4, guard.lost()).await.expect("the loss is told");
    assert_eq!(cause, LossCause::Taken);
    assert_eq!(guard.release().await.expect("an answer"), Release::HeldByOther);
    assert_eq!(successor.release().await.expect("a release"), Release::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_dropped_at_any_point_leaves_nothing_behind() {
    let (scene, locks, other) = (Scene::new().await, process().await, process().await);
    let mut queued = 0;
    for round in 0..30 {
        let polls = round / 3 % 5 + 1;
        // Of every three rounds the lock is free in one.
        let holder = match round % 3 {
            0 => None,
            _ => Some(other.lock(&scene.name, &at_once()).await.expect("the lock")),
        };
        let options = patient();
        let done = up_to(polls, locks.lock(&scene.name, &options)).await;
        queued += queue_of(&scene).await.len();
        drop(done);
        locks.flush().await;
        assert_eq!(queue_of(&scene).await, [""; 0], "{polls} polls");
        if let Some(holder) = holder {
            holder.release().await.expect("a release");
        }
        assert_eq!(scene.keys().await, [""; 0], "{polls} polls");
    }
    assert!(queued > 0, "none was dropped in the queue");
}

#[tokio::test]
async fn no_key_and_no_channel_is_left_of_locks_that_were_waited_for() {
    let server = connect(server().url()).await;
    let backends = Backends { redis: Some(server.clone()), ..Backends::default() };
    let locks = Locks::new(locker(LockKind::Fair, &backends).expect("a locker"));
    let mut scenes = Vec::new();
    for _ in 0..30 {
        let scene = Scene::new().await;
        let holder = locks.lock(&scene.name, &at_once()).await.expect("the lock");
        let order = Arc::default();
        let waiters: Vec<_> = (0..3).map(|number| scene.waiter(&locks, number, &order)).collect();
        wait_for_queue(&scene, 3).await;
        scenes.push((scene, holder, waiters));
    }
    assert!(server.subscribed_channels() >= 90);
    for (scene, holder, waiters) in scenes {
        holder.release().await.expect("a release");
        for waiter in waiters {
            waiter.await.expect("a waiter");
        }
        assert_eq!(scene.keys().await, [""; 0]);
    }
    eventually("no channel is left", async || server.subscribed_channels() == 0).await;
}

#[tokio::test]
async fn a_key_of_another_type_is_an_error_and_stays_as_it_is() {
    let (scene, locks) = (Scene::new().await, process().await);
    for prefix in [HOLDS, QUEUE, WAITERS] {
        let mut connection = scene.connection.clone();
        connection.set::<_, _, ()>(scene.key(prefix), "text").await.expect("an answer");
        let refused = locks.lock(&scene.name, &patient()).await;
        assert!(matches!(refused, Err(LockError::HeldByOtherKind)), "{:?}", refused.err());
        let text: String = connection.get(scene.key(prefix)).await.expect("it is still there");
        assert_eq!(text, "text");
        scene.delete(prefix).await;
    }
}
