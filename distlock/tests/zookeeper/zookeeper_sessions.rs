//! `zookeeper` when a session ends, or its server does. Each `Locks` has a session of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::line::Line;
use crate::support::{
    LONG, Look, OwnServer, SHORT, assert_busy, at_once, await_watches, eventually, fresh_name,
    lock, locks, locks_at, patient, release, server, wait_for,
};
use distlock::{LockError, Locks, LossCause, Owner, Release, Token};
use testbed::{Proxy, Stopwatch};
use tokio::time::{sleep, timeout};

/// By when a client whose line is silent must know that its session is over. The client itself
/// waits for 7/5 of the time-out, and up to 2/5 more for an answer. With room for a busy machine.
const SESSION_LOST_WITHIN: Duration = Duration::from_secs(10);

/// After a long outage: a pause of the client, and a connection that a starting server forgot.
const RESUMED_WITHIN: Duration = Duration::from_secs(9);

async fn line_and_locks(session: Duration) -> (Line, Locks) {
    let line = Line::to(server().addr()).await;
    let locks = locks_at(&line.connect_string(), session).await;
    (line, locks)
}

#[tokio::test(flavor = "multi_thread")]
async fn validity_of_a_cut_off_holder_ends_before_the_server_admits_another() {
    let (look, others) = (Look::here().await, locks().await);
    let mut ended_first = 0;
    for _ in 0..2 {
        let ((line, locks), name) = (line_and_locks(SHORT).await, fresh_name());
        let guard = lock(&locks, &name).await;
        // Kept by the heartbeat, not by its first validity.
        sleep(SHORT).await;
        assert!(!guard.is_lost());
        let heir = wait_for(&others, &name);
        await_watches(server(), &name, 1).await;
        line.silence();
        loop {
            let waiting = !heir.is_finished() && look.queue(&name).await.len() == 2;
            // If it is still believed in now, it must have been there when the server was asked.
            if guard.is_lost() {
                ended_first += u32::from(waiting);
                break;
            }
            assert!(waiting, "believed in, but the server had already let somebody else in");
        }
        assert_eq!(guard.lost().await, LossCause::Expired);
        let heir = heir.await.expect("no panic").expect("the lock");
        assert!(heir.token() > guard.token());
        line.heal();
        assert_eq!(guard.release().await.expect("an answer"), Release::HeldByOther);
        assert!(!heir.is_lost());
        release(heir).await;
        assert_eq!(look.queue(&name).await.len(), 0);
    }
    assert!(ended_first > 0, "validity never ended before the session");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_outage_newcomers_do_not_wait_for_the_session_that_holds_the_old_locks() {
    let look = Look::here().await;
    let proxy = Proxy::before(server().addr()).expect("a proxy");
    let locks = locks_at(&proxy.addr().to_string(), LONG).await;
    let [old, refused, new] = [fresh_name(), fresh_name(), fresh_name()];
    let held = lock(&locks, &old).await;
    proxy.start_outage();
    // Its client comes to try every three seconds, then every six. What it was asked meanwhile it
    // sends when it is back: until it has removed that again, the name is taken.
    let outage = Instant::now();
    while outage.elapsed() < Duration::from_secs(4) {
        assert!(matches!(locks.lock(&refused, &at_once()).await, Err(LockError::Backend(_))));
    }
    proxy.end_outage();
    let guard = lock(&locks, &new).await;
    assert_ne!(look.session_of(&old).await, look.session_of(&new).await);
    release(guard).await;
    eventually("the old session is back", async || {
        assert!(!held.is_lost());
        held.validity().deadline() > Some((outage + LONG).into())
    })
    .await;
    release(held).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn validity_counts_from_the_sending_and_not_from_the_answer() {
    let ((line, locks), name) = (line_and_locks(LONG).await, fresh_name());
    release(lock(&locks, &name).await).await;
    // Less than the time in which an answer has to come.
    let slow = Duration::from_millis(500);
    line.delay_answers(slow);
    let guard = lock(&locks, &name).await;
    let end = guard.validity().deadline().expect("it ends");
    let granted = tokio::time::Instant::now();
    assert!(end + slow < granted + LONG, "{:?} after the answer", end - granted);
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_session_ends_notices_it_and_the_queue_continues() {
    let (look, others) = (Look::here().await, locks().await);
    for heals in [false, true] {
        let ((line, locks), name) = (line_and_locks(SHORT).await, fresh_name());
        let holder = lock(&others, &name).await;
        // A waiter who may hold the lock already is told; it cannot wait on under another owner.
        let cut_off = tokio::spawn({
            let (locks, name) = (locks.clone(), name.clone());
            async move { locks.lock_as(Owner::fresh(), &name, &patient()).await }
        });
        await_watches(server(), &name, 1).await;
        let next = wait_for(&others, &name);
        await_watches(server(), &name, 2).await;
        line.silence();
        look.await_queue(&name, 2).await;
        if heals {
            line.heal();
        }
        let outcome =
            timeout(SESSION_LOST_WITHIN, cut_off).await.expect("it is told").expect("no panic");
        let error = outcome.expect_err("it has no node any more").to_string();
        assert!(error.contains("session has ended"), "{error}");
        assert!(!next.is_finished(), "the holder holds it");
        release(holder).await;
        release(next.await.expect("no panic").expect("the lock")).await;
        line.heal();
        // The same locks, with a new session.
        eventually("it works again", async || locks.lock(&name, &at_once()).await.is_ok()).await;
        locks.flush().await;
        assert_eq!(look.queue(&name).await.len(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_session_ends_queues_again_behind_the_others() {
    let (look, others) = (Look::here().await, locks().await);
    let ((line, locks), name) = (line_and_locks(SHORT).await, fresh_name());
    let holder = lock(&others, &name).await;
    let cut_off = wait_for(&locks, &name);
    await_watches(server(), &name, 1).await;
    let next = wait_for(&others, &name);
    await_watches(server(), &name, 2).await;
    line.silence();
    look.await_queue(&name, 2).await;
    let queue = look.queue(&name).await;
    line.heal();
    look.await_queue(&name, 3).await;
    assert_eq!(look.queue(&name).await[..2], queue, "it has overtaken somebody");
    release(holder).await;
    release(next.await.expect("no panic").expect("the lock")).await;
    release(cut_off.await.expect("no panic").expect("the lock")).await;
    assert_eq!(look.queue(&name).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn cuts_shorter_than_the_session_lose_no_locks_places_or_events() {
    let (look, others) = (Look::here().await, locks().await);
    let ((line, locks), name) = (line_and_locks(SHORT).await, fresh_name());
    let guard = lock(&locks, &name).await;
    let token = guard.token();
    let waiter = wait_for(&locks, &name);
    look.await_queue(&name, 2).await;
    let started = Instant::now();
    while started.elapsed() < 2 * SHORT {
        line.cut();
        sleep(SHORT / 8).await;
        assert!(!guard.is_lost(), "after {:?}", started.elapsed());
    }
    assert_eq!(look.queue(&name).await.len(), 2);
    release(guard).await;
    let guard = waiter.await.expect("no panic").expect("the lock");
    assert!(guard.token() > token);
    // What happens while the waiter cannot be told is told once it can.
    let waiter = wait_for(&others, &name);
    look.await_queue(&name, 2).await;
    let last = wait_for(&locks, &name);
    await_watches(server(), &name, 2).await;
    release(guard).await;
    let holder = waiter.await.expect("no panic").expect("the lock");
    line.silence();
    line.cut();
    release(holder).await;
    sleep(SHORT / 8).await;
    assert!(!last.is_finished());
    line.heal();
    let told = timeout(SESSION_LOST_WITHIN, last).await.expect("it is told");
    release(told.expect("no panic").expect("the lock")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_resumes_within_seconds_of_an_outage_of_half_a_minute() {
    // A server that was killed would take seconds of its validity time to start.
    let own = OwnServer::start(60_000);
    let proxy = Proxy::before(own.zookeeper.addr()).expect("a proxy");
    let locks = locks_at(&proxy.addr().to_string(), Duration::from_mins(1)).await;
    let guard = lock(&locks, &fresh_name()).await;
    proxy.start_outage();
    // A client whose pauses double from 0.1 s tries again at 25 s and at 51 s.
    sleep(Duration::from_secs(27)).await;
    proxy.end_outage();
    let (began, back) = (Instant::now(), Stopwatch::start());
    let before = guard.validity().deadline();
    eventually("the session resumes", async || guard.validity().deadline() > before).await;
    // A busy machine excuses a client that is late, and not one that waits until 51 s.
    assert!(began.elapsed() < Duration::from_secs(18), "after {:?}", began.elapsed());
    assert!(back.elapsed() < RESUMED_WITHIN, "after {:?}", back.elapsed());
    assert!(!guard.is_lost());
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_server_ends_validity_before_it_can_end_the_session() {
    let own = OwnServer::start(60_000);
    let locks = locks_at(own.zookeeper.connect_string(), SHORT).await;
    let name = fresh_name();
    let guard = lock(&locks, &name).await;
    own.act(|zookeeper| zookeeper.freeze());
    let frozen = Instant::now();
    timeout(SHORT, guard.lost()).await.expect("the loss is told");
    let refused = locks.lock(&fresh_name(), &at_once()).await;
    assert!(matches!(refused, Err(LockError::Backend(_))), "{:?}", refused.err());
    assert!(frozen.elapsed() < SESSION_LOST_WITHIN, "{:?}", frozen.elapsed());
    own.act(|zookeeper| zookeeper.thaw());
    drop(guard);
    eventually("it works again", async || {
        locks.lock(&name, &at_once()).await.is_ok_and(|guard| !guard.is_lost())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarts_knows_its_holders_and_its_waiters() {
    let own = OwnServer::start(60_000);
    let url = own.zookeeper.connect_string();
    let session = 2 * LONG;
    let (first, second) = (locks_at(url, session).await, locks_at(url, session).await);
    let name = fresh_name();
    let guard = lock(&first, &name).await;
    let waiter = wait_for(&second, &name);
    await_watches(&own.zookeeper, &name, 1).await;
    own.act(|zookeeper| zookeeper.restart());
    let look = Look::at(&own.zookeeper).await;
    assert_eq!(look.queue(&name).await.len(), 2);
    for locks in [&first, &second] {
        let works = async || locks.lock(&fresh_name(), &at_once()).await.is_ok();
        eventually("it is connected again", works).await;
    }
    assert!(!guard.is_lost() && !waiter.is_finished());
    assert_busy(&second, &name).await;
    let token = guard.token();
    release(guard).await;
    let guard = waiter.await.expect("no panic").expect("the lock");
    assert!(guard.token() > token);
    release(guard).await;
}

/// What the lock protects: it remembers the highest token that it has seen.
#[derive(Default)]
struct Resource {
    highest: AtomicU64,
    writes: AtomicU32,
}

impl Resource {
    fn write(&self) {
        self.writes.fetch_add(1, Ordering::SeqCst);
    }

    fn write_fenced(&self, token: Option<Token>) -> bool {
        let token = token.expect("each hold has a token").0;
        let is_new = self.highest.fetch_max(token, Ordering::SeqCst) <= token;
        self.writes.fetch_add(u32::from(is_new), Ordering::SeqCst);
        is_new
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_is_paused_past_its_session_works_on_unless_its_token_is_checked() {
    // The known flaw of this kind, and of every lock whose holder can be paused.
    let ((line, paused), others, name) = (line_and_locks(SHORT).await, locks().await, fresh_name());
    let (bare, fenced) = (Resource::default(), Resource::default());
    let holder = lock(&paused, &name).await;
    assert!(fenced.write_fenced(holder.token()));
    // As far as the server can see, a process that is cut off is one that is paused.
    line.silence();
    let heir = others.lock(&name, &patient()).await.expect("the lock");
    bare.write();
    assert!(fenced.write_fenced(heir.token()));
    // Back at work, without a look at the guard.
    bare.write();
    assert_eq!(bare.writes.load(Ordering::SeqCst), 2, "two holders wrote");
    assert!(!fenced.write_fenced(holder.token()), "the fence let it through");
    assert_eq!(fenced.writes.load(Ordering::SeqCst), 2);
    // One look would have done as well.
    assert!(holder.is_lost());
    release(heir).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_reconnect_in_step_have_one_holder_at_a_time_and_each_gets_the_lock() {
    let line = Line::to(server().addr()).await;
    let (name, inside) = (fresh_name(), Arc::new(AtomicU32::new(0)));
    let until = Instant::now() + 2 * SHORT;
    let mut contenders = Vec::new();
    for _ in 0..3 {
        let locks = locks_at(&line.connect_string(), LONG).await;
        let (name, inside) = (name.clone(), Arc::clone(&inside));
        contenders.push(tokio::spawn(async move {
            let mut turns = 0;
            while Instant::now() < until {
                let guard = locks.lock(&name, &patient()).await.expect("the lock");
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                sleep(Duration::from_millis(5)).await;
                assert!(!guard.is_lost());
                inside.fetch_sub(1, Ordering::SeqCst);
                release(guard).await;
                turns += 1;
            }
            turns
        }));
    }
    while Instant::now() < until {
        let connections = line.connections();
        line.cut();
        eventually("all are back", async || line.connections() >= connections + 3).await;
        sleep(Duration::from_millis(100)).await;
    }
    for contender in contenders {
        let turns = contender.await.expect("no two holders");
        assert!(turns > 1, "it had {turns} turns");
    }
    assert_eq!(Look::here().await.queue(&name).await.len(), 0, "something is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_whose_session_has_ended_does_not_enter_again_but_anew() {
    let ((line, locks), name) = (line_and_locks(SHORT).await, fresh_name());
    let look = Look::here().await;
    let old = lock(&locks, &name).await;
    line.silence();
    look.await_queue(&name, 0).await;
    line.heal();
    let mut anew = None;
    eventually("a new session", async || {
        anew = locks.lock_as(old.owner().clone(), &name, &at_once()).await.ok();
        anew.is_some()
    })
    .await;
    let anew = anew.expect("the lock");
    assert!(anew.token() > old.token() && old.is_lost() && !anew.is_lost());
    assert_eq!(look.queue(&name).await.len(), 1);
    assert_eq!(old.release().await.expect("an answer"), Release::HeldByOther);
    assert_eq!(look.queue(&name).await.len(), 1, "the new one was not touched");
    release(anew).await;
}
