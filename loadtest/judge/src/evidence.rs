//! What a verdict is made of: plain data, independent of where it was read.

use std::collections::HashSet;

use loadtest_load::history::final_state::{Audit, Effect, OrderRow};
use loadtest_load::history::record::{Names, Record};
use loadtest_load::history::{Grant, Mark};

use crate::terms::Terms;

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
    /// It must have moved by exactly what clients see, have the same stock as the public sees,
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
    /// Units on sale: what the judge itself asked for, or the public stock when the load began.
    /// Units that were added later count too.
    pub offered: Option<i64>,
    /// Units that were added later.
    pub grants: &'a [Grant],
    /// Units that the database grants the voucher, all its grants added.
    pub granted: Option<i64>,
    /// Units left afterwards.
    pub left: Option<i64>,
    /// Effects of fenced holders, by resource and place; empty without fencing.
    pub effects: &'a [Effect],
    /// The service's own account.
    pub audit: AuditCheck<'a>,
    /// What the run says of itself.
    pub terms: &'a Terms,
    /// What happened besides requests.
    pub marks: &'a [Mark<'static>],
}

/// How old a replica's knowledge of the stock may be.
pub(super) const MAX_STALENESS_NS: u64 = 1_000_000_000;

impl Evidence<'_> {
    /// Units that a replica asked at that time need not have known of.
    pub(super) fn added_too_late_for(&self, asked_ns: u64) -> usize {
        let is_late = |grant: &&Grant| grant.t.saturating_add(MAX_STALENESS_NS) > asked_ns;
        let late: i64 = self.grants.iter().filter(is_late).map(|grant| grant.units).sum();
        usize::try_from(late).unwrap_or(0)
    }
}
