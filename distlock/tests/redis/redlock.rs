//! `redlock`: a majority of five real, independent servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::ran::ran;
use crate::support::{
    LONG, Look, assert_busy, assert_released, at_once, but_for_one_standstill, connect, eventually,
    fresh_name, granted, options, patient,
};
use distlock::{Lease, LockError, LockOptions, Locks, LossCause, Redlock, Release};
use testbed::{Action, Bed, Command, Direction, Proxy, Redis, RedisOptions, Times};

fn five() -> (Bed, Vec<Redis>) {
    let bed = Bed::start().expect("a private bed");
    let servers = bed.redis_many(5, RedisOptions::default()).expect("Redis is installed");
    (bed, servers)
}

/// What is another process as far as the servers can see.
async fn redlock(servers: &[Redis]) -> Redlock {
    let mut connections = Vec::new();
    for server in servers {
        connections.push(connect(server.url()).await);
    }
    Redlock::new(&connections).expect("five servers")
}

async fn locks(servers: &[Redis]) -> Locks {
    Locks::new(Arc::new(redlock(servers).await))
}

/// How many scripts the server has run.
async fn count_scripts(server: &Redis) -> u64 {
    let mut connection = connect(server.url()).await.connection();
    let info = redis::cmd("INFO").arg("commandstats").to_owned();
    let info: String = info.query_async(&mut connection).await.expect("an answer");
    let calls = info.split("cmdstat_eval:calls=").nth(1).and_then(|rest| rest.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

fn renewed(lease: Duration) -> LockOptions {
    LockOptions::new(Duration::ZERO, Lease::Renewed(lease))
}

#[tokio::test]
async fn two_of_five_servers_may_be_dead_and_three_may_not() {
    let (_bed, servers) = five();
    let (one, other) = (locks(&servers).await, locks(&servers).await);
    let name = fresh_name();
    servers[0].kill().expect("a kill");
    servers[3].kill().expect("a kill");
    // Three of five are a majority, and each of them has to answer.
    let guard = granted(&one, &name, &at_once()).await;
    assert_busy(&other, &name, &at_once(), "three of five").await;
    assert_released(guard.release().await, "by three of five");
    one.flush().await;
    let guard = granted(&other, &name, &patient()).await;
    assert_released(guard.release().await, "by three of five");
    servers[4].kill().expect("a kill");
    let refused = one.lock(&name, &at_once()).await.expect_err("two of five are not");
    assert!(matches!(&refused, LockError::Backend(why) if why.contains("2 of 5")), "{refused}");
    one.flush().await;
    // Nor are they if they say that another owner has it.
    for number in [1, 2] {
        Look::at(servers[number].url()).await.set(&name, "somebody").await;
    }
    let refused = one.lock(&name, &at_once()).await.expect_err("two of five are not");
    assert!(matches!(&refused, LockError::Backend(why) if why.contains("2 of 5")), "{refused}");
    one.flush().await;
    for number in [1, 2] {
        Look::at(servers[number].url()).await.delete(&name).await;
    }
    for number in [1, 2] {
        let look = Look::at(servers[number].url()).await;
        assert_eq!(look.owner(&name).await, None, "what was taken is given back");
    }
}

#[tokio::test]
async fn after_a_wait_the_owner_of_the_guard_is_that_on_the_servers() {
    let (_bed, servers) = five();
    let (holder, waiter) = (locks(&servers).await, locks(&servers).await);
    let name = fresh_name();
    let guard = granted(&holder, &name, &at_once()).await;
    let before = count_scripts(&servers[0]).await;
    let waiting = tokio::spawn({
        let (waiter, name) = (waiter.clone(), name.clone());
        async move { waiter.lock(&name, &patient()).await }
    });
    // Each attempt that finds it busy runs two: to take it, and to give it back.
    let has_tried = async || count_scripts(&servers[0]).await >= before + 3;
    eventually("it has made an attempt", has_tried).await;
    assert_released(guard.release().await, "by the holder");
    let guard = waiting.await.expect("no panic").expect("the lock");
    let state = waiter.inspect(&name).await.expect("an answer").state;
    let owners: Vec<_> = state.holders().iter().map(|holder| holder.id.as_str()).collect();
    assert_eq!(owners, [guard.owner().as_str()]);
    assert_released(guard.release().await, "by the waiter");
}

#[tokio::test]
async fn a_server_that_does_not_answer_costs_no_time_out() {
    let (_bed, servers) = five();
    let locks = locks(&servers).await;
    but_for_one_standstill(async || {
        let name = fresh_name();
        servers[2].freeze().expect("a stop");
        let since = ran();
        let guard = granted(&locks, &name, &at_once()).await;
        assert_released(guard.release().await, "by four of five");
        // One time-out would be half a second, for a lease of a minute.
        let took = ran().saturating_sub(since);
        // What it was sent, it carries out later: the lock, and its release.
        servers[2].thaw().expect("a continue");
        let look = Look::at(servers[2].url()).await;
        eventually("it has released", async || look.owner(&name).await.is_none()).await;
        if took < Duration::from_millis(500) { Ok(()) } else { Err(format!("{took:?}")) }
    })
    .await;
}

#[tokio::test]
async fn a_server_that_is_always_the_slowest_is_not_taken_for_silent() {
    let (_bed, servers) = five();
    let proxy = Proxy::before(servers[4].addr()).expect("a proxy");
    let mut ways = Vec::new();
    for server in &servers[..4] {
        ways.push(connect(server.url()).await);
    }
    ways.push(connect(&proxy.instead_of(servers[4].addr(), servers[4].url())).await);
    let locks = Locks::new(Arc::new(Redlock::new(&ways).expect("five")));
    proxy.set_latency(Direction::Both, Duration::from_millis(20), Duration::ZERO);
    // A server that stands still for a moment is silent, or its lock is lost.
    but_for_one_standstill(async || {
        let connections = proxy.counts().connections;
        let renewals = proxy.watch(Command::redis("EVAL").containing("PEXPIRE"));
        let guard = granted(&locks, &fresh_name(), &renewed(Duration::from_millis(600))).await;
        let has_ended = async || renewals.matched() > 10 || guard.is_lost();
        eventually("it was renewed ten times", has_ended).await;
        let (made, is_lost) = (proxy.counts().connections - connections, guard.is_lost());
        let end = guard.release().await;
        match (made, is_lost, &end) {
            (0, false, Ok(Release::Released)) => Ok(()),
            _ => Err(format!("{made} connections were made, lost: {is_lost}, {end:?}")),
        }
    })
    .await;
}

#[tokio::test]
async fn leftovers_of_a_failed_attempt_do_not_block_the_next_one() {
    let (_bed, servers) = five();
    let (one, other) = (locks(&servers).await, locks(&servers).await);
    let name = fresh_name();
    for server in &servers[..3] {
        server.freeze().expect("a stop");
    }
    assert!(matches!(one.lock(&name, &at_once()).await, Err(LockError::Backend(_))));
    for server in &servers[..3] {
        server.thaw().expect("a continue");
    }
    one.flush().await;
    let options = options(Duration::from_secs(10), LONG);
    // A lease of the failed attempt would last longer than this waits.
    let guard = granted(&other, &name, &options).await;
    assert_released(guard.release().await, "nothing was left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_release_frees_nothing_that_was_taken_since() {
    let bed = Bed::start().expect("a private bed");
    let servers = bed.redis_many(3, RedisOptions::default()).expect("Redis is installed");
    let mut views = Vec::new();
    for server in &servers {
        views.push(Look::at(server.url()).await);
    }
    let proxy = Proxy::before(servers[2].addr()).expect("a proxy");
    let url = proxy.instead_of(servers[2].addr(), servers[2].url());
    let mut ways = Vec::new();
    for url in [servers[0].url(), servers[1].url(), &url] {
        ways.push(connect(url).await);
    }
    let (locks, name) = (Locks::new(Arc::new(Redlock::new(&ways).expect("three"))), fresh_name());
    for look in &views[..2] {
        look.set(&name, "somebody").await;
    }
    let connections = proxy.counts().connections;
    let release = Command::redis("EVAL").containing("free a lock, but only");
    let late = proxy.arm(release, Action::HoldRequest, Times::Next(1));
    let waiting = tokio::spawn({
        let (locks, name) = (locks.clone(), name.clone());
        async move { locks.lock(&name, &patient()).await }
    });
    eventually("it asks on another connection", async || {
        late.fired() == 1 && proxy.counts().connections > connections
    })
    .await;
    // What the attempt before took here ends, and another server comes free.
    views[2].delete(&name).await;
    views[0].delete(&name).await;
    let guard = waiting.await.expect("no panic").expect("two of three");
    let owner = views[2].owner(&name).await;
    assert!(owner.is_some(), "it needs this one");
    let before = evals(&views[2]).await;
    late.release();
    eventually("the late release is carried out", async || evals(&views[2]).await > before).await;
    assert_eq!(views[2].owner(&name).await, owner, "it was freed under its holder");
    assert_released(guard.release().await, "by two of three");
    // A server that was late with its answer frees it a moment later.
    for (look, left) in views.iter().zip([None, Some("somebody"), None]) {
        let is_left = async || look.owner(&name).await.as_deref() == left;
        eventually("its holder has freed it, and no other", is_left).await;
    }
}

/// How many scripts a server has been sent as text.
async fn evals(look: &Look) -> u64 {
    let (mut info, mut connection) = (redis::cmd("INFO"), look.connection());
    let info = info.arg("commandstats").query_async::<String>(&mut connection).await;
    let info = info.expect("an answer");
    let calls = info.lines().find_map(|line| line.strip_prefix("cmdstat_eval:calls="));
    let calls = calls.and_then(|calls| calls.split(',').next()?.parse().ok());
    calls.unwrap_or_default()
}

#[tokio::test]
async fn a_majority_that_answers_too_late_is_no_lock() {
    let (_bed, servers) = five();
    let locks = locks(&servers).await;
    let short = LockOptions::new(Duration::ZERO, Lease::Fixed(Duration::from_millis(40)));
    for server in &servers[..3] {
        server.freeze().expect("a stop");
    }
    let refused = locks.lock(&fresh_name(), &short).await;
    assert!(matches!(refused, Err(LockError::Backend(_))), "an expired lock was given out");
    for server in &servers {
        server.thaw().expect("a continue");
    }
}

#[tokio::test]
async fn a_majority_renews_and_a_majority_that_forgot_is_loss() {
    let (_bed, servers) = five();
    let (one, other) = (locks(&servers).await, locks(&servers).await);
    let name = fresh_name();
    let lease = Duration::from_millis(4500);
    let guard = granted(&one, &name, &renewed(lease)).await;
    servers[0].kill().expect("a kill");
    servers[1].kill().expect("a kill");
    let until = Instant::now() + 2 * lease;
    while Instant::now() < until {
        assert!(!guard.is_lost());
        let refused = other.lock(&name, &renewed(lease)).await;
        // Busy, or on a crowded machine no answer in time.
        assert!(refused.is_err(), "two hold it");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let since = Instant::now();
    servers[2].kill().expect("a kill");
    assert_eq!(guard.lost().await, LossCause::Expired, "two of five cannot renew");
    // The exact delay is measured where nothing else runs (conformance, validity).
    assert!(since.elapsed() < 2 * lease, "{:?}", since.elapsed());
    for server in &servers[..3] {
        server.restart().expect("a start");
    }
    // Three are empty: the next caller gets a majority; the late holder is told.
    let deadline = Instant::now() + Duration::from_secs(10);
    let successor = loop {
        match other.lock(&name, &at_once()).await {
            Ok(guard) => break guard,
            Err(error) => assert!(Instant::now() < deadline, "no new majority: {error}"),
        }
    };
    assert!(!matches!(guard.release().await, Ok(Release::Released)));
    assert!(!successor.is_lost());
}

#[tokio::test]
async fn a_release_of_an_owner_that_only_a_minority_stores_is_no_release() {
    let (_bed, servers) = five();
    let (locks, name) = (locks(&servers).await, fresh_name());
    for round in 0..10 {
        // A busy machine may be too slow for an answer.
        eventually("an answer", async || {
            let guard = granted(&locks, &name, &at_once()).await;
            for server in servers.iter().cycle().skip(round).take(3) {
                Look::at(server.url()).await.set(&name, "somebody").await;
            }
            let released = guard.release().await;
            locks.flush().await;
            for server in &servers {
                Look::at(server.url()).await.delete(&name).await;
            }
            assert!(matches!(released, Ok(Release::HeldByOther) | Err(LockError::Backend(_))));
            released.is_ok()
        })
        .await;
    }
}

#[tokio::test]
async fn a_server_that_restarted_empty_stays_out_for_the_delay_that_was_set() {
    let (_bed, servers) = five();
    let delay = Duration::from_millis(1500);
    let locks = Locks::new(Arc::new(redlock(&servers).await.with_restart_delay(delay)));
    let name = fresh_name();
    let since = Instant::now();
    let patient = options(Duration::from_secs(20), LONG);
    let guard = locks.lock(&name, &patient).await.expect("the lock, in the end");
    assert!(since.elapsed() >= delay, "{:?}", since.elapsed());
    guard.release().await.expect("a release");
    // They are known by now.
    let guard = granted(&locks, &name, &at_once()).await;
    assert_released(guard.release().await, "by all");
    locks.flush().await;
    for server in &servers[..3] {
        server.restart().expect("a restart");
    }
    let refused = locks.lock(&name, &options(Duration::from_millis(300), LONG)).await;
    assert!(refused.is_err(), "a majority came up empty and counts for nothing yet");
}

#[tokio::test]
async fn a_script_changes_nothing_when_an_argument_is_missing_or_wrong() {
    let (_bed, servers) = five();
    let look = Look::at(servers[0].url()).await;
    let acquire = include_str!("../../lua/redlock_acquire.lua");
    let counts = include_str!("../../lua/redlock_counts.lua");
    let mut calls: Vec<(&str, &[&str], Vec<&str>)> = Vec::new();
    for wrong in ["", "x", "-1", "1.5", "1e300", "nan", "inf", "1 ms"] {
        calls.push((acquire, &["lock", "since"], vec!["owner", wrong, "0"]));
        calls.push((acquire, &["lock", "since"], vec!["owner", "60000", wrong]));
        calls.push((counts, &["since"], vec![wrong]));
    }
    for args in [vec![], vec!["owner"], vec!["owner", "1"], vec!["", "1", "1"], vec!["o"; 4]] {
        calls.push((acquire, &["lock", "since"], args));
    }
    calls.extend([(acquire, &["lock"][..], vec!["owner", "1", "1"]), (counts, &[], vec!["1"])]);
    calls.extend([(counts, &["since"][..], vec![]), (counts, &["since"], vec!["1", "1"])]);
    for (text, keys, args) in calls {
        let mut call = redis::cmd("EVAL");
        call.arg(text).arg(keys.len()).arg(keys).arg(&args);
        let answer = call.query_async::<i64>(&mut look.connection()).await;
        let refusal = answer.expect_err("it is wrong").to_string();
        assert!(refusal.contains("redlock_"), "{args:?}: {refusal}");
    }
    assert_eq!(servers[0].command(&["DBSIZE"]).expect("a count").trim(), "0");
}
