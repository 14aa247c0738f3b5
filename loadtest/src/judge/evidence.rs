//! What a verdict is made of: plain data, whoever gathered it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

use crate::history::{Grant, Mark};
use crate::judge::terms::Terms;
use crate::load::client::HUNG_UP;
use crate::load::outcome::Outcome;

/// One request as its client saw it. There are millions of them, so it is kept to 48 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// When the request was handed to its connection, in nanoseconds since the load began.
    pub start_ns: u64,
    /// When its answer was complete, or given up; [`NO_END`] if nothing was recorded.
    pub end_ns: u64,
    /// The user's id.
    pub user: u64,
    /// The order the answer speaks of, if it names one.
    pub order: Option<NonZeroU64>,
    /// Its number.
    pub n: u32,
    /// What its idempotency key comes to; equal for equal keys.
    pub key: u32,
    /// Index of the voucher, in the history's list.
    pub voucher: u16,
    /// What the answer means.
    pub outcome: Outcome,
    /// Index of the replica that answered, in the history's list; `None` without an answer.
    pub replica: Option<u8>,
    /// Index of the status and code, in the history's list.
    pub code: u8,
    /// Whether a ticket was given for it, which has ended so.
    pub admitted: bool,
}

/// The end of a request that nobody saw ending.
pub const NO_END: u64 = u64::MAX;

impl Record {
    /// One that ended so, for tests that care about little more.
    #[cfg(test)]
    pub(crate) fn that_ended(outcome: Outcome) -> Self {
        Self {
            start_ns: 1,
            end_ns: 2,
            user: 1,
            order: None,
            n: 0,
            key: 0,
            voucher: 0,
            outcome,
            replica: None,
            code: 0,
            admitted: false,
        }
    }

    /// The id of the order the answer speaks of.
    pub fn order_id(&self) -> Option<u64> {
        self.order.map(NonZeroU64::get)
    }

    /// Brings records into the order in which they are judged: by voucher, user, and time.
    pub fn sort(records: &mut [Self]) {
        records.sort_unstable_by_key(|one| (one.voucher, one.user, one.start_ns, one.n));
    }
}

/// An effect of a fenced holder at what its lock protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effect {
    /// Number of the resource; tokens of different ones are not comparable.
    pub resource: u32,
    /// What the resource's name says that its lock protects.
    pub protects: Protects,
    /// Its place in the order of commits.
    pub seq: u64,
    /// The token under which it was made.
    pub token: u64,
    /// The order that was written.
    pub order: u64,
}

/// What a lock protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protects {
    /// The voucher that was ordered: one purchase of it at a time.
    Voucher,
    /// The purchases of this user.
    User(u64),
    /// Something else, or nobody knows what.
    Other,
}

impl Protects {
    /// From a resource's name, `redisson:lock:voucher:1` or `redisson:lock:order:7`, where that
    /// voucher was ordered.
    pub fn of(name: &str, voucher: u64) -> Self {
        let mut parts = name.rsplit(':');
        let id = parts.next().and_then(|id| id.parse::<u64>().ok());
        match (parts.next(), id) {
            (Some("voucher"), Some(id)) if id == voucher => Self::Voucher,
            (Some("order"), Some(user)) => Self::User(user),
            _ => Self::Other,
        }
    }
}

/// An order that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OrderRow {
    /// Its id.
    pub id: u64,
    /// Whose it is.
    pub user_id: u64,
    /// Whether it has returned its unit. It still is its user's one order.
    pub cancelled: bool,
    /// What its request's idempotency key comes to, if somebody kept it; as [`Record::key`].
    pub key: Option<u32>,
}

impl OrderRow {
    /// An order that has its unit, of nobody knows which request.
    pub fn new(id: u64, user_id: u64) -> Self {
        Self { id, user_id, cancelled: false, key: None }
    }
}

/// The account of a voucher: the service's audit, or the judge's own reading in the same shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// Units granted in total.
    pub initial_stock: i64,
    /// Units left.
    pub stock_left: i64,
    /// Orders that are not cancelled.
    pub orders: i64,
    /// Those that are; 0 in accounts from before orders could be.
    #[serde(default)]
    pub cancelled: i64,
    /// Users with at least one order, cancelled or not.
    pub distinct_users: i64,
    /// Users with more than one order.
    pub duplicate_users: i64,
    /// Orders beyond the initial stock.
    pub oversold: i64,
    /// Whether nothing is oversold, nobody has two orders and stock left + orders = initial stock.
    pub consistent: bool,
    /// The tables that were read: what for, and their names.
    pub tables: BTreeMap<String, String>,
}

impl Audit {
    /// The judge's own account from the rows of its own reading.
    pub fn of(rows: &[OrderRow], initial_stock: i64, stock_left: i64, tables: [&str; 3]) -> Self {
        let cancelled = signed(rows.iter().filter(|row| row.cancelled).count());
        let orders = signed(rows.len()) - cancelled;
        let duplicate_users = signed(duplicate_users(rows));
        let oversold = (orders - initial_stock).max(0);
        let adds_up = stock_left + orders == initial_stock;
        let [orders_table, stock_table, grants_table] = tables;
        Self {
            initial_stock,
            stock_left,
            orders,
            cancelled,
            distinct_users: signed(
                rows.iter().map(|row| row.user_id).collect::<HashSet<_>>().len(),
            ),
            duplicate_users,
            oversold,
            consistent: oversold == 0 && duplicate_users == 0 && adds_up,
            tables: [("orders", orders_table), ("stock", stock_table), ("grants", grants_table)]
                .map(|(what, name)| (what.to_owned(), name.to_owned()))
                .into(),
        }
    }

    /// The members in which two accounts differ, in words.
    pub fn differences(&self, own: &Self) -> Vec<String> {
        let numbers = [
            ("initial_stock", self.initial_stock, own.initial_stock),
            ("stock_left", self.stock_left, own.stock_left),
            ("orders", self.orders, own.orders),
            ("cancelled", self.cancelled, own.cancelled),
            ("distinct_users", self.distinct_users, own.distinct_users),
            ("duplicate_users", self.duplicate_users, own.duplicate_users),
            ("oversold", self.oversold, own.oversold),
            ("consistent", i64::from(self.consistent), i64::from(own.consistent)),
        ];
        let mut found: Vec<String> = numbers
            .iter()
            .filter(|(_, said, read)| said != read)
            .map(|(name, said, read)| format!("{name}: audit {said}, judge {read}"))
            .collect();
        if self.tables != own.tables {
            found.push(format!("tables: audit {:?}, judge {:?}", self.tables, own.tables));
        }
        found
    }
}

/// How the service's audit can be checked.
#[derive(Debug, Clone, Copy)]
pub enum AuditCheck<'a> {
    /// There is none.
    Absent,
    /// It must say exactly what the judge read in the database.
    Equal {
        /// The service's.
        said: &'a Audit,
        /// The judge's.
        own: &'a Audit,
    },
    /// It must have moved by exactly what clients see, tell the same stock as the public is told,
    /// and be consistent.
    Moved {
        /// Before the load.
        before: &'a Audit,
        /// After it.
        after: &'a Audit,
    },
}

/// All that a verdict on one voucher is made of.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// Every request for the voucher, by user and time; see [`Record::sort`].
    pub records: &'a [Record],
    /// Names that records refer to.
    pub names: &'a Names,
    /// The orders of the voucher that the judge saw afterwards.
    pub rows: &'a [OrderRow],
    /// Whether these are all there are (a database was read), or only those of the load's users.
    pub rows_are_all: bool,
    /// Ids of those that existed before the load.
    pub earlier: &'a HashSet<u64>,
    /// Ids that were acknowledged for another voucher as well.
    pub elsewhere: &'a HashSet<u64>,
    /// Units that were there to be sold: what the judge itself asked for, or what everybody was
    /// told when the load began; with those that were added later.
    pub offered: Option<i64>,
    /// Those that were added later.
    pub grants: &'a [Grant],
    /// Units that the database grants the voucher, all its grants added.
    pub granted: Option<i64>,
    /// Units left afterwards.
    pub left: Option<i64>,
    /// What fenced holders did, by resource and place; empty if nobody was fenced.
    pub effects: &'a [Effect],
    /// The service's own account.
    pub audit: AuditCheck<'a>,
    /// What the run says of itself.
    pub terms: &'a Terms,
    /// What happened besides requests.
    pub marks: &'a [Mark<'static>],
}

/// How old a replica's knowledge of the stock may be.
pub(super) const KNOWLEDGE_NS: u64 = 1_000_000_000;

impl Evidence<'_> {
    /// Units that whoever was asked then need not have known of.
    pub(super) fn added_too_late_for(&self, asked_ns: u64) -> usize {
        let is_late = |grant: &&Grant| grant.t.saturating_add(KNOWLEDGE_NS) > asked_ns;
        let late: i64 = self.grants.iter().filter(is_late).map(|grant| grant.units).sum();
        usize::try_from(late).unwrap_or(0)
    }
}

/// What records refer to, so that they stay small: names by an index, holds by their number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// Replicas, as they call themselves.
    pub replicas: Vec<String>,
    /// Status and code of answers: `409 sold_out`.
    pub codes: Vec<String>,
    /// When a request had its lock, by the request's number; of those that told, and not of all of
    /// very many.
    pub holds: HashMap<u32, LockHold>,
}

impl Names {
    /// Status and code of a request's answer, or why there is none.
    pub fn code(&self, record: &Record) -> &str {
        self.codes.get(usize::from(record.code)).map_or("", String::as_str)
    }
}

/// Whether a request has no known outcome, or was refused because something was down.
pub fn has_failed(record: &Record, names: &Names) -> bool {
    let code = names.code(record);
    code != HUNG_UP && (record.outcome == Outcome::Unknown || code.starts_with('5'))
}

/// When a request had its lock, in nanoseconds since the load began. Its length is the replica's
/// own; where it stands is known up to the time that request and answer were on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockHold {
    /// The earliest moment at which it can have begun.
    pub earliest: u64,
    /// The latest.
    pub from: u64,
    /// The end that belongs to the latest.
    pub until: u64,
    /// Whether belief in the lock had ended before it was given back.
    pub lost: bool,
}
/// A count as the database's integers.
pub(crate) fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Users with more than one of these rows.
fn duplicate_users(rows: &[OrderRow]) -> usize {
    let mut orders = HashMap::<u64, usize>::new();
    for row in rows {
        *orders.entry(row.user_id).or_default() += 1;
    }
    orders.values().filter(|count| **count > 1).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_million_records_fit_into_half_a_gibibyte() {
        assert!(size_of::<Record>() <= 48, "{}", size_of::<Record>());
    }

    fn names() -> Names {
        let codes = ["201", "504 gateway_timeout", "503 overloaded", "hung_up"];
        Names { codes: codes.map(str::to_owned).into(), ..Names::default() }
    }

    fn record(outcome: Outcome, code: u8) -> Record {
        Record { code, ..Record::that_ended(outcome) }
    }

    #[test]
    fn a_request_has_failed_if_its_outcome_is_unknown_or_a_server_was_down_unless_it_hung_up() {
        for (outcome, code, failed) in [
            (Outcome::Bought, 0, false),
            (Outcome::Unknown, 1, true),
            (Outcome::Refused, 2, true),
            (Outcome::Unknown, 3, false),
        ] {
            assert_eq!(has_failed(&record(outcome, code), &names()), failed, "{code}");
        }
    }
}
