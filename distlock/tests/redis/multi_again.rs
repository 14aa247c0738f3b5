//! `multi`, whose waiter gives a member back and takes it again: the server remembers the first
//! time, and may not have answered it.

use std::sync::Arc;
use std::time::Duration;

use crate::support::redisson::{OwnServer, RawRedis, Service, channel};
use crate::support::{
    LONG, assert_released, at_once, but_for_one_standstill, connect, eventually, fresh_name,
    options, patient,
};
use distlock::{Guard, LockError, LockName, Locks, Multi, RedisServer, Redisson};
use testbed::{Action, Command, Rule, Times};
use tokio::task::JoinHandle;

/// How long another owner waits for a lock that must not come free.
const SHORT_WAIT: Duration = Duration::from_millis(500);

/// Two locks of `redisson`, and a waiter for both whose connection to the first one is its own.
struct Scene {
    own: OwnServer,
    /// Its way.
    way: RedisServer,
    raw: RawRedis,
    others: Locks,
    one: LockName,
    two: LockName,
}

type Waiter = JoinHandle<Result<Guard, LockError>>;

impl Scene {
    /// The holder of the second lock, while the waiter knows that.
    async fn new() -> (Self, Guard, Waiter) {
        let (own, name) = (OwnServer::start(), fresh_name());
        let [one, two] =
            ["1", "2"].map(|end| LockName::new(format!("{name}:{end}")).expect("a name"));
        let others = Service::at(own.redis.url()).await.locks;
        let held = others.lock(&two, &at_once()).await.expect("it is free");
        let way = own.hasty().await.server;
        let first = Redisson::on(&way);
        let second = Redisson::on(&connect(own.redis.url()).await);
        let members =
            vec![(Arc::new(first) as _, one.clone()), (Arc::new(second) as _, two.clone())];
        let whole = Locks::new(Arc::new(Multi::of(members).expect("two members")));
        let waiter = tokio::spawn(async move { whole.lock(&name, &patient()).await });
        let scene = Self { raw: own.raw().await, own, way, others, one, two };
        eventually("it waits", async || scene.is_waited_for(&scene.two).await).await;
        (scene, held, waiter)
    }

    async fn is_waited_for(&self, name: &LockName) -> bool {
        let heard: (String, usize) = self.raw.command(&["PUBSUB", "NUMSUB", &channel(name)]).await;
        heard.1 > 0
    }

    /// The waiter takes the first lock, finds the second one busy, gives the first one back, and
    /// that meets with an accident.
    async fn with_accident(&self, accident: Action) -> Rule {
        let release = Command::redis("EVALSHA").containing(self.one.as_str());
        let release = release.when(|parts| parts[2] == b"3");
        let rule = self.own.proxy.arm(release, accident, Times::Next(1));
        self.raw.command::<()>(&["PUBLISH", &channel(&self.two), "0"]).await;
        eventually("it gives the first one back", async || rule.fired() == 1).await;
        rule
    }

    /// Asks so much by its way that a connection which does not answer is replaced.
    async fn until_it_is_answered(&self) {
        let ask = || async {
            let ping: redis::RedisResult<()> =
                redis::cmd("PING").query_async(&mut self.way.connection()).await;
            ping.is_ok()
        };
        eventually("it is answered", async || tokio::join!(ask(), ask(), ask()).0).await;
    }

    async fn assert_busy(&self, what: &str) {
        for name in [&self.one, &self.two] {
            let other = self.others.lock(name, &options(SHORT_WAIT, LONG)).await;
            assert!(matches!(other, Err(LockError::TimedOut { .. })), "{what}: two hold {name}");
        }
    }

    async fn assert_free(&self, what: &str) {
        for name in [&self.one, &self.two] {
            let is_free = async || self.others.lock(name, &at_once()).await.is_ok();
            eventually(&format!("{what}: {name} is free"), is_free).await;
        }
    }
}

/// The guard of the waiter, unless a server has stood still for too long.
async fn granted(waiter: Waiter) -> Result<Guard, String> {
    match waiter.await.expect("no panic") {
        Err(LockError::Backend(why)) => Err(why),
        outcome => Ok(outcome.expect("both are free")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_right_after_the_acquire_frees_a_member_that_was_given_back_before() {
    but_for_one_standstill(frees_what_was_given_back_before).await;
}

async fn frees_what_was_given_back_before() -> Result<(), String> {
    let (scene, held, waiter) = Scene::new().await;
    // The server goes on to remember that it was given back.
    let forgets = Command::redis("DEL").containing("redisson_unlock_latch");
    let forgets = scene.own.proxy.arm(forgets, Action::CutRequest, Times::Always);
    scene.with_accident(Action::DelayAnswer(Duration::ZERO)).await;
    eventually("it is told to forget that", async || forgets.fired() > 0).await;
    held.release().await.expect("a release");
    let guard = granted(waiter).await?;
    assert_released(guard.release().await, "both");
    let latches = scene.raw.keys(&scene.one).await;
    assert!(!latches.is_empty(), "it was told to forget");
    scene.assert_free("released").await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_does_not_answer_when_it_is_given_back_is_taken_by_another_owner() {
    for accident in [Action::CutAnswer, Action::LoseAnswer, Action::CutRequest] {
        but_for_one_standstill(async || is_taken_by_another_owner(accident).await).await;
    }
}

async fn is_taken_by_another_owner(accident: Action) -> Result<(), String> {
    let what = format!("{accident:?}");
    let (scene, held, waiter) = Scene::new().await;
    scene.with_accident(accident).await;
    held.release().await.expect("a release");
    let guard = granted(waiter).await?;
    scene.assert_busy(&what).await;
    assert!(!guard.is_lost(), "{what}");
    assert_released(guard.release().await, &what);
    scene.assert_free(&what).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_given_back_much_later_frees_nothing_that_was_taken_since() {
    but_for_one_standstill(frees_nothing_that_was_taken_since).await;
}

async fn frees_nothing_that_was_taken_since() -> Result<(), String> {
    let (scene, held, waiter) = Scene::new().await;
    let release = scene.with_accident(Action::HoldRequest).await;
    scene.until_it_is_answered().await;
    held.release().await.expect("a release");
    // By another connection: it finds itself in its way, or does not.
    eventually("it goes on", async || {
        waiter.is_finished() || scene.is_waited_for(&scene.one).await
    })
    .await;
    release.release();
    let guard = granted(waiter).await?;
    scene.assert_busy("a release that comes late").await;
    assert!(!guard.is_lost());
    assert_released(guard.release().await, "both");
    scene.assert_free("released").await;
    Ok(())
}
