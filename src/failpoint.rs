//! Named points in a purchase at which the laboratory makes a replica fail. The points of a lock,
//! and the actions, are `distlock`'s.
//!
//! `FAILPOINTS="sale-committed=return(kill);lock-before-renewal=1*sleep(900)"` arms two of them. It
//! needs `--lab` and a program that was built with the feature `failpoints`; such a program serves
//! with `--lab` only. Without the feature the points compile to nothing.

use distlock::failpoint;
pub(crate) use distlock::failpoint::{are_compiled_in, reach};

/// The checks are done and the purchase is admitted.
pub(crate) const ADMITTED: &str = "sale-admitted";
/// The purchase has its lock.
pub(crate) const LOCKED: &str = "sale-locked";
/// The transaction is open. If BEGIN and INSERT are one packet, the order is inserted too.
pub(crate) const BEGUN: &str = "sale-begun";
/// The fence has accepted the lock's token, with `--fenced`.
pub(crate) const TOKEN_SHOWN: &str = "sale-token-shown";
/// The order is inserted.
pub(crate) const ORDER_INSERTED: &str = "sale-order-inserted";
/// The unit is taken, where UPDATE and COMMIT are not one packet.
pub(crate) const UNIT_TAKEN: &str = "sale-unit-taken";
/// All statements are done, and COMMIT is not sent.
pub(crate) const BEFORE_COMMIT: &str = "sale-before-commit";
/// The order is committed, and its client has no answer.
pub(crate) const COMMITTED: &str = "sale-committed";
/// The answer to COMMIT is lost, and the outcome not resolved yet.
pub(crate) const COMMIT_IN_DOUBT: &str = "sale-commit-in-doubt";
/// ROLLBACK is about to be sent.
pub(crate) const BEFORE_ROLLBACK: &str = "sale-before-rollback";
/// The transaction is rolled back, and the lock still held.
pub(crate) const ROLLED_BACK: &str = "sale-rolled-back";
/// The outcome is known, and its client has no answer. The lock is held if the release comes later.
pub(crate) const BEFORE_ANSWER: &str = "sale-before-answer";

/// Queued mode: the purchase is admitted, and its client has no answer.
pub(crate) const QUEUE_ADMITTED: &str = "queue-admitted";
/// The epoch is raised in the database, and not yet in Redis.
pub(crate) const QUEUE_EPOCH_RAISED: &str = "queue-epoch-raised";
/// The queue is open.
pub(crate) const QUEUE_OPENED: &str = "queue-opened";
/// An entry is read from the stream, and its processing has not begun.
pub(crate) const QUEUE_DELIVERED: &str = "queue-delivered";
/// The end of a ticket without an order is written.
pub(crate) const QUEUE_END_WRITTEN: &str = "queue-end-written";
/// A ticket has ended, and its entry is not acknowledged yet.
pub(crate) const QUEUE_ENDED: &str = "queue-ended";
/// The entry is acknowledged.
pub(crate) const QUEUE_ACKNOWLEDGED: &str = "queue-acknowledged";

/// The points of a purchase in the direct mode.
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

/// The points that only the queued mode has.
const QUEUE: [&str; 7] = [
    QUEUE_ADMITTED,
    QUEUE_EPOCH_RAISED,
    QUEUE_OPENED,
    QUEUE_DELIVERED,
    QUEUE_END_WRITTEN,
    QUEUE_ENDED,
    QUEUE_ACKNOWLEDGED,
];

/// The points of a lock and those of a purchase in the direct mode.
pub fn of_direct() -> impl Iterator<Item = &'static str> {
    failpoint::ALL.into_iter().chain(SALE)
}

/// The points of a queued purchase, from its admission to the acknowledgement of its entry.
///
/// They are in the order in which they are reached, some only after a failure.
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

/// The points that a text arms, for the list of what makes a replica unfit for a real sale.
pub fn summary(text: &str) -> String {
    let names = text.split(';').filter_map(|one| Some(one.split_once('=')?.0.trim()));
    format!("failpoints {}", names.collect::<Vec<_>>().join(" "))
}

/// Arms the points of a text such as `name=actions;name=actions`. The error is a sentence.
pub fn arm(text: &str) -> Result<(), String> {
    for one in text.split(';').map(str::trim).filter(|one| !one.is_empty()) {
        let (name, actions) = one.split_once('=').unwrap_or((one, ""));
        if !all().any(|known| known == name) {
            let known: Vec<_> = all().collect();
            return Err(format!("unknown failpoint {name:?}; known: {}", known.join(", ")));
        }
        failpoint::arm(name, actions)?;
    }
    Ok(())
}
