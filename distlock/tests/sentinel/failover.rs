//! A failover is followed by holders, waiters and newcomers.

use std::time::Duration;

use distlock::Release;
use testbed::{RedisOptions, SentinelOptions, Stopwatch};

use crate::group::{FOLLOWS_WITHIN, Group, Loss, follows, grants};
use crate::support::redisson::{Service, channel, kept};
use crate::support::{at_once, but_for_one_standstill, eventually, fresh_name, patient};

/// Longer than a failover whose first election fails; renewed every 5 s.
const LEASE: Duration = Duration::from_secs(15);
/// A waiter that gets no message looks again after this.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn holder_waiter_and_newcomer_follow_a_failover_within_two_seconds() {
    for loss in [Loss::Killed, Loss::Frozen, Loss::Replaced] {
        but_for_one_standstill(async || follow_in_time(loss).await).await;
    }
}

async fn follow_in_time(loss: Loss) -> Result<(), String> {
    let group = Group::start();
    let (holder, waiter) = (group.process().await, group.process().await);
    let (name, bystander) = (fresh_name(), group.process().await);
    let channel = channel(&name);
    let held = holder.locks.lock(&name, &kept(Duration::ZERO, LEASE)).await.expect("the lock");
    eventually("both replicas have it", async || {
        [1, 2].into_iter().all(|replica| group.has(replica, &name))
    })
    .await;
    let awaited = name.clone();
    let waiting =
        tokio::spawn(
            async move { waiter.locks.lock(&awaited, &patient()).await.expect("the lock") },
        );
    eventually("it waits", async || group.subscribers(0, &channel) == 1).await;
    let (master, promoted) = group.lose_master(loss);
    let commands = async || grants(&group, &bystander, master).await;
    let commands = follows("commands follow", promoted, commands).await;
    let messages = async || group.subscribers(master, &channel) == 1;
    let messages = follows("messages follow", promoted, messages).await;
    println!("{loss:?}: followed {messages:?} after the promotion");
    let ms_left = || group.ask(master, &["PTTL", name.as_str()]).parse().unwrap_or(0_u64);
    let before = ms_left();
    eventually("the hold is renewed there", async || ms_left() > before).await;
    assert!(!held.is_lost() && !waiting.is_finished(), "{loss:?}: two have it");
    let released = Stopwatch::start();
    assert_eq!(held.release().await.expect("a release"), Release::Released, "{loss:?}");
    let guard = waiting.await.expect("no panic");
    let took = released.elapsed();
    assert_eq!(guard.release().await.expect("a release"), Release::Released, "{loss:?}");
    let is_in_time = commands.max(messages) < FOLLOWS_WITHIN && took < POLL_INTERVAL / 2;
    let why = format!("{loss:?}: {commands:?} and {messages:?}; handed over after {took:?}");
    if is_in_time { Ok(()) } else { Err(why) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_forgets_what_no_replica_has_and_nothing_that_all_confirmed() {
    let group = Group::start();
    let (first, second, confirmed) =
        (group.process().await, group.process().await, group.confirmed().await);
    let survivor = fresh_name();
    let kept_lock = confirmed.locks.lock(&survivor, &at_once()).await.expect("the lock");
    // The replicas get nothing more.
    for replica in [1, 2] {
        group.ask(replica, &["CONFIG", "SET", "masterauth", "wrong"]);
    }
    group.ask(0, &["CLIENT", "KILL", "TYPE", "replica"]);
    let (name, other) = (fresh_name(), fresh_name());
    let refused = confirmed.locks.lock(&other, &at_once()).await;
    assert!(refused.is_err(), "no replica can confirm it");
    let held = first.locks.lock(&name, &kept(Duration::ZERO, LEASE)).await.expect("the lock");
    let (master, _) = group.lose_master(Loss::Killed);
    let mut again = None;
    eventually("it is granted again", async || {
        again = second.locks.lock(&name, &at_once()).await.ok();
        again.is_some()
    })
    .await;
    assert!(second.locks.lock(&survivor, &at_once()).await.is_err(), "it was confirmed");
    assert!(group.has(master, &survivor) && !kept_lock.is_lost());
    assert!(group.has(master, &name) && !held.validity().has_ended(), "two hold it for a time");
    eventually("the first one learns it", async || held.is_lost()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_with_a_password_and_with_tls_are_asked() {
    let guarded = Group::with(SentinelOptions { guarded: true, ..SentinelOptions::default() });
    let service = guarded.process().await;
    eventually("a lock is granted", async || grants(&guarded, &service, 0).await).await;
    let redis = RedisOptions { tls: true, ..RedisOptions::default() };
    let group = Group::with(SentinelOptions { redis, guarded: true });
    let ca = std::fs::read(group.sentinel.nodes()[0].ca_path().expect("TLS")).expect("a file");
    let url = group.sentinel.url();
    let address = distlock::RedisAddress { url: &url, ca: Some(&ca) };
    let config = redis::aio::ConnectionManagerConfig::new();
    let connection = distlock::RedisConnection::connect_lazily(address, config);
    let service = Service::on(distlock::RedisServer::new(connection.expect("an address")));
    eventually("a lock is granted", async || grants(&group, &service, 0).await).await;
    let (master, _) = group.lose_master(Loss::Killed);
    eventually("commands follow", async || grants(&group, &service, master).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_with_too_many_clients_still_serves_those_it_has() {
    let group = Group::start();
    let service = group.process().await;
    eventually("it is granted", async || grants(&group, &service, 0).await).await;
    // The connections that are there stay, and a second one of this process is closed at once.
    group.ask(0, &["CONFIG", "SET", "maxclients", "1"]);
    let config = redis::AsyncConnectionConfig::new();
    let refused = service.server.connection().own("any", &config).await;
    assert!(refused.is_err_and(|failure| failure.is_connection_dropped()));
    let name = fresh_name();
    let guard = service.locks.lock(&name, &at_once()).await.expect("the lock");
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
}
