//! `etcd` on a server that knows users.

use std::time::{Duration, Instant};

use crate::support::{
    LONG, SHORT, assert_busy, at_once, etcdctl, eventually, fresh_name, lock, locks_at, release,
    wait_for,
};
use distlock::{LockError, LockName, LockWaiters};
use testbed::{Bed, Etcd, EtcdOptions};
use tokio::task::block_in_place;

/// The password of the user `locks`, with signs that an address escapes.
const PASSWORD: &str = "p@ss:w0rd";
const ESCAPED: &str = "p%40ss%3Aw0rd";
/// What authenticates `etcdctl`.
const ROOT: &str = "--user=root:of-tests";

/// A server on which the user `locks` may use keys that begin with `lock:test:`.
fn server_with_users() -> (Etcd, Bed) {
    block_in_place(|| {
        let bed = Bed::start().expect("a private bed");
        let server = bed.etcd(EtcdOptions::default()).expect("etcd is installed");
        let user = format!("locks:{PASSWORD}");
        let commands: [&[&str]; 7] = [
            &["user", "add", "root:of-tests"],
            &["user", "grant-role", "root", "root"],
            &["role", "add", "locks"],
            &["role", "grant-permission", "locks", "--prefix=true", "readwrite", "lock:test:"],
            &["user", "add", &user],
            &["user", "grant-role", "locks", "locks"],
            &["auth", "enable"],
        ];
        for command in commands {
            server.etcdctl(command).expect("an answer");
        }
        (server, bed)
    })
}

fn as_user(server: &Etcd, login: &str) -> String {
    format!("{login}@{}", server.endpoint())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_a_right_to_its_keys_locks_waits_and_releases() {
    let (server, _bed) = server_with_users();
    let endpoints = as_user(&server, &format!("locks:{ESCAPED}"));
    let (locks, others, name) =
        (locks_at(&endpoints, LONG), locks_at(&endpoints, LONG), fresh_name());
    let guard = lock(&locks, &name).await;
    assert_busy(&others, &name).await;
    let waiter = wait_for(&others, &name);
    eventually("a waiter", async || {
        let shown = others.inspect(&name).await.expect("an answer");
        matches!(shown.waiters, LockWaiters::Ordered(waiters) if waiters.len() == 1)
    })
    .await;
    release(guard).await;
    release(waiter.await.expect("no panic").expect("the lock")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_a_right_to_the_keys_is_denied_and_no_password_is_shown() {
    let (server, _bed) = server_with_users();
    let own = fresh_name();
    let foreign = LockName::new("other:name").expect("a name");
    let right = format!("locks:{ESCAPED}");
    for (login, name) in [("locks:wr0ng", &own), ("stranger:wr0ng", &own), (&*right, &foreign)] {
        let refused = locks_at(&as_user(&server, login), LONG).lock(name, &at_once()).await.err();
        let text = format!("{refused:?}");
        assert!(matches!(refused, Some(LockError::AccessDenied(_))), "{login}: {text}");
        assert!(!text.contains("wr0ng") && !text.contains("w0rd"), "{text}");
    }
    let refused = locks_at(server.endpoint(), LONG).lock(&own, &at_once()).await.err();
    assert!(matches!(refused, Some(LockError::AccessDenied(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_outlives_its_token_and_authentication_that_is_switched_off_and_on() {
    let (server, _bed) = server_with_users();
    let endpoints = as_user(&server, &format!("locks:{ESCAPED}"));
    let (locks, name) = (locks_at(&endpoints, SHORT), fresh_name());
    let began = Instant::now();
    let guard = lock(&locks, &name).await;
    etcdctl(&server, &[ROOT, "auth", "disable"]);
    // A login that the server needs no more.
    let newcomers = locks_at(&endpoints, LONG);
    release(lock(&newcomers, &fresh_name()).await).await;
    etcdctl(&server, &["auth", "enable"]);
    // It has forgotten the one's token, and the other has none.
    release(lock(&newcomers, &fresh_name()).await).await;
    release(lock(&locks, &fresh_name()).await).await;
    eventually("its first lease has ended", async || {
        began.elapsed() > SHORT + Duration::from_secs(1)
    })
    .await;
    release(guard).await;
}
