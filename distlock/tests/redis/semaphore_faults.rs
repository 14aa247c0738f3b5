//! `Semaphore` when its server, or the way to it, fails. Each test has a Redis of its own.

use std::time::{Duration, Instant};

use crate::support::synchronizers::{ACCIDENTS, Client, LOOK, OwnServer, PATIENT, SLACK};
use crate::support::{answered, assert_released, eventually, fresh_name};
use distlock::{LockError, Permits, RedisServer, Release, Semaphore};
use testbed::{MessageDrop, Times};
use tokio::task::JoinHandle;

const ZERO: Duration = Duration::ZERO;
/// How many keys their scripts have.
const TAKE: &str = "2";
const GIVE: &str = "3";

/// A semaphore by a route that can be broken, and by one that cannot.
struct TwoRoutes {
    own: OwnServer,
    broken: Semaphore,
    sound: Semaphore,
}

impl TwoRoutes {
    async fn with(permits: u32) -> Self {
        let own = OwnServer::start();
        let process = own.process().await;
        Self::by(process, own, permits).await
    }

    /// By a way on which half a second without an answer is silence.
    async fn hasty(permits: u32) -> Self {
        let own = OwnServer::start();
        let process = own.hasty().await;
        Self::by(process, own, permits).await
    }

    async fn by(process: RedisServer, own: OwnServer, permits: u32) -> Self {
        let name = fresh_name();
        let broken = Semaphore::new(&process, name.clone());
        let sound = Semaphore::new(&own.undisturbed().await, name);
        assert!(sound.try_set_permits(permits).await.expect("an answer"));
        // So that its scripts are known, and one accident is one.
        answered(async || broken.acquire(1, PATIENT).await?.release().await).await;
        broken.flush().await;
        eventually("all are back", async || sound.available().await.expect("an answer") == permits)
            .await;
        Self { own, broken, sound }
    }

    async fn free(&self) -> u32 {
        self.sound.available().await.expect("an answer")
    }

    /// What was given back arrives, also at a server that stood still for a moment.
    async fn come_back(&self, permits: u32, what: &str) {
        eventually(what, async || self.free().await == permits).await;
    }

    async fn taken(&self, permits: u32) -> Permits {
        answered(async || self.broken.acquire(permits, PATIENT).await).await
    }

    async fn waiter(&self, permits: u32) -> JoinHandle<(Permits, Instant)> {
        let asked = self.own.watch(TAKE);
        let waiting = self.broken.clone();
        let waiter = tokio::spawn(async move {
            let permits = waiting.acquire(permits, PATIENT).await.expect("permits");
            (permits, Instant::now())
        });
        // When it has subscribed it asks once more, and then relies on messages.
        eventually("it waits", async || asked.matched() >= 2).await;
        waiter
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquisition_whose_answer_is_lost_takes_once_or_nothing() {
    for accident in ACCIDENTS {
        for times in [1, 2, 3] {
            let seen = TwoRoutes::hasty(5).await;
            let rule = seen.own.arm(TAKE, accident, Times::Next(times));
            let outcome = seen.broken.acquire(2, ZERO).await;
            assert!(rule.fired() > 0, "{accident:?} did not happen");
            match outcome {
                Ok(permits) => {
                    assert_eq!(seen.free().await, 3, "{accident:?} {times}: it counts once");
                    assert_released(permits.release().await, "a release");
                }
                Err(LockError::Backend(_)) => {}
                Err(other) => panic!("{accident:?} {times}: {other}"),
            }
            seen.own.proxy.heal();
            seen.broken.flush().await;
            seen.come_back(5, &format!("{accident:?} {times}: all are back, and no more")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_whose_answer_is_lost_gives_back_once() {
    for accident in ACCIDENTS {
        for times in [1, 2, 4] {
            let seen = TwoRoutes::hasty(5).await;
            let (first, second) = (seen.taken(2).await, seen.taken(3).await);
            let rule = seen.own.arm(GIVE, accident, Times::Next(times));
            assert_released(first.release().await, &format!("{accident:?} {times}"));
            assert!(rule.fired() > 0, "{accident:?} did not happen");
            seen.broken.flush().await;
            seen.come_back(2, &format!("{accident:?} {times}: once")).await;
            drop(second);
            seen.broken.flush().await;
            seen.come_back(5, &format!("{accident:?} {times}: in the end")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_granted_by_a_server_that_woke_up_too_late_are_given_back() {
    for seen_before in [true, false] {
        let seen = TwoRoutes::hasty(4).await;
        let held = seen.taken(1).await;
        if !seen_before {
            let client = Client::at(seen.own.redis.url()).await;
            client.command::<()>(&["SCRIPT", "FLUSH"]).await;
        }
        seen.own.act(|redis| redis.freeze());
        let outcome = seen.broken.acquire(2, PATIENT).await;
        assert!(matches!(outcome, Err(LockError::Backend(_))), "{outcome:?}");
        assert!(held.release().await.is_err(), "there is no answer");
        seen.own.act(|redis| redis.thaw());
        seen.broken.flush().await;
        seen.come_back(4, &format!("scripts known: {seen_before}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_without_a_message_asks_by_itself() {
    // Nothing happens; the connection for messages is cut at the release; is killed by the server;
    // messages get lost.
    for fault in ["none", "cut", "killed", "dropped"] {
        let seen = TwoRoutes::with(2).await;
        let held = seen.sound.acquire(2, ZERO).await.expect("permits");
        let waiter = seen.waiter(1).await;
        let client = Client::at(seen.own.redis.url()).await;
        match fault {
            "cut" => seen.own.proxy.cut_subscribers(),
            "killed" => client.command::<()>(&["CLIENT", "KILL", "TYPE", "pubsub"]).await,
            "dropped" => seen.own.proxy.drop_messages("semaphore", MessageDrop::All),
            _ => {}
        }
        let released = Instant::now();
        assert_eq!(held.release().await.expect("an answer"), Release::Released);
        let (permits, got) = waiter.await.expect("no panic");
        let took = got.saturating_duration_since(released);
        println!("{fault}: handed over after {took:?}");
        assert!(took < LOOK + SLACK, "{fault}: {took:?}");
        drop(permits);
        seen.broken.flush().await;
        assert_eq!(seen.free().await, 2, "{fault}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_outlives_a_server_that_is_away_for_a_moment() {
    let seen = TwoRoutes::with(2).await;
    let held = seen.sound.acquire(2, ZERO).await.expect("permits");
    let waiter = seen.waiter(1).await;
    seen.own.proxy.start_outage();
    // Long enough for one look without success.
    tokio::time::sleep(LOOK + Duration::from_millis(300)).await;
    assert_eq!(held.release().await.expect("an answer"), Release::Released);
    let newcomer = seen.broken.acquire(1, ZERO).await;
    assert!(matches!(newcomer, Err(LockError::Backend(_))), "{newcomer:?}");
    seen.own.proxy.end_outage();
    let (permits, _) = waiter.await.expect("no panic");
    assert_eq!(permits.release().await.expect("an answer"), Release::Released);
    seen.broken.flush().await;
    assert_eq!(seen.free().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_dropped_while_the_server_was_away_are_given_back() {
    let seen = TwoRoutes::with(3).await;
    let held = seen.broken.acquire(2, ZERO).await.expect("permits");
    seen.own.proxy.start_outage();
    drop(held);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(seen.free().await, 1);
    seen.own.proxy.end_outage();
    seen.broken.flush().await;
    assert_eq!(seen.free().await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_memory_to_spare_takes_permits_back() {
    let seen = TwoRoutes::with(3).await;
    let held = seen.sound.acquire(2, ZERO).await.expect("permits");
    let client = Client::at(seen.own.redis.url()).await;
    client.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let refused = seen.sound.acquire(1, ZERO).await;
    assert!(matches!(refused, Err(LockError::Backend(_))), "its memory is full: {refused:?}");
    assert_eq!(held.release().await.expect("an answer"), Release::Released);
    assert_eq!(seen.free().await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_semaphore_that_its_server_forgot_is_set_anew_with_its_own_permits_only() {
    let seen = TwoRoutes::with(2).await;
    let stale = seen.sound.acquire(2, ZERO).await.expect("permits");
    let waiter = seen.waiter(1).await;
    seen.own.act(|redis| redis.restart());
    eventually("the server is back", async || seen.sound.try_set_permits(2).await.is_ok()).await;
    let (permits, _) = waiter.await.expect("the waiter goes on");
    assert_eq!(stale.release().await.expect("an answer"), Release::Gone);
    assert_eq!(permits.release().await.expect("an answer"), Release::Released);
    seen.broken.flush().await;
    assert_eq!(seen.free().await, 2, "the old permits are worth nothing");
}
