//! A lock that lives in a database session. Witnesses: the connections that the proxy has cut, or
//! what it has swallowed.

use std::thread::sleep;
use std::time::Duration;

use conformance::protocol::{AcquiredLock, Cause, LockRequest};
use conformance::variant::Variant;
use conformance::{Contender, fresh_name};
use distlock::LockKind;
use testbed::{Direction, Proxy};

use crate::database::url;
use crate::scene::{
    WAIT_TIMEOUT, assert_both_hold, assert_kept_out, assert_kept_out_for, changed, enter_later,
    servers, start,
};

/// A third of it is the time between two heartbeats: long enough for another to enter and for both
/// to work on a busy machine, and still awaited.
const LEASE: Duration = Duration::from_secs(15);
/// A short lease, where its end is waited for.
const SHORT_LEASE: Duration = Duration::from_secs(2);

/// A way to the database, and its address by that way.
fn way() -> (Proxy, String) {
    let database = servers().database();
    let proxy = Proxy::before(database.addr()).expect("a proxy");
    let url = proxy.instead_of(database.addr(), &url());
    (proxy, url)
}

/// The holder of a lock, and all its connections.
fn holder(kind: LockKind, lease: Duration) -> (Contender, AcquiredLock, String, Proxy) {
    holder_as(Variant::Usual, kind, lease)
}

/// Starts a holder with that mechanism.
fn holder_as(
    variant: Variant,
    kind: LockKind,
    lease: Duration,
) -> (Contender, AcquiredLock, String, Proxy) {
    let ((proxy, url), name) = (way(), fresh_name());
    let setup = changed(kind, |setup| {
        setup.addresses.mysql = Some(url);
        setup.variant = variant;
    });
    let holder = Contender::start_as(servers(), &setup);
    let held = holder.lock(&LockRequest::new(&name, lease)).expect("the lock is free");
    (holder, held, name, proxy)
}

#[test]
fn a_connection_that_ends_frees_the_lock_before_its_holder_notices() {
    let other = start(LockKind::MysqlNamed);
    let (holder, held, name, proxy) = holder(LockKind::MysqlNamed, LEASE);
    assert_kept_out(&other, &name);
    proxy.cut();
    assert!(proxy.counts().cut > 0);
    let others = enter_later(&other, &name);
    assert_both_hold((&holder, &held), (&other, &others));
    assert_eq!(holder.lost(held.handle, WAIT_TIMEOUT).cause, Cause::Taken);
}

#[test]
fn a_lease_in_a_table_outlives_the_connections_of_its_holder() {
    let other = start(LockKind::MysqlTable);
    let (holder, held, name, proxy) = holder(LockKind::MysqlTable, SHORT_LEASE);
    proxy.cut();
    assert!(proxy.counts().cut > 0);
    assert_kept_out(&other, &name);
    assert!(!holder.is_lost(held.handle));
    // It is renewed on other connections.
    sleep(SHORT_LEASE * 2);
    assert_kept_out(&other, &name);
    assert!(!holder.is_lost(held.handle));
}

#[test]
fn a_session_that_is_cut_off_without_a_word_keeps_its_lock() {
    let (kind, lease) = (LockKind::MysqlNamed, SHORT_LEASE);
    let other = start(kind);
    // The `wait_timeout` of its session is the pool's: a minute.
    let (holder, held, name, proxy) = holder_as(Variant::WithoutTimeOut, kind, lease);
    proxy.set_swallowing(Direction::Both, true);
    assert_eq!(holder.lost(held.handle, WAIT_TIMEOUT).cause, Cause::Expired);
    assert!(proxy.counts().swallowed_to_server > 0, "it sent no heartbeat");
    assert_kept_out_for(&other, &name, lease * 2);
}

#[test]
fn a_holder_that_is_cut_off_without_a_word_is_freed_after_its_lease() {
    let other = start(LockKind::MysqlNamed);
    let (holder, held, name, proxy) = holder(LockKind::MysqlNamed, SHORT_LEASE);
    proxy.set_swallowing(Direction::Both, true);
    let others = enter_later(&other, &name);
    let lost = holder.lost(held.handle, WAIT_TIMEOUT);
    assert!(proxy.counts().swallowed_to_server > 0, "it sent no heartbeat");
    let valid_until_ns = lost.valid_until_ns.expect("an end");
    assert!(valid_until_ns < others.acquired_ns, "{lost:?} {others:?}");
}
