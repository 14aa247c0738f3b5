//! A holder that is paused and does not look at its lock when it goes on, and the fence at what it
//! writes: units in a database, of which each holder sells one. Witness: it stood still (the
//! testbed waits until the kernel says so of each thread) until another had the lock, and its lock
//! had told it of the loss.

use std::time::Duration;

use conformance::protocol::{Held, Want};
use conformance::{Contender, fresh_name, promise};
use distlock::{Fencing, LockKind};

use crate::database::{left_in_stock, put_into_stock, with_a_database};
use crate::scene::{PATIENCE, changed, servers, start};

/// A lease, and the time-out of a session.
const LEASE: Duration = Duration::from_millis(800);
/// Every kind that has a token to show.
const WITH_TOKENS: [LockKind; 6] = [
    LockKind::Redisson,
    LockKind::Fair,
    LockKind::ReadWrite,
    LockKind::Multi,
    LockKind::MysqlTable,
    LockKind::Zookeeper,
];

/// When the tokens of the holders are shown to the fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Never,
    AtTheWrite,
    AtTheReadAndTheWrite,
}

/// Who has sold the one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sold {
    by_the_late_one: bool,
    by_the_successor: bool,
}

const TWICE: Sold = Sold { by_the_late_one: true, by_the_successor: true };
const ONCE: Sold = Sold { by_the_late_one: false, by_the_successor: true };

/// The first reads that there is one unit and is frozen until the second has the lock and has read
/// the same; it goes on and sells, and so does the second.
fn sell_one_unit(kind: LockKind, shown: Shown) -> Sold {
    let start = || Contender::start_as(servers(), &changed(kind, with_a_database));
    let (late, successor, name) = (start(), start(), fresh_name());
    let mut sql = put_into_stock(&name, 1);
    let want = Want::new(&name, LEASE).waiting(PATIENCE);
    let asks = shown != Shown::Never && promise(kind).fencing == Fencing::Optional;
    let want = if asks { want.fenced() } else { want };
    let (at_read, at_write) = (shown == Shown::AtTheReadAndTheWrite, shown != Shown::Never);
    let read = |who: &Contender, held: &Held| {
        who.stock(held.handle, &name, None, at_read).expect("a database").expect("no fence bars it")
    };
    let sells = |who: &Contender, held: &Held, seen: i64| {
        who.stock(held.handle, &name, Some(seen - 1), at_write).expect("a database").is_some()
    };

    let lates = late.lock(&want).expect("nobody has it");
    let seen = read(&late, &lates);
    late.freeze();
    let successors = successor.lock(&want).expect("the first does not renew it");
    let seen_later = read(&successor, &successors);
    assert_eq!((seen, seen_later), (1, 1), "{kind}");
    assert!(shown == Shown::Never || lates.token < successors.token, "{kind}");
    late.thaw();
    late.lost(lates.handle, PATIENCE);
    let by_the_late_one = sells(&late, &lates, seen);
    let by_the_successor = sells(&successor, &successors, seen_later);
    assert_eq!(left_in_stock(&mut sql, &name), 0, "{kind}");
    Sold { by_the_late_one, by_the_successor }
}

/// A kind without tokens: the unit is sold twice, and nobody can ask for a fence.
fn assert_has_no_fence(kind: LockKind) {
    assert_eq!(sell_one_unit(kind, Shown::Never), TWICE, "{kind}");
    let refused = start(kind).lock(&Want::new(&fresh_name(), LEASE).fenced());
    assert_eq!(refused.expect_err("it has no token to show").code, "unsupported");
}

#[test]
fn a_holder_of_red_that_is_paused_past_its_validity_writes_all_the_same() {
    assert_has_no_fence(LockKind::Red);
}

#[test]
fn a_holder_of_mysql_named_that_is_paused_past_its_session_writes_all_the_same() {
    assert_has_no_fence(LockKind::MysqlNamed);
}

#[test]
fn a_holder_that_is_paused_past_its_lease_writes_all_the_same() {
    for kind in WITH_TOKENS.into_iter().filter(|kind| *kind != LockKind::Zookeeper) {
        assert_eq!(sell_one_unit(kind, Shown::Never), TWICE, "{kind}");
    }
}

#[test]
fn a_holder_of_zookeeper_that_is_paused_past_its_session_writes_all_the_same() {
    assert_eq!(sell_one_unit(LockKind::Zookeeper, Shown::Never), TWICE);
}

#[test]
fn a_holder_whose_token_is_checked_at_the_write_alone_sells_by_what_it_read_before() {
    for kind in WITH_TOKENS {
        assert_eq!(sell_one_unit(kind, Shown::AtTheWrite), TWICE, "{kind}");
    }
}

#[test]
fn a_holder_whose_token_is_checked_at_the_read_and_at_the_write_sells_nothing_late() {
    for kind in WITH_TOKENS {
        assert_eq!(sell_one_unit(kind, Shown::AtTheReadAndTheWrite), ONCE, "{kind}");
    }
}
