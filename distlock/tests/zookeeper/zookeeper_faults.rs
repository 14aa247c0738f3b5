//! `zookeeper` when requests and answers are lost on the way. Whatever the server has done or has
//! yet to do, there is one node at most, and none without a waiter or holder.

use std::time::{Duration, Instant};

use crate::support::dropped::up_to;
use crate::support::line::{CREATE, CREATE_CONTAINER, DELETE, Fault, GET, LIST, Line};
use crate::support::{
    LONG, Look, SHORT, assert_busy, at_once, await_watches, eventually, fresh_name, lock, locks_at,
    patient, release, server, wait_for, znode,
};
use distlock::{Guard, LockError, LockName, Locks, Release};
use zookeeper_client::CreateMode;

/// A session that survives a fault, with answers that may take 2 s.
const SESSION: Duration = Duration::from_secs(6);

/// Locks behind a line of their own, others with a line that is good, and a name whose parent is
/// there.
async fn setting(session: Duration) -> (Line, Locks, Locks, Look, LockName) {
    let (line, look, name) = (Line::to(server().addr()).await, Look::here().await, fresh_name());
    let locks = locks_at(&line.connect_string(), session).await;
    let others = crate::support::locks().await;
    release(lock(&others, &name).await).await;
    (line, locks, others, look, name)
}

fn assert_backend(error: Option<&LockError>) {
    assert!(matches!(error, Some(LockError::Backend(_))), "{error:?}");
}

/// The lock by one attempt that meets the fault, and how often that asked for a node. An attempt
/// for which a busy machine was too slow is given back, and another one is made.
async fn one_attempt(
    line: &Line,
    locks: &Locks,
    look: &Look,
    name: &LockName,
    fault: Fault,
) -> (Guard, usize) {
    let mut left = 5;
    loop {
        let asked = line.asked(CREATE);
        line.arm(CREATE, fault);
        match locks.lock(name, &at_once()).await {
            Err(LockError::Backend(reason)) if left > 0 && reason.ends_with("in time") => {
                locks.flush().await;
                look.await_queue(name, 0).await;
                left -= 1;
            }
            outcome => return (outcome.expect("the lock"), line.asked(CREATE) - asked),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_is_lost_or_whose_answer_is_lost_makes_one_node() {
    let (line, locks, others, look, name) = setting(SESSION).await;
    for fault in [Fault::Lost, Fault::AnswerLost] {
        let (guard, asked) = one_attempt(&line, &locks, &look, &name, fault).await;
        assert!(!line.is_armed(CREATE), "nothing was lost");
        let creates = if fault == Fault::Lost { 2 } else { 1 };
        assert_eq!(asked, creates, "{fault:?}");
        assert_eq!(look.queue(&name).await.len(), 1, "{fault:?}");
        assert_busy(&others, &name).await;
        release(guard).await;
        assert_eq!(look.queue(&name).await.len(), 0, "{fault:?}");
        // The same for one that has to wait.
        let holder = lock(&others, &name).await;
        line.arm(CREATE, fault);
        let waiter = wait_for(&locks, &name);
        look.await_queue(&name, 2).await;
        eventually("it was lost", async || !line.is_armed(CREATE)).await;
        let token = holder.token();
        release(holder).await;
        let guard = waiter.await.expect("no panic").expect("the lock");
        assert!(guard.token() > token);
        release(guard).await;
        assert_eq!(look.queue(&name).await.len(), 0, "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_or_a_watch_whose_answer_is_lost_is_asked_for_again() {
    let (line, locks, others, look, name) = setting(SESSION).await;
    line.arm(LIST, Fault::AnswerLost);
    release(lock(&locks, &name).await).await;
    let holder = lock(&others, &name).await;
    for operation in [LIST, GET] {
        line.arm(operation, Fault::AnswerLost);
    }
    let waiter = wait_for(&locks, &name);
    eventually("both were lost", async || !line.is_armed(LIST) && !line.is_armed(GET)).await;
    look.await_queue(&name, 2).await;
    release(holder).await;
    release(waiter.await.expect("no panic").expect("the lock")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_lost_or_whose_answer_is_lost_frees_the_lock_and_says_so() {
    let (line, locks, _, look, name) = setting(SESSION).await;
    for fault in [Fault::Lost, Fault::AnswerLost] {
        let guard = lock(&locks, &name).await;
        line.arm(DELETE, fault);
        assert_eq!(guard.release().await.expect("an answer"), Release::Released, "{fault:?}");
        assert!(!line.is_armed(DELETE), "nothing was lost");
        assert_eq!(look.queue(&name).await.len(), 0, "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_ends_during_the_create_leaves_a_node_that_is_not_adopted() {
    let (line, locks, others, look, name) = setting(SHORT).await;
    line.arm(CREATE, Fault::AnswerSilenced);
    let refused = locks.lock(&name, &patient()).await;
    assert_backend(refused.err().as_ref());
    assert!(!line.is_armed(CREATE), "it was not created");
    // The node goes with its session, and no sooner: no client can remove it.
    release(others.lock(&name, &patient()).await.expect("the lock")).await;
    line.heal();
    eventually("a new session", async || locks.lock(&name, &at_once()).await.is_ok()).await;
    locks.flush().await;
    assert_eq!(look.queue(&name).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_is_sent_after_its_caller_was_dropped_leaves_no_node() {
    let (line, locks, others, look, name) = setting(SESSION).await;
    // The client tries to connect again, and keeps what is asked meanwhile.
    let (connections, asked) = (line.connections(), line.asked(CREATE));
    line.silence();
    line.cut();
    eventually("it tries to", async || line.connections() > connections).await;
    let refused = locks.lock(&name, &at_once()).await;
    assert_backend(refused.err().as_ref());
    // The release waits for the same connection.
    locks.flush().await;
    assert_eq!(line.asked(CREATE), asked);
    line.heal();
    eventually("it is sent", async || line.asked(CREATE) > asked).await;
    // The queue is empty before the node and after it. Requests of a session are executed in their
    // order, so it has been there once another lock was.
    release(lock(&locks, &fresh_name()).await).await;
    look.await_queue(&name, 0).await;
    let guard = lock(&others, &name).await;
    assert_eq!(look.queue(&name).await.len(), 1);
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_and_a_cancellation_during_an_outage_are_executed_later() {
    let (line, locks, others, look, name) = setting(LONG).await;
    let (guard, second) = (lock(&locks, &name).await, fresh_name());
    let holder = lock(&others, &second).await;
    let waiter = wait_for(&locks, &second);
    await_watches(server(), &second, 1).await;
    line.silence();
    waiter.abort();
    let error = guard.release().await.expect_err("nobody can answer");
    assert!(matches!(error, LockError::Backend(_)), "{error}");
    assert_eq!([look.queue(&name).await.len(), look.queue(&second).await.len()], [1, 2]);
    let healed = Instant::now();
    line.heal();
    look.await_queue(&name, 0).await;
    look.await_queue(&second, 1).await;
    assert!(healed.elapsed() < LONG / 3, "it was the end of the session");
    release(holder).await;
    release(lock(&locks, &name).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_dropped_in_an_outage_at_any_point_leaves_no_node() {
    let (line, locks, others, look, name) = setting(SESSION).await;
    for (fault, polls) in [(Fault::Lost, 1), (Fault::AnswerLost, 1), (Fault::AnswerLost, 2)] {
        line.arm(CREATE, fault);
        let dropped = up_to(polls, locks.lock(&name, &patient())).await;
        assert!(dropped.is_none(), "{fault:?}, {polls} polls");
        locks.flush().await;
        assert!(!line.is_armed(CREATE), "nothing was lost");
        look.await_queue(&name, 0).await;
        release(lock(&others, &name).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_containers_gets_ordinary_parents() {
    let line = Line::to(server().addr()).await;
    let (locks, look) = (locks_at(&line.connect_string(), LONG).await, Look::here().await);
    line.arm(CREATE_CONTAINER, Fault::Unknown);
    let name = LockName::new(format!("/{}/b/c", fresh_name())).expect("a name");
    let guard = lock(&locks, &name).await;
    assert_eq!(line.asked(CREATE_CONTAINER), 3);
    assert_eq!(look.0.list_children(name.as_str()).await.expect("it is there").len(), 1);
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_the_right_id_that_another_session_made_is_not_adopted() {
    let (line, locks, _, look, name) = setting(SESSION).await;
    line.arm(CREATE, Fault::HeldAndLost);
    let waiter = wait_for(&locks, &name);
    let theirs = look.create(&line.held().await, CreateMode::EphemeralSequential).await;
    line.let_go();
    // It has made a node of its own, which is behind.
    look.await_queue(&name, 2).await;
    assert!(!waiter.is_finished());
    look.delete(&theirs).await;
    release(waiter.await.expect("no panic").expect("the lock")).await;
    assert_eq!(look.queue(&name).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_without_a_watch_event_asks_again_by_itself() {
    let (line, locks, others, look, name) = setting(LONG).await;
    let holder = lock(&others, &name).await;
    let waiter = wait_for(&locks, &name);
    await_watches(server(), &name, 1).await;
    line.lose_news();
    release(holder).await;
    eventually("its event is lost", async || line.news_lost() == 1).await;
    release(waiter.await.expect("no panic").expect("the lock")).await;
    assert_eq!(look.queue(&name).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_keeps_its_place_in_an_outage_shorter_than_its_session() {
    let (line, locks, others, look, name) = setting(LONG).await;
    let holder = lock(&others, &name).await;
    let waiter = wait_for(&locks, &name);
    await_watches(server(), &name, 1).await;
    let place = look.queue(&name).await;
    // Longer than it takes to look again, and to give that up.
    line.silence();
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(!waiter.is_finished());
    line.heal();
    release(holder).await;
    let guard = waiter.await.expect("no panic").expect("the lock");
    assert_eq!(look.queue(&name).await, place[1..]);
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_that_vanishes_before_its_child_is_there_is_made_again() {
    let (line, locks, _, look, name) = setting(LONG).await;
    line.arm(CREATE, Fault::Held);
    let waiter = wait_for(&locks, &name);
    for again in [true, false] {
        line.held().await;
        look.delete(&znode(&name)).await;
        if again {
            line.arm(CREATE, Fault::Held);
        }
        line.let_go();
    }
    release(waiter.await.expect("no panic").expect("the lock")).await;
    assert_eq!(line.asked(CREATE), 3);
}

/// No session stands behind it, so none can end.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_times_out_says_whether_the_node_has_no_session() {
    let (locks, look, name) = (crate::support::locks().await, Look::here().await, fresh_name());
    release(lock(&locks, &name).await).await;
    for (mode, expected) in [(CreateMode::Ephemeral, false), (CreateMode::Persistent, true)] {
        let node = format!("{}/lock-0000000000", znode(&name));
        look.create(&node, mode).await;
        let refused = locks.lock(&name, &crate::support::options(Duration::from_millis(300))).await;
        match refused.expect_err("it is held") {
            LockError::TimedOut { has_no_expiry, .. } => assert_eq!(has_no_expiry, expected),
            other => panic!("{other}"),
        }
        locks.flush().await;
        look.delete(&node).await;
        release(lock(&locks, &name).await).await;
    }
}

/// What it has waited for is gone, and of what is there now nothing is known yet.
#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_a_node_is_not_reported_for_the_next_one() {
    let (line, locks, _, look, name) = setting(LONG).await;
    let node = |number| format!("{}/lock-000000000{number}", znode(&name));
    look.create(&node(0), CreateMode::Ephemeral).await;
    look.create(&node(1), CreateMode::Persistent).await;
    let (began, late) = (Instant::now(), Duration::from_secs(3));
    let wait = late + Duration::from_millis(1500);
    let waiter = tokio::spawn({
        let (locks, name) = (locks.clone(), name.clone());
        async move { locks.lock(&name, &crate::support::options(wait)).await }
    });
    await_watches(server(), &name, 1).await;
    // The wait must be over before the session is asked again, 2 s later. The waiter must look
    // because of what happens, and not because it has not looked for 5 s.
    tokio::time::sleep_until((began + late).into()).await;
    line.arm(GET, Fault::Held);
    look.delete(&node(1)).await;
    assert_eq!(line.held().await, node(0));
    match waiter.await.expect("no panic").expect_err("it is held") {
        LockError::TimedOut { has_no_expiry, .. } => assert!(!has_no_expiry),
        other => panic!("{other}"),
    }
    line.let_go();
    locks.flush().await;
    assert_eq!(look.queue(&name).await.len(), 1);
}
