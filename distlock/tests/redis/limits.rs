//! What is refused before a server is asked.

use std::time::Duration;

use crate::support::{LONG, connect, eventually, fresh_name, locks_of, options, server};
use distlock::{Lease, LockError, LockKind, LockName, LockOptions};
use testbed::{Command, Direction, Proxy};

#[tokio::test]
async fn a_lease_that_two_round_trips_would_eat_up_is_refused_without_asking() {
    let redis = server();
    let proxy = Proxy::before(redis.addr()).expect("a proxy");
    let url = proxy.instead_of(redis.addr(), redis.url());
    let locks = locks_of(LockKind::LuaRelease, connect(&url).await);
    proxy.set_latency(Direction::Both, Duration::from_millis(20), Duration::ZERO);
    for _ in 0..2 {
        let lock = locks.lock(&fresh_name(), &options(Duration::ZERO, LONG)).await;
        lock.expect("the lock").release().await.expect("a release");
    }
    let asked = proxy.watch(Command::redis(""));
    let short = options(Duration::ZERO, Duration::from_millis(70));
    match locks.lock(&fresh_name(), &short).await {
        Err(LockError::BadRequest { field: "lease", limit }) => {
            assert!(limit.contains("round trip"), "{limit}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(asked.matched(), 0);
    let long_enough = locks.lock(&fresh_name(), &options(Duration::ZERO, LONG)).await;
    long_enough.expect("the lock").release().await.expect("a release");
    assert!(asked.matched() > 0);

    proxy.set_latency(Direction::Both, Duration::ZERO, Duration::ZERO);
    eventually("a server that was slow is given another chance", async || {
        locks.lock(&fresh_name(), &short).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn bad_input_is_refused_with_its_field_and_its_limit() {
    let locks = locks_of(LockKind::LuaRelease, connect(server().url()).await);
    let hour = Duration::from_hours(1);
    let fixed = |wait, lease| LockOptions::new(wait, Lease::Fixed(lease));
    let bad = [
        (fixed(Duration::ZERO, Duration::ZERO), "lease: must be 10 ms to a day, is 0 ms"),
        (fixed(Duration::ZERO, 25 * hour), "lease: must be 10 ms to a day, is 90000000 ms"),
        (fixed(25 * hour, hour), "wait: must be at most a day, is 90000 s"),
        (
            LockOptions::new(hour, Lease::Renewed(hour)),
            "lease: must be fixed: this kind renews nothing",
        ),
        (
            LockOptions { max_hold: Some(Duration::ZERO), ..fixed(hour, hour) },
            "max_hold: must be 10 ms to a day",
        ),
        (
            LockOptions { max_hold: Some(Duration::MAX), ..fixed(hour, hour) },
            "max_hold: must be 10 ms to a day",
        ),
        (
            fixed(hour, hour).fenced(),
            "the lock kind needs another kind: this one has no fencing token",
        ),
    ];
    for (options, sentence) in bad {
        let refused = locks.lock(&fresh_name(), &options).await.expect_err("bad input");
        assert_eq!(refused.to_string(), sentence);
    }
    assert!(LockName::new("a\tb").is_err());
}
