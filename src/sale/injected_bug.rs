//! Deliberate bugs, to show that the laboratory catches them. Refused without `--lab`.
//!
//! Bugs of locks are those of `distlock::injected_bug`, and chosen once, at the start. Where the
//! other bugs act, the code names them: search for the variant. Without an injected bug each place
//! costs a comparison, or nothing.

use distlock::{InjectedBug as LockBug, LockKind};

/// A bug to inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum InjectedBug {
    /// set-nx: the key has no lease.
    SetnxWithoutExpire,
    /// lua-release: the release is a bare DEL.
    DelWithoutOwnerCheck,
    /// lua-release: the release is GET, then DEL.
    GetThenDel,
    /// redisson: the lease is never renewed.
    NoWatchdog,
    /// redisson: a renewal without an answer is the last one.
    WatchdogNotRearmed,
    /// redisson: a renewal prolongs the lock of any owner.
    RenewWithoutOwnerCheck,
    /// redisson: release and renewal accept any owner.
    OwnerCheckAlwaysTrue,
    /// redisson: a waiter trusts the message of the release alone.
    LostWakeUp,
    /// redisson: replicas are asked for confirmations on another connection.
    WaitOnAnotherConnection,
    /// redlock: a majority counts however long the asking took.
    #[value(alias = "red-without-elapsed-time")]
    RedlockWithoutElapsedTime,
    /// Fencing tokens come from a counter in Redis, and nothing compares them. (The fence in the
    /// database would refuse the fallen ones, and with them every holder until the counter has
    /// caught up.)
    TokenFromRedis,
    /// The token is shown after the work, when the stock has been read long ago.
    FenceAtWriteOnly,
    /// A transaction with a statement that failed with 1205 is committed.
    CommitAfterLockWait,
    /// A purchase whose COMMIT was not answered is tried again under another order id, and without
    /// its request's key, by which it would be recognised.
    RetryWithFreshId,
    /// The purchase is answered before its order is committed.
    AnswerBeforeCommit,
    /// The lock is freed before the commit.
    ReleaseBeforeCommit,
    /// The stock update has lost its condition.
    NoStockCondition,
    /// The stock update has its condition, and whether it found a unit is ignored.
    IgnoredDecrement,
    /// The unit is taken before the duplicate is found, which does not give it back.
    DecrementBeforeDuplicateCheck,
    /// A purchase that does not get its lock is answered as if it had bought.
    LockRefusalAcknowledged,
    /// An order's id is answered as JavaScript reads it: rounded to 53 bits.
    RoundedOrderIds,
    /// A purchase is dropped with its client, and its connection goes back to the pool with its
    /// transaction open.
    AbortWithClient,
    /// queued mode: an admitted purchase that is not written is acknowledged, and neither its unit
    /// nor its mark is given back.
    LostCompensation,
    /// queued mode: neither the replica nor the script of the admission looks at the sale's window.
    NoTimeWindow,
    /// queued mode: a queue that Redis has lost counts as one without units.
    MissingStockKey,
    /// queued mode: an entry that cannot be read is tried again for ever, before all later ones.
    PoisonEntryBlocks,
    /// queued mode: all replicas are one consumer, which each of them deletes when it ends.
    OneConsumerName,
    /// The routes of admins are open to every caller.
    AdminWithoutLogin,
    /// The audit always reports that orders and stock agree.
    LyingAudit,
    /// A voucher that was sold out once stays so, whatever comes back.
    SoldOutForEver,
}

impl InjectedBug {
    /// The bug of the lock, if it is one.
    pub fn lock_bug(self) -> Option<LockBug> {
        Some(match self {
            Self::SetnxWithoutExpire => LockBug::SetnxWithoutExpire,
            Self::DelWithoutOwnerCheck => LockBug::DelWithoutOwnerCheck,
            Self::GetThenDel => LockBug::GetThenDel,
            Self::NoWatchdog => LockBug::NoWatchdog,
            Self::WatchdogNotRearmed => LockBug::WatchdogNotRearmed,
            Self::RenewWithoutOwnerCheck => LockBug::RenewWithoutOwnerCheck,
            Self::OwnerCheckAlwaysTrue => LockBug::OwnerCheckAlwaysTrue,
            Self::LostWakeUp => LockBug::LostWakeUp,
            Self::WaitOnAnotherConnection => LockBug::WaitOnAnotherConnection,
            Self::RedlockWithoutElapsedTime => LockBug::RedlockWithoutElapsedTime,
            Self::TokenFromRedis
            | Self::FenceAtWriteOnly
            | Self::CommitAfterLockWait
            | Self::RetryWithFreshId
            | Self::AnswerBeforeCommit
            | Self::ReleaseBeforeCommit
            | Self::NoStockCondition
            | Self::IgnoredDecrement
            | Self::DecrementBeforeDuplicateCheck
            | Self::LockRefusalAcknowledged
            | Self::RoundedOrderIds
            | Self::AbortWithClient
            | Self::LostCompensation
            | Self::NoTimeWindow
            | Self::MissingStockKey
            | Self::PoisonEntryBlocks
            | Self::OneConsumerName
            | Self::AdminWithoutLogin
            | Self::LyingAudit
            | Self::SoldOutForEver => return None,
        })
    }

    /// Whether it is a bug of the writer `single`.
    pub fn is_of_single_writer(self) -> bool {
        self.lock_bug().is_none()
            && !self.is_of_queued_mode()
            && !matches!(self, Self::LyingAudit | Self::SoldOutForEver | Self::AdminWithoutLogin)
    }

    /// Whether it is a bug of the queued mode.
    pub fn is_of_queued_mode(self) -> bool {
        matches!(
            self,
            Self::LostCompensation
                | Self::NoTimeWindow
                | Self::MissingStockKey
                | Self::PoisonEntryBlocks
                | Self::OneConsumerName
        )
    }

    /// The only kind of lock that can have it, if so.
    pub fn lock_kind(self) -> Option<LockKind> {
        self.lock_bug().map(LockBug::kind)
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    /// The other way round: a bug of a lock that has no name here does not compile.
    fn named(bug: LockBug) -> InjectedBug {
        match bug {
            LockBug::SetnxWithoutExpire => InjectedBug::SetnxWithoutExpire,
            LockBug::DelWithoutOwnerCheck => InjectedBug::DelWithoutOwnerCheck,
            LockBug::GetThenDel => InjectedBug::GetThenDel,
            LockBug::NoWatchdog => InjectedBug::NoWatchdog,
            LockBug::WatchdogNotRearmed => InjectedBug::WatchdogNotRearmed,
            LockBug::RenewWithoutOwnerCheck => InjectedBug::RenewWithoutOwnerCheck,
            LockBug::OwnerCheckAlwaysTrue => InjectedBug::OwnerCheckAlwaysTrue,
            LockBug::LostWakeUp => InjectedBug::LostWakeUp,
            LockBug::WaitOnAnotherConnection => InjectedBug::WaitOnAnotherConnection,
            LockBug::RedlockWithoutElapsedTime => InjectedBug::RedlockWithoutElapsedTime,
        }
    }

    #[test]
    fn every_bug_of_a_lock_has_one_name_and_every_name_the_bug_that_it_says() {
        for bug in InjectedBug::value_variants() {
            if let Some(lock_bug) = bug.lock_bug() {
                assert_eq!(named(lock_bug), *bug);
            }
        }
    }
}
