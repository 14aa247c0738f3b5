use std::time::Duration;

use redis::AsyncCommands;
use redis::aio::ConnectionManagerConfig;
use testbed::{Bed, Redis, RedisOptions};
use tokio::time::{Instant, sleep, timeout};

use super::*;

/// Longer than anything here takes, so that only a message can come sooner.
const LONG_WAIT: Duration = Duration::from_mins(1);
/// How long to wait for something that must come.
const ARRIVES_WITHIN: Duration = Duration::from_secs(10);
/// How long to wait for something that must not come.
const QUIET_FOR: Duration = Duration::from_millis(200);

/// The bed goes last.
struct Server {
    redis: Redis,
    connection: RedisConnection,
    signals: Signals,
    _bed: Bed,
}

impl Server {
    async fn start() -> Self {
        let (bed, redis) = tokio::task::block_in_place(|| {
            let bed = Bed::start().expect("a private bed");
            let redis = bed.redis(RedisOptions::default()).expect("Redis is installed");
            (bed, redis)
        });
        let config = ConnectionManagerConfig::new().set_response_timeout(Some(ARRIVES_WITHIN));
        let connection = RedisConnection::connect(redis.url(), config).await.expect("a connection");
        let signals = Signals::new(&connection);
        Self { redis, connection, signals, _bed: bed }
    }

    async fn live(&self, channel: &str) -> Subscription {
        let mut subscription = self.signals.subscribe(channel);
        timeout(ARRIVES_WITHIN, subscription.next(LONG_WAIT)).await.expect("the confirmation");
        assert!(subscription.is_live());
        subscription
    }

    async fn send(&self, channel: &str, message: &str) -> usize {
        self.connection.clone().publish(channel, message).await.expect("an answer")
    }

    async fn kill_connections(&self) -> usize {
        redis::cmd("CLIENT")
            .arg(&["KILL", "TYPE", "pubsub"])
            .query_async(&mut self.connection.clone())
            .await
            .expect("an answer")
    }

    async fn channels(&self) -> usize {
        let channels: Vec<String> = redis::cmd("PUBSUB")
            .arg("CHANNELS")
            .query_async(&mut self.connection.clone())
            .await
            .expect("an answer");
        channels.len()
    }

    fn act(&self, act: impl FnOnce(&Redis) -> testbed::Result<()>) {
        tokio::task::block_in_place(|| act(&self.redis)).expect("the testbed can do that");
    }
}

async fn comes(subscription: &mut Subscription) {
    timeout(ARRIVES_WITHIN, subscription.next(LONG_WAIT)).await.expect("it is told to look again");
}

async fn is_quiet(subscription: &mut Subscription) {
    let told = timeout(QUIET_FOR, subscription.next(LONG_WAIT)).await;
    assert!(told.is_err(), "it is told although nothing has happened");
}

async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + ARRIVES_WITHIN;
    while !holds().await {
        assert!(Instant::now() < deadline, "not within {ARRIVES_WITHIN:?}: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_wakes_one_waiter_or_all_and_is_kept_for_a_waiter_that_asks() {
    let server = Server::start().await;
    let (mut first, mut second) = (server.live("a").await, server.live("a").await);
    is_quiet(&mut first).await;
    assert_eq!(server.send("a", WAKE_ONE).await, 1, "one subscription for both");
    // There is no waiter now, so the message is kept; then exactly one waiter takes it.
    eventually("the message is there", async || first.channel.wakes.available_permits() == 1).await;
    comes(&mut second).await;
    is_quiet(&mut first).await;

    // More messages than waiters have no taker. The one on `b` comes after them.
    let mut other = server.live("b").await;
    for _ in 0..5 {
        server.send("a", WAKE_ONE).await;
    }
    server.send("b", WAKE_ONE).await;
    comes(&mut other).await;
    comes(&mut first).await;
    comes(&mut second).await;
    is_quiet(&mut first).await;

    server.send("a", WAKE_ALL).await;
    comes(&mut first).await;
    comes(&mut second).await;
    is_quiet(&mut other).await;
    is_quiet(&mut first).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_waiter_leaves_its_message_to_the_next() {
    let server = Server::start().await;
    let (mut first, mut second) = (server.live("a").await, server.live("a").await);
    for _ in 0..20 {
        let mut going = Box::pin(first.next(LONG_WAIT));
        let pending = std::future::poll_fn(|context| {
            std::task::Poll::Ready(going.as_mut().poll(context).is_pending())
        });
        assert!(pending.await);
        // The first in the queue is given the message, but does not live to see it.
        server.send("a", WAKE_ONE).await;
        sleep(Duration::from_millis(2)).await;
        drop(going);
        comes(&mut second).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_ask_again_when_they_are_subscribed_again() {
    let server = Server::start().await;
    let mut waiter = server.live("a").await;
    for _ in 0..3 {
        assert_eq!(server.kill_connections().await, 1);
        comes(&mut waiter).await;
        assert_eq!(server.send("a", WAKE_ONE).await, 1, "it is subscribed again");
        comes(&mut waiter).await;
    }
    server.act(|redis| redis.restart());
    comes(&mut waiter).await;
    eventually("the other connection is back", async || {
        let sent: redis::RedisResult<usize> =
            server.connection.clone().publish("a", WAKE_ONE).await;
        sent.is_ok_and(|receivers| receivers == 1)
    })
    .await;
    comes(&mut waiter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_without_a_sign_of_life_is_made_again() {
    let server = Server::start().await;
    let mut waiter = server.live("a").await;
    server.act(|redis| redis.freeze());
    let told_at_most_after = PING_INTERVAL + RESPONSE_TIMEOUT + ARRIVES_WITHIN;
    let noticed = async {
        while waiter.is_live() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(told_at_most_after, noticed).await.expect("the silence is noticed");
    server.act(|redis| redis.thaw());
    comes(&mut waiter).await;
    assert!(waiter.is_live());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_costs_a_waiter_no_more_than_its_own_time() {
    let server = Server::start().await;
    server.act(|redis| redis.kill());
    let mut waiter = server.signals.subscribe("a");
    for _ in 0..3 {
        timeout(ARRIVES_WITHIN, waiter.next(Duration::from_millis(50)))
            .await
            .expect("it looks again");
        assert!(!waiter.is_live());
    }
    server.act(|redis| redis.restart());
    comes(&mut waiter).await;
    assert!(waiter.is_live());
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_channels_leave_no_entry_here_and_no_channel_there() {
    let server = Server::start().await;
    let subscriptions: Vec<_> =
        (0..10_000).map(|number| server.signals.subscribe(&format!("channel:{number}"))).collect();
    eventually("all are subscribed to", async || server.channels().await == 10_000).await;
    drop(subscriptions);
    eventually("none is subscribed to", async || server.channels().await == 0).await;
    assert_eq!(server.signals.channels(), 0);
    let line = server.signals.line("a");
    assert_eq!(line.table().queued(), 0, "nothing is left in a queue");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_is_kept_for_the_next_waiter_so_that_it_misses_nothing() {
    let server = Server::start().await;
    assert!(server.signals.join("a").is_none(), "it is not subscribed to yet");
    let mut other = server.live("b").await;
    let mut scenes = 0;
    let mut next = loop {
        scenes += 1;
        let gone = server.live("a").await;
        // One message comes before it goes, one after that, and the one on `b` after both.
        server.send("a", WAKE_ONE).await;
        let is_there = async || gone.channel.wakes.available_permits() == 1;
        eventually("the message is there", is_there).await;
        let went = Instant::now();
        drop(gone);
        server.send("a", WAKE_ONE).await;
        server.send("b", WAKE_ONE).await;
        comes(&mut other).await;
        if let Some(next) = server.signals.join("a") {
            break next;
        }
        // A busy machine may be too slow for it.
        let is_late = went.elapsed() >= UNSUBSCRIBE_DELAY;
        assert!(is_late && scenes < 10, "it is subscribed to no longer: {:?}", went.elapsed());
    };
    is_quiet(&mut next).await;
    let mut late = server.signals.subscribe("a");
    comes(&mut late).await;
    is_quiet(&mut late).await;
    for _ in 0..100 {
        drop(server.signals.subscribe("a"));
    }
    assert_eq!(server.send("a", WAKE_ALL).await, 1);
    comes(&mut next).await;
    drop((next, late, other));
    eventually("it is given up", async || server.signals.channels() == 0).await;
    server.signals.close();
    eventually("its connection is closed", async || server.kill_connections().await == 0).await;
}

#[tokio::test]
async fn a_channel_is_live_only_once_its_subscription_was_confirmed() {
    let mut table = SubscriptionTable::default();
    table.enter("a", || None);
    table.take(Instant::now());
    assert!(!table.is_live(b"a"), "the server has not said yes");
    table.answered(b"a");
    assert!(table.is_live(b"a"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_message_of_its_own_release_wakes_no_waiter_that_has_asked_since() {
    let server = Server::start().await;
    let mut waiter = server.live("a").await;
    let release = async || {
        let before = server.signals.releasing("a");
        let told = server.send("a", WAKE_ONE).await;
        server.signals.released("a", told as u64, before);
    };
    for _ in 0..3 {
        release().await;
        waiter.looks_now();
        is_quiet(&mut waiter).await;
        server.send("a", WAKE_ONE).await;
        comes(&mut waiter).await;
    }
    release().await;
    comes(&mut waiter).await;
    // It may be for another waiter, which has not looked.
    let _another = server.live("a").await;
    release().await;
    waiter.looks_now();
    comes(&mut waiter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_read_after_the_next_release_began_hides_no_message_but_its_own() {
    let server = Server::start().await;
    let mut waiter = server.live("a").await;
    let first = server.signals.releasing("a");
    let told = server.send("a", WAKE_ONE).await;
    comes(&mut waiter).await;
    // Other locks of this process had it meanwhile, and their release is on its way.
    let _second = server.signals.releasing("a");
    server.signals.released("a", told as u64, first);
    waiter.looks_now();
    is_quiet(&mut waiter).await;
    server.send("a", WAKE_ONE).await;
    comes(&mut waiter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_gives_way_until_another_has_held_the_lock_although_its_own_message_overtakes() {
    let server = Server::start().await;
    let waiter = server.live("a").await;
    let others = Signals::new(&server.connection);
    comes(&mut others.subscribe("a")).await;

    let before = server.signals.releasing("a");
    let told = server.send("a", WAKE_ONE).await;
    eventually("its own message came", async || !waiter.channel.has_only_heard(0)).await;
    server.signals.released("a", told as u64, before);
    assert_eq!(waiter.channel.looks(), 2, "twice for the only other one");
    server.send("a", WAKE_ONE).await;
    eventually("it is its turn", async || waiter.channel.looks() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_gives_way_once_for_each_other_that_has_not_held_the_lock_since() {
    let server = Server::start().await;
    let waiter = server.live("a").await;
    let others = [(); 2].map(|()| Signals::new(&server.connection));
    for other in &others {
        comes(&mut other.subscribe("a")).await;
    }
    let before = server.signals.releasing("a");
    let told = server.send("a", WAKE_ONE).await;
    server.signals.released("a", told as u64, before);
    for looks in [2, 1, 0] {
        eventually("so often", async || waiter.channel.looks() == looks).await;
        server.send("a", WAKE_ONE).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_its_own_that_was_lost_with_the_connection_hides_no_other() {
    let server = Server::start().await;
    let mut waiter = server.live("a").await;
    // It has released the lock and was told, and the message does not come any more.
    let before = server.signals.releasing("a");
    server.signals.released("a", 1, before);
    server.kill_connections().await;
    comes(&mut waiter).await;
    waiter.looks_now();
    server.send("a", WAKE_ONE).await;
    comes(&mut waiter).await;
}
