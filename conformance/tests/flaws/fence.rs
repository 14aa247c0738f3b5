//! A holder that is paused and does not check its lock when it continues, and the fence at what it
//! writes. The resource is units in a database, and each holder sells one. Witness: it stood still
//! (the testbed waits until the kernel says so of each thread) until another had the lock, and its
//! lock had told it of the loss.

use std::time::Duration;

use conformance::protocol::{AcquiredLock, LockRequest};
use conformance::{Contender, fresh_name, promise};
use distlock::{Fencing, LockKind};

use crate::database::{left_in_stock, put_into_stock, with_a_database};
use crate::scene::{WAIT_TIMEOUT, changed, servers, start};

/// A lease, and the time-out of a session.
const LEASE: Duration = Duration::from_millis(800);
/// Every kind that has a token to show.
const WITH_TOKENS: [LockKind; 8] = [
    LockKind::Redisson,
    LockKind::Fair,
    LockKind::ReadWrite,
    LockKind::Multi,
    LockKind::MysqlTable,
    LockKind::Zookeeper,
    LockKind::Etcd,
    LockKind::Nats,
];

/// When the tokens of the holders are shown to the fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FenceUse {
    Never,
    AtTheWrite,
    AtTheReadAndTheWrite,
}

/// The holders that have sold the one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sales {
    by_the_late_one: bool,
    by_the_successor: bool,
}

const TWICE: Sales = Sales { by_the_late_one: true, by_the_successor: true };
const ONCE: Sales = Sales { by_the_late_one: false, by_the_successor: true };

/// The first reads that there is one unit and is frozen until the second has the lock and has read
/// the same. Then both sell.
fn sell_one_unit(kind: LockKind, shown: FenceUse) -> Sales {
    let start = || Contender::start_as(servers(), &changed(kind, with_a_database));
    let (late, successor, name) = (start(), start(), fresh_name());
    let mut sql = put_into_stock(&name, 1);
    let want = LockRequest::new(&name, LEASE).waiting(WAIT_TIMEOUT);
    let asks = shown != FenceUse::Never && promise(kind).fencing == Fencing::Optional;
    let want = if asks { want.fenced() } else { want };
    let (at_read, at_write) = (shown == FenceUse::AtTheReadAndTheWrite, shown != FenceUse::Never);
    let read = |who: &Contender, held: &AcquiredLock| {
        who.stock(held.handle, &name, None, at_read).expect("a database").expect("no fence bars it")
    };
    let sells = |who: &Contender, held: &AcquiredLock, seen: i64| {
        who.stock(held.handle, &name, Some(seen - 1), at_write).expect("a database").is_some()
    };

    let lates = late.insist(&want);
    let seen = read(&late, &lates);
    late.freeze();
    let successors = successor.lock(&want).expect("the first does not renew it");
    let seen_later = read(&successor, &successors);
    assert_eq!((seen, seen_later), (1, 1), "{kind}");
    assert!(shown == FenceUse::Never || lates.token < successors.token, "{kind}");
    late.thaw();
    late.lost(lates.handle, WAIT_TIMEOUT);
    let by_the_late_one = sells(&late, &lates, seen);
    let by_the_successor = sells(&successor, &successors, seen_later);
    assert_eq!(left_in_stock(&mut sql, &name), 0, "{kind}");
    Sales { by_the_late_one, by_the_successor }
}

/// A kind without tokens: the unit is sold twice, and there is no token for a fence.
fn assert_has_no_fence(kind: LockKind) {
    assert_eq!(sell_one_unit(kind, FenceUse::Never), TWICE, "{kind}");
    let refused = start(kind).lock(&LockRequest::new(&fresh_name(), LEASE).fenced());
    assert_eq!(refused.expect_err("it has no token to show").code, "unsupported");
}

#[test]
fn a_holder_of_redlock_that_is_paused_past_its_validity_writes_all_the_same() {
    assert_has_no_fence(LockKind::Redlock);
}

#[test]
fn a_holder_of_mysql_named_that_is_paused_past_its_session_writes_all_the_same() {
    assert_has_no_fence(LockKind::MysqlNamed);
}

#[test]
fn a_holder_that_is_paused_past_its_lease_writes_all_the_same() {
    for kind in WITH_TOKENS.into_iter().filter(|kind| *kind != LockKind::Zookeeper) {
        assert_eq!(sell_one_unit(kind, FenceUse::Never), TWICE, "{kind}");
    }
}

#[test]
fn a_holder_of_zookeeper_that_is_paused_past_its_session_writes_all_the_same() {
    assert_eq!(sell_one_unit(LockKind::Zookeeper, FenceUse::Never), TWICE);
}

#[test]
fn a_holder_whose_token_is_checked_at_the_write_alone_sells_by_what_it_read_before() {
    for kind in WITH_TOKENS {
        assert_eq!(sell_one_unit(kind, FenceUse::AtTheWrite), TWICE, "{kind}");
    }
}

#[test]
fn a_holder_whose_token_is_checked_at_the_read_and_at_the_write_sells_nothing_late() {
    for kind in WITH_TOKENS {
        assert_eq!(sell_one_unit(kind, FenceUse::AtTheReadAndTheWrite), ONCE, "{kind}");
    }
}
