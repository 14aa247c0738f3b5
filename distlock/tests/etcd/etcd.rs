//! `etcd` on a server that works: keys, places, tokens, and what is left behind.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{
    LONG, SHORT, assert_busy, await_queue, etcdctl, eventually, fresh_name, lock, locks, locks_at,
    options, queue, release, server, wait_for,
};
use distlock::{EtcdServer, LockError, LockName, LockState, Release, RemainingLease};
use testbed::Bed;
use tokio::task::block_in_place;

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_those_of_the_package_concurrency_and_tokens_their_create_revisions() {
    let (locks, name) = (locks(), fresh_name());
    let guard = lock(&locks, &name).await;
    let keys = queue(&name);
    let [key] = keys.as_slice() else { panic!("{keys:?}") };
    let lease = key.strip_prefix(&format!("{name}/")).expect("below its name");
    let token = guard.token().expect("a token").0;
    let json = etcdctl(server(), &["get", "-w=json", key]);
    assert!(json.contains(&format!("\"create_revision\":{token},")), "{json}");
    let shown = etcdctl(server(), &["lease", "timetolive", "--keys", lease]);
    assert!(shown.contains("granted with TTL(29s)") && shown.contains(key), "{shown}");
    release(guard).await;
    let leases = etcdctl(server(), &["lease", "list"]);
    assert!(queue(&name).is_empty() && !leases.contains(lease), "{leases}");
}

/// A process that holds the lock, or waits for it, as long as it runs.
#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_lock_is_excluded_and_excludes() {
    let (locks, name, bed) = (locks(), fresh_name(), Bed::start().expect("a private bed"));
    let guard = lock(&locks, &name).await;
    let endpoints = format!("--endpoints={}", server().endpoint());
    let args = [endpoints.as_str(), "lock", "--ttl=10", name.as_str()];
    let theirs = bed.program("etcdctl", Path::new("/usr/bin/etcdctl"), &args).expect("it starts");
    let (_stdin, stdout) = theirs.pipes().expect("pipes");
    await_queue(server(), &name, 2).await;
    let keys = queue(&name);
    release(guard).await;
    // It prints its key once it holds the lock, and then the value: a closed pipe would end it.
    let (mut stdout, mut held) = (BufReader::new(stdout), String::new());
    block_in_place(|| stdout.read_line(&mut held)).expect("a line");
    assert_eq!(held.trim(), keys[1]);
    assert_busy(&locks, &name).await;
    let shown = locks.inspect(&name).await.expect("an answer");
    assert!(matches!(shown.state, LockState::Held(_)), "{shown:?}");
    let waiter = wait_for(&locks, &name);
    await_queue(server(), &name, 2).await;
    assert!(!waiter.is_finished());
    theirs.stop(Duration::from_secs(5)).expect("it ends");
    release(waiter.await.expect("no panic").expect("the lock")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_of_a_lease_is_shown_and_a_key_without_one_has_no_expiry() {
    let (locks, name) = (locks(), fresh_name());
    let granted = etcdctl(server(), &["lease", "grant", "60"]);
    let lease = granted.split(' ').nth(1).expect("its id");
    let key = format!("{name}/2a");
    etcdctl(server(), &["put", "--lease", lease, &key, "theirs"]);
    let left = async || match &locks.inspect(&name).await.expect("an answer").state {
        LockState::Held(holders) => holders[0].lease,
        other => panic!("{other:?}"),
    };
    let RemainingLease::Ends(first) = left().await else { panic!("its server knows the rest") };
    assert!(first > LONG && first < Duration::from_mins(1), "{first:?}");
    eventually(
        "less is left",
        async || matches!(left().await, RemainingLease::Ends(left) if left < first),
    )
    .await;
    etcdctl(server(), &["put", &key, "theirs"]);
    assert_eq!(left().await, RemainingLease::NoExpiry);
    etcdctl(server(), &["del", &key]);
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_with_longer_names_are_in_the_way_of_none() {
    let (locks, others, name) = (locks(), locks(), fresh_name());
    let longer = ["a", "b", "c/d", ""].map(|more| LockName::new(format!("{name}/{more}")).unwrap());
    let mut guards = Vec::new();
    for longer in &longer {
        guards.push(lock(&others, longer).await);
    }
    let guard = lock(&locks, &name).await;
    // Between it and its predecessor.
    let more = LockName::new(format!("{name}/e")).unwrap();
    guards.push(lock(&others, &more).await);
    assert_busy(&others, &name).await;
    release(guard).await;
    release(lock(&others, &name).await).await;
    for guard in guards {
        release(guard).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_no_contender_is_refused_and_shown_as_damage() {
    let (locks, name) = (locks(), fresh_name());
    let key = format!("{name}/settings");
    etcdctl(server(), &["put", &key, "x"]);
    let refused = locks.lock(&name, &options(Duration::ZERO)).await.err();
    assert!(matches!(refused, Some(LockError::HeldByOtherKind)), "{refused:?}");
    let shown = locks.inspect(&name).await.expect("an answer");
    assert!(matches!(shown.state, LockState::Damaged(_)), "{shown:?}");
    etcdctl(server(), &["del", &key]);
    release(lock(&locks, &name).await).await;
}

/// No lease stands behind it, so none can end.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_times_out_says_whether_the_key_has_no_lease() {
    let (locks, name) = (locks(), fresh_name());
    let granted = etcdctl(server(), &["lease", "grant", "60"]);
    let lease = granted.split(' ').nth(1).expect("its id");
    let key = format!("{name}/2a");
    for (flags, expected) in [(vec!["--lease", lease], false), (vec![], true)] {
        etcdctl(server(), &[&["put", &key, ""], flags.as_slice()].concat());
        let refused = locks.lock(&name, &options(Duration::from_millis(300))).await;
        match refused.expect_err("it is held") {
            LockError::TimedOut { has_no_expiry, .. } => assert_eq!(has_no_expiry, expected),
            other => panic!("{other}"),
        }
        etcdctl(server(), &["del", &key]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_outlives_its_lease_and_keeps_its_place() {
    let (holders, waiters, name) = (locks(), locks_at(server().endpoint(), SHORT), fresh_name());
    let guard = lock(&holders, &name).await;
    let waiter = wait_for(&waiters, &name);
    await_queue(server(), &name, 2).await;
    let place = queue(&name);
    // Of a lease of 5 s.
    tokio::time::sleep(SHORT * 2).await;
    assert_eq!(queue(&name), place);
    release(guard).await;
    let heir = waiter.await.expect("no panic").expect("the lock");
    assert_eq!(queue(&name), place[1..]);
    assert!(!heir.is_lost());
    release(heir).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_key_is_removed_queues_again() {
    let (holders, waiters, name) = (locks(), locks(), fresh_name());
    let guard = lock(&holders, &name).await;
    let waiter = wait_for(&waiters, &name);
    await_queue(server(), &name, 2).await;
    let removed = queue(&name).swap_remove(1);
    etcdctl(server(), &["del", &removed]);
    // It reads its place when the holder goes, or after 5 s.
    release(guard).await;
    let heir = waiter.await.expect("no panic").expect("the lock");
    assert_ne!(queue(&name), [removed.as_str()]);
    let lease = removed.rsplit('/').next().expect("a lease");
    let leases = etcdctl(server(), &["lease", "list"]);
    assert!(!leases.contains(lease), "the lease of the removed key is left: {leases}");
    release(heir).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_of_what_was_removed_says_whether_another_holds_it() {
    let (locks, others, name) = (locks(), locks(), fresh_name());
    for is_taken in [false, true] {
        let guard = lock(&locks, &name).await;
        etcdctl(server(), &["del", &queue(&name)[0]]);
        let heir = if is_taken { Some(lock(&others, &name).await) } else { None };
        let expected = if is_taken { Release::HeldByOther } else { Release::Gone };
        assert_eq!(guard.release().await.expect("an answer"), expected);
        if let Some(heir) = heir {
            assert!(heir.token().is_some() && !heir.is_lost());
            release(heir).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_that_give_up_leave_neither_key_nor_lease() {
    let (locks, others, name) = (locks(), locks(), fresh_name());
    let guard = lock(&locks, &name).await;
    let waiters: Vec<_> = (0..8).map(|_| wait_for(&others, &name)).collect();
    await_queue(server(), &name, 9).await;
    let keys = queue(&name);
    let began = Instant::now();
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    await_queue(server(), &name, 1).await;
    assert!(began.elapsed() < LONG / 2, "their leases had to end: {:?}", began.elapsed());
    release(guard).await;
    let leases = || etcdctl(server(), &["lease", "list"]);
    let of = |key: &String| key.rsplit('/').next().expect("a lease").to_owned();
    eventually("no lease is left", async || {
        let leases = leases();
        !keys.iter().map(of).any(|lease| leases.contains(&lease))
    })
    .await;
}

#[tokio::test]
async fn a_ttl_is_a_second_and_a_half_to_a_day() {
    let connect = |ms| EtcdServer::connect_lazily("127.0.0.1:1", Duration::from_millis(ms));
    for bad in [0, 1499, 86_400_001] {
        let refused = connect(bad).err();
        assert!(
            matches!(refused, Some(LockError::BadRequest { field: "TTL", .. })),
            "{bad}: {refused:?}"
        );
    }
    assert!(connect(1500).is_ok() && connect(86_400_000).is_ok());
    assert!(connect(u64::try_from(LONG.as_millis()).unwrap()).is_ok());
}
