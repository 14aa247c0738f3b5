//! `etcd` on a server that knows users.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{
    LONG, SHORT, assert_busy, at_once, etcdctl, eventually, fresh_name, lock, locks_at, queue_at,
    release, wait_for,
};
use distlock::{LockError, LockName, LockWaiters, Release};
use testbed::{Bed, Direction, Etcd, EtcdOptions, Proxy};
use tokio::runtime::Builder;
use tokio::task::block_in_place;
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber, subscriber};

/// The password of the user `locks`, with signs that an address escapes.
const PASSWORD: &str = "p@ss:w0rd";
const ESCAPED: &str = "p%40ss%3Aw0rd";
/// What authenticates `etcdctl`.
const ROOT: &str = "--user=root:of-tests";

/// A server on which the user `locks` may use keys that begin with `lock:test:`.
fn server_with_users() -> (Etcd, Bed) {
    server_with_users_and(EtcdOptions::default())
}

fn server_with_users_and(options: EtcdOptions) -> (Etcd, Bed) {
    block_in_place(|| {
        let bed = Bed::start().expect("a private bed");
        let server = bed.etcd(options).expect("etcd is installed");
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

/// All that one thread logs, at each level.
#[derive(Default)]
struct CapturedLog(Mutex<String>);

impl CapturedLog {
    fn add(&self, field: &Field, value: &dyn Debug) {
        writeln!(self.0.lock().expect("no panic"), "{field}={value:?}").expect("text");
    }
}

impl Subscriber for CapturedLog {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut |field: &Field, value: &dyn Debug| self.add(field, value));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut |field: &Field, value: &dyn Debug| self.add(field, value));
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut |field: &Field, value: &dyn Debug| self.add(field, value));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_user_without_a_right_to_the_keys_is_denied_and_no_password_is_shown() {
    let (server, _bed) = server_with_users();
    let log = Arc::new(CapturedLog::default());
    let own = fresh_name();
    let foreign = LockName::new("other:name").expect("a name");
    let right = format!("locks:{ESCAPED}");
    let requests = async {
        for (login, name) in [("locks:wr0ng", &own), ("stranger:wr0ng", &own), (&*right, &foreign)]
        {
            let locks = locks_at(&as_user(&server, login), LONG);
            let refused = locks.lock(name, &at_once()).await.err();
            let text = format!("{refused:?}");
            assert!(matches!(refused, Some(LockError::AccessDenied(_))), "{login}: {text}");
            assert!(!text.contains("wr0ng") && !text.contains("w0rd"), "{text}");
        }
        let refused = locks_at(server.endpoint(), LONG).lock(&own, &at_once()).await.err();
        assert!(matches!(refused, Some(LockError::AccessDenied(_))), "{refused:?}");
    };
    // All tasks of this runtime log on this thread.
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    subscriber::with_default(Arc::clone(&log), || runtime.block_on(requests));
    let log = log.0.lock().expect("no panic");
    assert!(log.contains("Headers"), "no trace of HTTP/2: {log}");
    assert!(!log.contains("wr0ng") && !log.contains("w0rd"), "{log}");
}

/// The latency and the check together are longer than one of several members is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_login_may_take_longer_than_the_request_that_began_it() {
    let slow = EtcdOptions { extra: vec!["--bcrypt-cost=12".into()], ..EtcdOptions::default() };
    let (server, _bed) = server_with_users_and(slow);
    let way = Proxy::before(server.addr()).expect("a proxy");
    way.set_latency(Direction::ToClient, Duration::from_millis(450), Duration::ZERO);
    let address = way.addr();
    let locks = locks_at(&format!("locks:{ESCAPED}@{address},{address}"), LONG);
    let name = fresh_name();
    eventually("the lock", async || locks.lock(&name, &at_once()).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_is_the_answer_to_the_requests_of_the_next_second() {
    let (server, _bed) = server_with_users();
    let way = Proxy::before(server.addr()).expect("a proxy");
    let locks = locks_at(&format!("locks:wr0ng@{}", way.addr()), LONG);
    let is_denied = async || {
        let refused = locks.lock(&fresh_name(), &at_once()).await.err();
        matches!(refused, Some(LockError::AccessDenied(_)))
    };
    eventually("two refusals, the second one without the server", async || {
        way.end_outage();
        let is_refused = is_denied().await;
        way.start_outage();
        is_refused && is_denied().await
    })
    .await;
}

/// The cluster refuses the token of the release, which so did nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_after_a_refused_token_says_that_the_key_was_removed() {
    let (server, _bed) = server_with_users();
    let locks = locks_at(&as_user(&server, &format!("locks:{ESCAPED}")), LONG);
    let name = fresh_name();
    let guard = lock(&locks, &name).await;
    etcdctl(&server, &[ROOT, "auth", "disable"]);
    etcdctl(&server, &["del", &queue_at(&server, &name)[0]]);
    etcdctl(&server, &["auth", "enable"]);
    assert_eq!(guard.release().await.expect("an answer"), Release::Gone);
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
