//! The axes of a cell (lock, scope, guards, replicas), and the load that it gets.

use loadtest_judge::setting::{Guards, Scope};
use serde::{Deserialize, Serialize};

use crate::fleet::Fleet;
use crate::lock::Lock;
use crate::predict::Family;

/// The place of a cell in the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CellAxes {
    /// What is held around the purchase.
    pub lock: Lock,
    /// What it is held for.
    pub scope: Scope,
    /// Whether the database guards the sale as well.
    pub guards: Guards,
    /// Replicas.
    pub replicas: u16,
}

impl CellAxes {
    /// Flags of `seckill serve` that make the cell.
    pub fn flags(self, load: &Load) -> Vec<String> {
        let mut flags = vec!["--lab".to_owned()];
        let mut flag = |name: &str, value: &str| flags.extend([name.to_owned(), value.to_owned()]);
        flag("--lock", self.lock.name());
        flag("--lock-scope", self.scope.name());
        flag("--guards", self.guards.name());
        if load.work_ms > 0 {
            flag("--work-ms", &load.work_ms.to_string());
        }
        if let Some(bug) = load.injected_bug {
            flag("--inject-bug", bug.name());
        }
        flags.extend(load.mode.flags());
        flags.extend(load.writer.flags(load.mode));
        flags
    }
}

impl std::fmt::Display for CellAxes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (lock, scope, guards) = (self.lock.name(), self.scope.name(), self.guards.name());
        f.pad(&format!("{lock} per {scope}, guards {guards}, replicas {}", self.replicas))
    }
}

/// Gives a flag that value; an empty one is that of a switch.
pub(super) fn set(flags: &mut Vec<String>, flag: &str, value: &str) {
    if let Some(at) = flags.iter().position(|known| known == flag) {
        flags.drain(at..(at + 2).min(flags.len()));
    }
    flags.push(flag.to_owned());
    flags.extend((!value.is_empty()).then(|| value.to_owned()));
}

/// The value of a flag, if it is there.
pub(super) fn flag<'a>(flags: &'a [String], name: &str) -> Option<&'a str> {
    let at = flags.iter().position(|known| known == name)?;
    flags.get(at + 1).map(String::as_str)
}

/// When replicas answer a purchase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum PurchaseMode {
    /// When its order is committed
    Direct,
    /// When it is admitted, with a ticket; its order is then written from a stream, no lock is
    /// taken
    Queued,
}

impl PurchaseMode {
    /// The name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Queued => "queued",
        }
    }

    /// Flags of `seckill serve` that choose it.
    pub fn flags(self) -> Vec<String> {
        let flags: &[&str] = match self {
            Self::Direct => &[],
            Self::Queued => &["--mode", "queued", "--writer", "grouped"],
        };
        flags.iter().map(|flag| (*flag).to_owned()).collect()
    }
}

/// How replicas write orders in the mode `direct`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Writer {
    /// Each in a transaction of its own
    #[default]
    Single,
    /// Those of a voucher that come together in one transaction
    Grouped,
}

impl Writer {
    /// The name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Grouped => "grouped",
        }
    }

    /// Flags of `seckill serve` that choose it; the mode `queued` has its own.
    fn flags(self, mode: PurchaseMode) -> Vec<String> {
        match (self, mode) {
            (Self::Grouped, PurchaseMode::Direct) => {
                vec!["--writer".to_owned(), self.name().to_owned()]
            }
            _ => Vec::new(),
        }
    }

    /// Why it has nothing to show there, if so.
    pub fn fits(self, axes: CellAxes) -> Result<(), &'static str> {
        if self == Self::Single {
            Ok(())
        } else if axes.guards == Guards::Off {
            Err("refused without guards")
        } else if axes.lock.family() == Family::Transaction {
            Err("the lock is the transaction of one order")
        } else if axes.scope == Scope::Voucher {
            Err("groups of one")
        } else {
            Ok(())
        }
    }
}

/// A bug that replicas can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum InjectedBug {
    /// The lock is freed before the transaction is committed.
    ReleaseBeforeCommit,
    /// A unit is taken even if none is left.
    NoStockCondition,
    /// An order is written though no unit was taken for it.
    IgnoredDecrement,
    /// The unit of a refused second order is not given back.
    DecrementBeforeDuplicateCheck,
    /// A purchase that does not get its lock is answered as if it had bought.
    LockRefusalAcknowledged,
    /// An order's id is answered rounded to 53 bits.
    RoundedOrderIds,
    /// The audit does not say what is in the database.
    LyingAudit,
    /// The lock's key has no lease.
    SetnxWithoutExpire,
    /// A release deletes the key of any owner.
    DelWithoutOwnerCheck,
    /// A release looks whose key it is, and deletes it afterwards.
    GetThenDel,
    /// The lease is not renewed.
    NoWatchdog,
    /// A renewal without an answer is the last one.
    WatchdogNotRearmed,
    /// A renewal prolongs the lock of any owner.
    RenewWithoutOwnerCheck,
    /// Release and renewal succeed for every caller.
    OwnerCheckAlwaysTrue,
    /// A waiter trusts the message of the release alone.
    LostWakeUp,
    /// Replicas are asked for confirmations on another connection.
    WaitOnAnotherConnection,
    /// A majority counts however long the asking took.
    #[serde(alias = "red-without-elapsed-time")]
    #[value(alias = "red-without-elapsed-time")]
    RedlockWithoutElapsedTime,
    /// Fencing tokens come from a counter in Redis, and nothing compares them.
    TokenFromRedis,
    /// The token is shown only when the work is done.
    FenceAtWriteOnly,
    /// A transaction is committed though one of its statements failed with 1205.
    CommitAfterLockWait,
    /// A purchase whose COMMIT was not answered is tried again under another order id.
    RetryWithFreshId,
    /// A purchase is answered before its order is committed.
    AnswerBeforeCommit,
    /// A purchase is dropped with its client, and its connection goes back to the pool with its
    /// transaction open.
    AbortWithClient,
    /// What was sold out once is sold out for ever.
    SoldOutForEver,
    /// Path `queued`: an admitted purchase that is not written is acknowledged, and nothing of it
    /// is given back.
    LostCompensation,
    /// Path `queued`: a voucher is sold before its sale begins, and after it has ended.
    NoTimeWindow,
    /// Path `queued`: a queue that Redis has lost counts as one without units.
    MissingStockKey,
    /// Path `queued`: an entry that cannot be read is tried again for ever, before all others.
    PoisonEntryBlocks,
    /// Path `queued`: all replicas are one consumer, which each deletes when it ends.
    OneConsumerName,
    /// The routes of admins are open to every caller.
    AdminWithoutLogin,
}

impl InjectedBug {
    /// The name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReleaseBeforeCommit => "release-before-commit",
            Self::NoStockCondition => "no-stock-condition",
            Self::IgnoredDecrement => "ignored-decrement",
            Self::DecrementBeforeDuplicateCheck => "decrement-before-duplicate-check",
            Self::LockRefusalAcknowledged => "lock-refusal-acknowledged",
            Self::RoundedOrderIds => "rounded-order-ids",
            Self::LyingAudit => "lying-audit",
            Self::SetnxWithoutExpire => "setnx-without-expire",
            Self::DelWithoutOwnerCheck => "del-without-owner-check",
            Self::GetThenDel => "get-then-del",
            Self::NoWatchdog => "no-watchdog",
            Self::WatchdogNotRearmed => "watchdog-not-rearmed",
            Self::RenewWithoutOwnerCheck => "renew-without-owner-check",
            Self::OwnerCheckAlwaysTrue => "owner-check-always-true",
            Self::LostWakeUp => "lost-wake-up",
            Self::WaitOnAnotherConnection => "wait-on-another-connection",
            Self::RedlockWithoutElapsedTime => "redlock-without-elapsed-time",
            Self::TokenFromRedis => "token-from-redis",
            Self::FenceAtWriteOnly => "fence-at-write-only",
            Self::CommitAfterLockWait => "commit-after-lock-wait",
            Self::RetryWithFreshId => "retry-with-fresh-id",
            Self::AnswerBeforeCommit => "answer-before-commit",
            Self::AbortWithClient => "abort-with-client",
            Self::SoldOutForEver => "sold-out-for-ever",
            Self::LostCompensation => "lost-compensation",
            Self::NoTimeWindow => "no-time-window",
            Self::MissingStockKey => "missing-stock-key",
            Self::PoisonEntryBlocks => "poison-entry-blocks",
            Self::OneConsumerName => "one-consumer-name",
            Self::AdminWithoutLogin => "admin-without-login",
        }
    }
}

/// The load that every cell of a run gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Users who want the voucher.
    pub users: usize,
    /// Units on sale.
    pub stock: u64,
    /// Connections kept busy.
    pub connections: usize,
    /// Simultaneous requests of each user, each with its own idempotency key.
    pub requests_per_user: usize,
    /// Extra milliseconds of work inside the locked section.
    pub work_ms: u64,
    /// A bug of every replica, to show that the comparison finds it.
    #[serde(alias = "plant")]
    pub injected_bug: Option<InjectedBug>,
    /// When replicas answer.
    #[serde(alias = "path")]
    pub mode: PurchaseMode,
    /// How they write orders.
    #[serde(default)]
    pub writer: Writer,
    /// What they are.
    #[serde(default)]
    pub fleet: Fleet,
}

impl Load {
    /// The load of the comparison's cells by default.
    pub const DEFAULT: Self = Self {
        users: 700,
        stock: 100,
        connections: 96,
        requests_per_user: 3,
        work_ms: 0,
        injected_bug: None,
        mode: PurchaseMode::Direct,
        writer: Writer::Single,
        fleet: Fleet::RUST,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_flag_is_kept_once_with_its_last_value() {
        let mut flags = ["--lab", "--lease-ms", "1000"].map(str::to_owned).to_vec();
        set(&mut flags, "--lease-ms", "300");
        set(&mut flags, "--fenced", "");
        assert_eq!(flags, ["--lab", "--lease-ms", "300", "--fenced"]);
    }
}
