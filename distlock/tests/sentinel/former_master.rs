//! A server that is the master no longer, or is none yet, is not trusted.

use std::time::Duration;

use distlock::RedisServer;

use crate::group::{Group, Loss, grants};
use crate::support::redisson::Service;
use crate::support::{at_once, connect_with, eventually, fresh_name, patient};

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_former_master_is_sent_no_scripts() {
    let group = Group::start();
    let known = group.process().await;
    let (master, _) = group.lose_master(Loss::Killed);
    eventually("commands follow", async || grants(&group, &known, master).await).await;
    group.act(|group| group.nodes()[0].restart());
    assert!(group.ask(0, &["ROLE"]).starts_with("master"), "it does not know better yet");
    let new = group.process().await;
    for service in [&known, &new] {
        eventually("it is granted", async || grants(&group, service, master).await).await;
    }
    let stats = group.ask(0, &["INFO", "commandstats"]);
    assert!(!stats.contains("cmdstat_eval"), "it was asked: {stats}");
    group.act(|group| group.await_demotion(0));
    for service in [&known, &new] {
        eventually("it is granted", async || grants(&group, service, master).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_old_master_answers_late_is_not_believed() {
    let group = Group::start();
    // Answers are awaited for longer than the failover takes.
    let slow = Service::on(connect_with(&group.sentinel.url(), Duration::from_secs(20)).await);
    eventually("it is granted", async || grants(&group, &slow, 0).await).await;
    group.act(|group| group.nodes()[0].freeze());
    let name = fresh_name();
    let taking = tokio::spawn({
        let (locks, name) = (slow.locks.clone(), name.clone());
        async move { locks.lock(&name, &patient()).await }
    });
    let (master, _) = group.act(|group| group.await_promotion(0));
    eventually("commands follow", async || grants(&group, &slow, master).await).await;
    group.act(|group| group.nodes()[0].thaw());
    let guard = taking.await.expect("no panic").expect("the lock");
    assert!(group.has(master, &name), "the old master granted it");
    guard.release().await.expect("a release");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_the_sentinels_take_for_the_master_is_refused() {
    let group = Group::start();
    let service = group.process().await;
    eventually("it is granted", async || grants(&group, &service, 0).await).await;
    for sentinel in group.sentinel.sentinels() {
        group.act(|_| sentinel.freeze());
    }
    let other = group.sentinel.nodes()[1].addr();
    group.ask(1, &["REPLICAOF", "NO", "ONE"]);
    group.ask(0, &["REPLICAOF", &other.ip().to_string(), &other.port().to_string()]);
    let refused = service.locks.lock(&fresh_name(), &at_once()).await;
    let said = refused.expect_err("it is a replica").to_string();
    assert!(said.contains("0 of 3 sentinels name the master"), "{said}");
    for sentinel in group.sentinel.sentinels() {
        group.act(|_| sentinel.thaw());
    }
    let refused = RedisServer::open(&group.sentinel.url()).await.err().map(|why| why.to_string());
    let expected = "says that it is no master";
    assert!(refused.as_ref().is_some_and(|why| why.contains(expected)), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn less_than_half_of_the_sentinels_name_no_master_and_end_no_connection() {
    let group = Group::start();
    let known = group.process().await;
    for sentinel in &group.sentinel.sentinels()[1..] {
        group.act(|_| sentinel.kill());
    }
    let refused = RedisServer::open(&group.sentinel.url()).await.err().map(|why| why.to_string());
    let expected = "1 of 3 sentinels name the master";
    assert!(refused.as_ref().is_some_and(|why| why.contains(expected)), "{refused:?}");
    tokio::time::sleep(Duration::from_millis(600)).await;
    eventually("its connection is good", async || grants(&group, &known, 0).await).await;
}
