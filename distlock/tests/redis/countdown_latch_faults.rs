//! `CountdownLatch` when its server, or the way to it, fails. Each test has a Redis of its own.

use std::time::{Duration, Instant};

use crate::support::synchronizers::{ACCIDENTS, Client, LOOK, OwnServer, PATIENT, SLACK};
use crate::support::{answered, eventually, fresh_name};
use distlock::{CountdownLatch, LockError, RedisServer};
use testbed::{MessageDrop, Times};
use tokio::task::JoinHandle;
use uuid::Uuid;

/// How many keys the scripts have that set and that count down.
const KEYS: &str = "3";
/// Those of looks.
const LOOKS: &str = "1";

/// A latch by a route that can be broken, and by one that cannot.
struct TwoRoutes {
    own: OwnServer,
    broken: CountdownLatch,
    sound: CountdownLatch,
}

impl TwoRoutes {
    async fn closed(count: u32) -> Self {
        let seen = Self::open().await;
        assert!(seen.sound.try_set_count(count).await.expect("an answer"));
        seen
    }

    async fn open() -> Self {
        let own = OwnServer::start();
        let process = own.process().await;
        Self::by(process, own).await
    }

    /// By a way on which half a second without an answer is silence.
    async fn hasty() -> Self {
        let own = OwnServer::start();
        let process = own.hasty().await;
        Self::by(process, own).await
    }

    async fn by(process: RedisServer, own: OwnServer) -> Self {
        let name = fresh_name();
        let broken = CountdownLatch::new(&process, name.clone());
        let sound = CountdownLatch::new(&own.undisturbed().await, name);
        // So that its scripts are known, and one accident is one.
        sound.try_set_count(1).await.expect("an answer");
        answered(async || broken.count_down().await).await;
        sound.count().await.expect("an answer");
        Self { own, broken, sound }
    }

    async fn waiter(&self) -> JoinHandle<Instant> {
        let looked = self.own.watch(LOOKS);
        let waiting = self.broken.clone();
        let waiter = tokio::spawn(async move {
            waiting.wait(PATIENT).await.expect("it opens");
            Instant::now()
        });
        // When it has subscribed it looks once more, and then relies on messages.
        eventually("it waits", async || looked.matched() >= 2).await;
        waiter
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_whose_answer_is_lost_counts_once() {
    for accident in ACCIDENTS {
        for times in [1, 2, 3] {
            let seen = TwoRoutes::hasty().await;
            assert!(seen.sound.try_set_count(5).await.expect("an answer"));
            let rule = seen.own.arm(KEYS, accident, Times::Next(times));
            let id = Uuid::new_v4();
            let outcome = seen.broken.count_down_as(id).await;
            assert!(rule.fired() > 0, "{accident:?} did not happen");
            let count = seen.sound.count().await.expect("an answer");
            match outcome {
                Ok(left) => assert_eq!((left, count), (4, 4), "{accident:?} {times}"),
                Err(LockError::Backend(_)) => assert!(count >= 4, "{accident:?}: {count}"),
                Err(other) => panic!("{accident:?} {times}: {other}"),
            }
            // A caller without an answer asks again, on any connection.
            assert_eq!(seen.sound.count_down_as(id).await.expect("an answer"), 4);
            assert_eq!(seen.sound.count().await.expect("an answer"), 4, "{accident:?} {times}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_latch_whose_setting_was_lost_is_set_once() {
    for accident in ACCIDENTS {
        let seen = TwoRoutes::hasty().await;
        let rule = seen.own.arm(KEYS, accident, Times::Next(1));
        match seen.broken.try_set_count(2).await {
            Ok(set) => assert!(set, "{accident:?}: it was this call that set it"),
            Err(LockError::Backend(_)) => {}
            Err(other) => panic!("{accident:?}: {other}"),
        }
        assert!(rule.fired() > 0, "{accident:?} did not happen");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_without_a_message_asks_by_itself() {
    for fault in ["cut", "killed", "dropped"] {
        let seen = TwoRoutes::closed(1).await;
        let waiter = seen.waiter().await;
        let client = Client::at(seen.own.redis.url()).await;
        match fault {
            "cut" => seen.own.proxy.cut_subscribers(),
            "killed" => client.command::<()>(&["CLIENT", "KILL", "TYPE", "pubsub"]).await,
            _ => seen.own.proxy.drop_messages("latch", MessageDrop::All),
        }
        let opened = Instant::now();
        assert_eq!(seen.sound.count_down().await.expect("an answer"), 0);
        let took = waiter.await.expect("no panic").saturating_duration_since(opened);
        println!("{fault}: let go after {took:?}");
        assert!(took < LOOK + SLACK, "{fault}: {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_outlives_a_server_that_is_away_for_a_moment() {
    let seen = TwoRoutes::closed(1).await;
    let waiter = seen.waiter().await;
    seen.own.proxy.start_outage();
    tokio::time::sleep(LOOK + Duration::from_millis(300)).await;
    let newcomer = seen.broken.wait(PATIENT).await;
    assert!(matches!(newcomer, Err(LockError::Backend(_))), "{newcomer:?}");
    assert_eq!(seen.sound.count_down().await.expect("an answer"), 0);
    seen.own.proxy.end_outage();
    waiter.await.expect("it is let go");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loses_its_memory_opens_the_latch() {
    // The known flaw: what is not there is open.
    let seen = TwoRoutes::closed(2).await;
    let waiter = seen.waiter().await;
    seen.own.act(|redis| redis.restart());
    waiter.await.expect("it is let go, though nobody has counted");
    let count = async || seen.sound.count().await.ok();
    eventually("the server is back", async || count().await == Some(0)).await;
}
