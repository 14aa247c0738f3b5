//! `ExpirableSemaphore` when its server, or the way to it, fails. Each test has a Redis of its own.

use std::time::{Duration, Instant};

use crate::support::synchronizers::{ACCIDENTS, Client, LOOK, OwnServer, PATIENT, SLACK};
use crate::support::{LONG, answered, assert_released, eventually, fresh_name};
use distlock::{ExpirableSemaphore, Lease, LockError, Owner, RedisServer, Release};
use testbed::{Action, Command, Direction, MessageDrop, RedisOptions, Times};

/// A lease that does not end in a test.
const FIXED: Lease = Lease::Fixed(LONG);
/// What a lost release may cost here.
const SHORT: Lease = Lease::Fixed(Duration::from_secs(4));
/// How many keys the scripts of acquisitions and of releases have.
const KEYS: &str = "3";

/// A semaphore by a route that can be broken, and by one that cannot.
struct TwoRoutes {
    own: OwnServer,
    broken: ExpirableSemaphore,
    sound: ExpirableSemaphore,
}

impl TwoRoutes {
    async fn with(permits: u32, options: RedisOptions) -> Self {
        let own = OwnServer::with(options);
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
        let broken = ExpirableSemaphore::new(&process, name.clone());
        let sound = ExpirableSemaphore::new(&own.undisturbed().await, name);
        assert!(sound.try_set_permits(permits).await.expect("an answer"));
        // So that its scripts are known, and one accident is one.
        answered(async || broken.acquire(PATIENT, FIXED).await?.release().await).await;
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
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquisition_whose_answer_is_lost_takes_one_permit_or_none() {
    for accident in ACCIDENTS {
        for times in [1, 2] {
            let seen = TwoRoutes::hasty(3).await;
            let rule = seen.own.arm(KEYS, accident, Times::Next(times));
            let outcome = seen.broken.acquire(Duration::ZERO, FIXED).await;
            assert!(rule.fired() > 0, "{accident:?} did not happen");
            match outcome {
                Ok(permit) => {
                    assert_eq!(seen.free().await, 2, "{accident:?} {times}: it counts once");
                    assert_released(permit.release().await, "a release");
                }
                Err(LockError::Backend(_)) => {}
                Err(other) => panic!("{accident:?} {times}: {other}"),
            }
            seen.own.proxy.heal();
            seen.broken.flush().await;
            seen.come_back(3, &format!("{accident:?} {times}")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_whose_answer_is_lost_gets_the_first_answer_or_leaves_the_permit_to_its_lease() {
    for accident in ACCIDENTS {
        for by_id in [false, true] {
            let seen = TwoRoutes::hasty(3).await;
            let _other = seen.sound.acquire(PATIENT, FIXED).await.expect("a permit");
            let permit = answered(async || seen.broken.acquire(PATIENT, SHORT).await).await;
            let rule = seen.own.arm(KEYS, accident, Times::Next(1));
            let outcome = if by_id {
                let id: Owner = permit.into_id();
                seen.broken.release(&id).await
            } else {
                permit.release().await.map(|outcome| {
                    assert_eq!(outcome, Release::Released, "{accident:?}");
                })
            };
            assert!(rule.fired() > 0, "{accident:?} did not happen");
            match outcome {
                Ok(()) => assert_eq!(seen.free().await, 2, "{accident:?}"),
                Err(LockError::Backend(_)) => assert!(seen.free().await <= 2, "{accident:?}"),
                Err(other) => panic!("{accident:?} by its id {by_id}: {other}"),
            }
            eventually("it is free", async || seen.free().await == 2).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_granted_by_a_server_that_woke_up_too_late_is_given_back() {
    let seen = TwoRoutes::hasty(2).await;
    seen.own.act(|redis| redis.freeze());
    let outcome = seen.broken.acquire(PATIENT, FIXED).await;
    assert!(matches!(outcome, Err(LockError::Backend(_))), "{outcome:?}");
    seen.own.act(|redis| redis.thaw());
    seen.broken.flush().await;
    seen.come_back(2, "it is given back").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_without_an_answer_are_tried_again_and_lose_nothing() {
    let seen = TwoRoutes::with(1, RedisOptions::default()).await;
    // Two of them are cut in its first third; then a server may stand still for a moment.
    let lease = Lease::Renewed(Duration::from_secs(6));
    let permit = seen.broken.acquire(PATIENT, lease).await.expect("a permit");
    let renewals = || Command::redis("EVALSHA").containing("distlock_permits:");
    let cut = seen.own.proxy.arm(renewals(), Action::CutAnswer, Times::Next(2));
    eventually("two are cut", async || cut.fired() == 2).await;
    let after = seen.own.proxy.watch(renewals());
    eventually("it goes on", async || after.matched() > 2).await;
    assert!(!permit.is_lost());
    assert_eq!(permit.release().await.expect("an answer"), Release::Released);
    assert_eq!(seen.free().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn validity_counts_from_the_sending_of_an_acquisition_and_a_renewal_less_the_margin() {
    let seen = TwoRoutes::with(1, RedisOptions::default()).await;
    let (delay, length) = (Duration::from_millis(200), Duration::from_secs(9));
    seen.own.proxy.set_latency(Direction::ToClient, delay, Duration::ZERO);
    let permit = seen.broken.acquire(PATIENT, Lease::Renewed(length)).await.expect("a permit");
    let margin = length / 100 + Duration::from_millis(2);
    let worth = length.checked_sub(margin).expect("it is longer");
    let look = || {
        let end = permit.validity().deadline().expect("an end");
        // What is known by now was sent before that.
        let sent = tokio::time::Instant::now() - delay;
        assert!(end <= sent + worth, "believed in for {:?} too long", end - (sent + worth));
        end
    };
    let mut end = look();
    for _ in 0..2 {
        eventually("it is renewed", async || {
            let before = std::mem::replace(&mut end, look());
            end > before
        })
        .await;
    }
    assert_eq!(permit.release().await.expect("an answer"), Release::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_without_a_message_asks_by_itself() {
    for fault in ["cut", "killed", "dropped"] {
        let seen = TwoRoutes::with(1, RedisOptions::default()).await;
        let client = Client::at(seen.own.redis.url()).await;
        let held = seen.sound.acquire(PATIENT, FIXED).await.expect("a permit");
        let asked = seen.own.watch(KEYS);
        let waiting = seen.broken.clone();
        let waiter = tokio::spawn(async move {
            let permit = waiting.acquire(PATIENT, FIXED).await.expect("a permit");
            (permit, Instant::now())
        });
        // When it has subscribed it asks once more, and then relies on messages.
        eventually("it waits", async || asked.matched() >= 2).await;
        match fault {
            "cut" => seen.own.proxy.cut_subscribers(),
            "killed" => client.command::<()>(&["CLIENT", "KILL", "TYPE", "pubsub"]).await,
            _ => seen.own.proxy.drop_messages("permits", MessageDrop::All),
        }
        let released = Instant::now();
        assert_eq!(held.release().await.expect("an answer"), Release::Released);
        let (permit, got) = waiter.await.expect("no panic");
        let took = got.saturating_duration_since(released);
        println!("{fault}: handed over after {took:?}");
        assert!(took < LOOK + SLACK, "{fault}: {took:?}");
        assert_eq!(permit.release().await.expect("an answer"), Release::Released);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_measured_by_the_clock_of_the_server() {
    let options = RedisOptions { clock: true, ..RedisOptions::default() };
    let seen = TwoRoutes::with(1, options).await;
    let held = seen.sound.acquire(PATIENT, FIXED).await.expect("a permit");
    assert_eq!(seen.free().await, 0);
    seen.own.act(|redis| redis.jump_clock(2 * 60_000));
    // Valkey does not ask for the time at every command.
    eventually("for the server the lease of a minute is over", async || seen.free().await == 1)
        .await;
    let next = seen.broken.acquire(Duration::ZERO, FIXED).await.expect("a permit");
    assert_eq!(held.release().await.expect("an answer"), Release::Gone);
    assert_eq!(next.release().await.expect("an answer"), Release::Released);
}
