//! How purchases are made: the axes that are chosen when a replica starts, and its bounds.
//!
//! The enums are flags of `seckill serve` as well: their comments are the help of each value.

use std::time::Duration;

use distlock::LockOptions;

use super::InjectedBug;

/// What the lock's name is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Scope {
    /// `lock:order:<userId>`: one purchase of a user at a time, whatever the voucher.
    User,
    /// `lock:voucher:<voucherId>`: one purchase of a voucher at a time.
    Voucher,
}

/// Whether the database enforces what the lock protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Guards {
    /// Unique key and stock condition enforced.
    On,
    /// The lock is the only protection: the textbook's naive code, in tables of its own.
    Off,
}

/// Where the lock is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LockOrder {
    /// Around the transaction; released after its commit.
    Outside,
    /// Inside the transaction; released before its commit, the classic mistake.
    Inside,
    /// Around the transaction, and once more within, by the same owner.
    Nested,
    /// Around the transaction, after a read of the stock under the lock; shared if the lock has a
    /// read side. The extra work of --work-ms is done in that read only.
    ReadFirst,
}

impl LockOrder {
    /// The flag that chooses it.
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Self::Outside => "--lock-order outside",
            Self::Inside => "--lock-order inside",
            Self::Nested => "--lock-order nested",
            Self::ReadFirst => "--lock-order read-first",
        }
    }
}

/// What writes the orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Writer {
    /// One transaction for each order.
    Single,
    /// Orders of a voucher that arrive during a transaction are committed together in the next.
    Grouped,
}

/// When a purchase is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum PurchaseMode {
    /// When its order is committed.
    Direct,
    /// When it is admitted, with a ticket; its order is written from a stream in Redis.
    Queued,
}

/// How many orders the batch writer takes.
#[derive(Debug, Clone, Copy)]
pub struct BatchLimits {
    /// The most in one transaction.
    pub size: usize,
    /// The most of one voucher that wait for a transaction; more are refused at once.
    pub queue: usize,
    /// A batch that takes longer, for a locked row or a slow disk, does not delay the next one.
    pub slow: Duration,
}

impl BatchLimits {
    /// What a service is started with for `slow`.
    pub const SLOW: Duration = Duration::from_millis(20);
}

/// What a purchase does after it has lost its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OnLost {
    /// Roll back.
    Stop,
    /// Continue, and release at the end, as naive code does.
    Ignore,
}

/// Settings of the sale.
#[derive(Debug, Clone)]
pub struct SaleConfig {
    /// What the lock's name is made of.
    pub scope: Scope,
    /// Whether the database enforces what the lock protects.
    pub guards: Guards,
    /// What writes the orders.
    pub writer: Writer,
    /// Bounds of the batch writer.
    pub batches: BatchLimits,
    /// Where the lock is taken.
    pub lock_order: LockOrder,
    /// What a purchase does after it has lost its lock.
    pub on_lost: OnLost,
    /// How long to wait for the lock, and how long it lives without its holder.
    pub lock: LockOptions,
    /// Extra time inside the section (laboratory).
    pub work: Duration,
    /// A deliberate bug (laboratory).
    pub injected_bug: Option<InjectedBug>,
    /// A bug whose code path purchases take without having the bug (laboratory).
    pub control_bug: Option<InjectedBug>,
    /// The most purchases at a time; more are refused at once.
    pub max_orders: usize,
}

/// The shortest `--lock-wait-ms` that outlasts a late release, whichever way the kind waits.
const MIN_WAIT_FOR_LATE_RELEASE: Duration = Duration::from_millis(100);

impl SaleConfig {
    /// Whether a purchase may be answered before its lock is given back: a user who asks again at
    /// once meets it, and would otherwise be refused.
    pub(super) fn releases_after_response(&self) -> bool {
        self.lock.wait >= MIN_WAIT_FOR_LATE_RELEASE
    }

    /// Whether "sold out" is answered from memory. Not without guards, where the laboratory counts
    /// what naive code sells, nor with an injected bug, which has to show.
    pub(super) fn uses_sold_out_cache(&self) -> bool {
        let sound = self
            .injected_bug
            .or(self.control_bug)
            .is_none_or(|bug| bug == InjectedBug::SoldOutForEver);
        self.guards == Guards::On && sound
    }
}
