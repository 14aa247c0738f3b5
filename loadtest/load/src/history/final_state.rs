//! The final state of a voucher: orders, effects of fenced holders, accounts.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};

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
    /// Another resource, or an unknown one.
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
    /// The id of its user.
    pub user_id: u64,
    /// Whether it has returned its unit. It still is its user's one order.
    pub cancelled: bool,
    /// Hash of its request's idempotency key, if that was kept; as `Record::key`.
    pub key: Option<u32>,
}

impl OrderRow {
    /// An order that has its unit, without a known request.
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
    /// Cancelled orders; 0 in accounts that are older than cancellation.
    #[serde(default)]
    pub cancelled: i64,
    /// Users with at least one order, cancelled or not.
    pub distinct_users: i64,
    /// Users with more than one order.
    pub duplicate_users: i64,
    /// Orders beyond the initial stock.
    pub oversold: i64,
    /// Whether nothing is oversold, no user has two orders, and stock left + orders = initial
    /// stock.
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

/// What the database holds of one voucher.
#[derive(Debug, Clone)]
pub struct DatabaseReading {
    /// Every order.
    pub rows: Vec<OrderRow>,
    /// The same as figures, in the shape of the service's audit.
    pub account: Audit,
    /// What fenced holders did, in the order of the resource's commits.
    pub effects: Vec<Effect>,
    /// What their locks protect; effects have indexes into it.
    pub resources: Vec<String>,
}

/// A count as the database's integers.
pub fn signed(count: usize) -> i64 {
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
