//! A half-open connection for commands: all that is sent on it is lost, and it is never closed.

use std::time::{Duration, Instant};

use crate::support::redisson::{OwnServer, Service, kept};
use crate::support::{
    LONG, assert_released, at_once, but_for_one_standstill, connect_hasty, eventually, fresh_name,
    granted, locks_by, locks_of, patient,
};
use distlock::{
    Backends, Guard, LockKind, Locks, RedisConnection, RedisServer, Redlock, Release, locker,
};
use testbed::Direction;
use tokio::task::JoinSet;

const KINDS: [LockKind; 10] = [
    LockKind::SetnxExpire,
    LockKind::SetNx,
    LockKind::OwnerCheck,
    LockKind::LuaRelease,
    LockKind::GetsetTimestamp,
    LockKind::Reentrant,
    LockKind::Redisson,
    LockKind::Fair,
    LockKind::ReadWrite,
    LockKind::Multi,
];

/// For what must come.
const DEADLINE: Duration = Duration::from_secs(10);

fn url(own: &OwnServer) -> String {
    own.proxy.instead_of(own.redis.addr(), own.redis.url())
}

/// From now on nothing arrives on the connections that there are; others are as good as ever.
async fn make_half_open(own: &OwnServer, connection: &RedisConnection) {
    own.proxy.set_swallowing(Direction::Both, true);
    let lost = redis::cmd("PING").exec_async(&mut connection.clone()).await;
    assert!(lost.is_err_and(|error| error.is_timeout()), "it is not half open");
    own.proxy.set_swallowing(Direction::Both, false);
}

/// Where the sockets begin that are connected to that port.
fn sockets_to(port: u16) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/net/tcp").expect("Linux");
    let begin = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let here = fields.next()?;
        let there = fields.next()?.ends_with(&format!(":{port:04X}"));
        (there && fields.next() == Some("01")).then(|| here.to_owned())
    };
    table.lines().filter_map(begin).collect()
}

async fn takes_and_releases(locks: &Locks) -> bool {
    match locks.lock(&fresh_name(), &at_once()).await {
        Ok(guard) => guard.release().await.is_ok_and(|release| release == Release::Released),
        Err(_) => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_gets_another_connection_and_one_only() {
    let own = OwnServer::start();
    for kind in KINDS {
        let server = connect_hasty(&url(&own)).await;
        let mut backends = Backends { redis: Some(server.clone()), ..Backends::default() };
        backends.independent_redis.push(server.clone());
        let locks = Locks::new(locker(kind, &backends).expect("a locker"));
        // A server that stands still for a moment costs another connection.
        but_for_one_standstill(async || {
            eventually("it is there", async || takes_and_releases(&locks).await).await;
            let before = own.proxy.counts().connections;
            make_half_open(&own, &server.connection()).await;
            eventually("it is taken and released", async || takes_and_releases(&locks).await).await;
            let made = own.proxy.counts().connections - before;
            if made == 1 { Ok(()) } else { Err(format!("{kind}: {made} connections were made")) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_server_of_redlock_gets_another_connection() {
    let owns = [OwnServer::start(), OwnServer::start(), OwnServer::start()];
    let mut servers = Vec::new();
    for own in &owns {
        servers.push(connect_hasty(&url(own)).await);
    }
    let locks = locks_by(Redlock::new(&servers).expect("three servers"));
    eventually("all are there", async || takes_and_releases(&locks).await).await;
    for (own, server) in owns.iter().zip(&servers) {
        make_half_open(own, &server.connection()).await;
    }
    eventually("it is taken and released", async || takes_and_releases(&locks).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_renewed_outlives_the_connection_of_its_renewals() {
    let own = OwnServer::start();
    let (service, raw, name) = (own.hasty().await, own.raw().await, fresh_name());
    let lease = Duration::from_secs(9);
    let guard = granted(&service.locks, &name, &kept(Duration::ZERO, lease)).await;
    make_half_open(&own, &service.server.connection()).await;
    let began = Instant::now();
    // Longer than the lease: without renewals it would be gone.
    eventually_within(lease * 2, "it is renewed", async || {
        began.elapsed() > lease && raw.lease(&name).await.is_some_and(|left| left > lease / 2)
    })
    .await;
    assert!(!guard.is_lost());
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_make_one_connection_and_the_silent_one_is_closed() {
    // A server that stands still for a moment costs another connection.
    but_for_one_standstill(async || {
        let own = OwnServer::start();
        let server = connect_hasty(&url(&own)).await;
        let locks = locks_of(LockKind::LuaRelease, server.clone());
        let (before, port) = (own.proxy.counts().connections, own.proxy.addr().port());
        let silent = sockets_to(port);
        assert_eq!(silent.len(), 1);
        make_half_open(&own, &server.connection()).await;
        let mut tasks = JoinSet::new();
        for _ in 0..50 {
            let locks = locks.clone();
            tasks.spawn(async move { while !takes_and_releases(&locks).await {} });
        }
        tokio::time::timeout(DEADLINE, tasks.join_all()).await.expect("all get their locks");
        let made = own.proxy.counts().connections - before;
        eventually("the silent one is closed", async || {
            let sockets = sockets_to(port);
            sockets.len() == 1 && sockets != silent
        })
        .await;
        if made == 1 { Ok(()) } else { Err(format!("{made} connections were made")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_no_connection_is_answered_few_are_made() {
    let own = OwnServer::start();
    let server = connect_hasty(&url(&own)).await;
    let locks = locks_of(LockKind::LuaRelease, server.clone());
    let before = own.proxy.counts().connections;
    own.proxy.set_swallowing(Direction::Both, true);
    let (began, mut tasks) = (Instant::now(), JoinSet::new());
    for _ in 0..50 {
        let locks = locks.clone();
        tasks.spawn(async move {
            while began.elapsed() < Duration::from_secs(6) {
                assert!(!takes_and_releases(&locks).await, "nothing arrives");
            }
        });
    }
    tasks.join_all().await;
    let made = own.proxy.counts().connections - before;
    // A look tries twice, and the next one comes after a pause.
    assert!((1..=10).contains(&made), "{made} connections");
    own.proxy.set_swallowing(Direction::Both, false);
    eventually("it is taken and released", async || takes_and_releases(&locks).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_keeps_the_connection_on_which_it_was_asked() {
    let own = OwnServer::start();
    let server = connect_hasty(&url(&own)).await;
    let locks = locks_of(LockKind::LuaRelease, server.clone());
    let before = sockets_to(own.proxy.addr().port());
    own.act(|redis| redis.freeze());
    let (began, tried) = (Instant::now(), || own.proxy.counts().connections > 1);
    while began.elapsed() < Duration::from_secs(3) || !tried() {
        assert!(!takes_and_releases(&locks).await, "the server hangs");
        assert!(began.elapsed() < DEADLINE, "no other connection was tried");
    }
    let kept = sockets_to(own.proxy.addr().port());
    assert!(kept.contains(&before[0]), "what was sent on it would come after what is sent now");
    own.act(|redis| redis.thaw());
    eventually("it is taken and released", async || takes_and_releases(&locks).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_and_messages_both_arrive_again() {
    let own = OwnServer::start();
    let (holder, waiter) = (Service::at(own.redis.url()).await, own.hasty().await);
    hand_over(&holder, &waiter).await;
    // The connection for messages loses the next sign of life that it asks for.
    own.proxy.set_swallowing(Direction::Both, true);
    let swallowed = own.proxy.counts().swallowed_to_server;
    let silenced = async || own.proxy.counts().swallowed_to_server > swallowed;
    eventually("its PING is lost", silenced).await;
    make_half_open(&own, &waiter.server.connection()).await;
    eventually("it is taken and released", async || takes_and_releases(&waiter.locks).await).await;
    eventually("a message wakes it", async || {
        hand_over(&holder, &waiter).await < Duration::from_millis(250)
    })
    .await;
}

/// From the release by one to the hold by the other, who waits.
async fn hand_over(holder: &Service, waiter: &Service) -> Duration {
    let name = fresh_name();
    let hold: Guard = holder.locks.lock(&name, &at_once()).await.expect("the lock");
    let (locks, wanted) = (waiter.locks.clone(), name.clone());
    let waiting = tokio::spawn(async move {
        let guard = granted(&locks, &wanted, &patient()).await;
        let got = Instant::now();
        assert_released(guard.release().await, "the waiter");
        got
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let released = Instant::now();
    hold.release().await.expect("a release");
    waiting.await.expect("no panic").saturating_duration_since(released)
}

async fn eventually_within(limit: Duration, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < limit.min(LONG), "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A connection that is not there yet is made with the first command.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_made_later_is_replaced_as_well() {
    let own = OwnServer::start();
    let config = redis::aio::ConnectionManagerConfig::new();
    let connection = RedisConnection::connect_lazily(&*url(&own), config).expect("a connection");
    let locks = locks_of(LockKind::SetNx, RedisServer::new(connection.clone()));
    assert_eq!(own.proxy.counts().connections, 0);
    eventually("it is there", async || takes_and_releases(&locks).await).await;
    make_half_open(&own, &connection).await;
    eventually("it is taken and released", async || takes_and_releases(&locks).await).await;
}
