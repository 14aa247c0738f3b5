//! Named points in a purchase at which the laboratory makes a replica fail; those in the life of a
//! lock are `distlock`'s, as is what happens there.
//!
//! `FAILPOINTS="sale-committed=return(kill);lock-before-renewal=1*sleep(900)"` arms two of them. It
//! needs `--lab` and a program that was built with the feature `failpoints`; such a program serves
//! with `--lab` only. Without the feature there is nothing of this in the program.

use distlock::failpoint;
pub(crate) use distlock::failpoint::{are_compiled_in, reach};

/// The checks are done, and the purchase has a place.
pub(crate) const ADMITTED: &str = "sale-admitted";
/// It has its lock.
pub(crate) const LOCKED: &str = "sale-locked";
/// Its transaction is open; where that is one packet with the INSERT, the order is inserted too.
pub(crate) const BEGUN: &str = "sale-begun";
/// The token of its lock was shown to the fence, if that is asked for.
pub(crate) const TOKEN_SHOWN: &str = "sale-token-shown";
/// The order is inserted.
pub(crate) const ORDER_INSERTED: &str = "sale-order-inserted";
/// The unit is taken, if that is not done together with COMMIT.
pub(crate) const UNIT_TAKEN: &str = "sale-unit-taken";
/// All is written and nothing committed.
pub(crate) const BEFORE_COMMIT: &str = "sale-before-commit";
/// It is committed, and nobody knows yet.
pub(crate) const COMMITTED: &str = "sale-committed";
/// The answer to COMMIT is lost, and nothing was done about it yet.
pub(crate) const COMMIT_IN_DOUBT: &str = "sale-commit-in-doubt";
/// Before ROLLBACK.
pub(crate) const BEFORE_ROLLBACK: &str = "sale-before-rollback";
/// It is rolled back, and the lock is still held.
pub(crate) const ROLLED_BACK: &str = "sale-rolled-back";
/// Its outcome is known, and nobody has been answered. The lock is still held, unless nobody waits
/// for one.
pub(crate) const BEFORE_ANSWER: &str = "sale-before-answer";

/// Path `queued`: the purchase is admitted, and its client does not know.
pub(crate) const QUEUE_ADMITTED: &str = "queue-admitted";
/// The epoch is raised in the database, and Redis does not know.
pub(crate) const QUEUE_EPOCH_RAISED: &str = "queue-epoch-raised";
/// The queue is open.
pub(crate) const QUEUE_OPENED: &str = "queue-opened";
/// An entry is taken, and nothing was done about it yet.
pub(crate) const QUEUE_DELIVERED: &str = "queue-delivered";
/// An end without an order is written.
pub(crate) const QUEUE_END_WRITTEN: &str = "queue-end-written";
/// A ticket has ended, and its entry is not acknowledged.
pub(crate) const QUEUE_ENDED: &str = "queue-ended";
/// It is acknowledged.
pub(crate) const QUEUE_ACKNOWLEDGED: &str = "queue-acknowledged";

/// Those of a purchase on the path `direct`.
const SALE: [&str; 12] = [
    ADMITTED,
    LOCKED,
    BEGUN,
    TOKEN_SHOWN,
    ORDER_INSERTED,
    UNIT_TAKEN,
    BEFORE_COMMIT,
    COMMITTED,
    COMMIT_IN_DOUBT,
    BEFORE_ROLLBACK,
    ROLLED_BACK,
    BEFORE_ANSWER,
];

/// Those that only the path `queued` has.
const QUEUE: [&str; 7] = [
    QUEUE_ADMITTED,
    QUEUE_EPOCH_RAISED,
    QUEUE_OPENED,
    QUEUE_DELIVERED,
    QUEUE_END_WRITTEN,
    QUEUE_ENDED,
    QUEUE_ACKNOWLEDGED,
];

/// The points of a lock and those of a purchase on the path `direct`.
pub fn of_direct() -> impl Iterator<Item = &'static str> {
    failpoint::ALL.into_iter().chain(SALE)
}

/// The points between the admission of a purchase on the path `queued` and the acknowledgement of
/// its entry, in the order in which they are reached; some only when something goes wrong.
pub fn of_queued() -> impl Iterator<Item = &'static str> {
    let written = [
        BEGUN,
        ORDER_INSERTED,
        BEFORE_COMMIT,
        COMMIT_IN_DOUBT,
        BEFORE_ROLLBACK,
        ROLLED_BACK,
        COMMITTED,
    ];
    let (before, after) = QUEUE.split_at(4);
    before.iter().copied().chain(written).chain(after.iter().copied())
}

/// All points.
pub fn all() -> impl Iterator<Item = &'static str> {
    of_direct().chain(QUEUE)
}

/// Which points a text arms, for those who must not trust this replica with a real sale.
pub fn summary(text: &str) -> String {
    let names = text.split(';').filter_map(|one| Some(one.split_once('=')?.0.trim()));
    format!("failpoints {}", names.collect::<Vec<_>>().join(" "))
}

/// Arms what the text names, `name=actions;name=actions`. The error is a sentence.
pub fn arm(text: &str) -> Result<(), String> {
    for one in text.split(';').map(str::trim).filter(|one| !one.is_empty()) {
        let (name, actions) = one.split_once('=').unwrap_or((one, ""));
        if !all().any(|known| known == name) {
            let known: Vec<_> = all().collect();
            return Err(format!("there is no failpoint {name:?}, only {}", known.join(", ")));
        }
        failpoint::arm(name, actions)?;
    }
    Ok(())
}
