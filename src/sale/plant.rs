//! Deliberate bugs, to show that the laboratory catches them. Refused without `--lab`.
//!
//! Those of locks are `distlock::plant`'s, and chosen once, at the start. What the others change is
//! marked by their names: in `stepwise` and `section` (the writer), `mod` (the task of a purchase),
//! `catalogue` ("sold out"), `queued/pump` (tickets), `lock/mod` (tokens) and `app` (the audit).
//! Without a plant each costs a comparison, or nothing.

use distlock::{LockKind, Plant as LockPlant};
use tokio::task::AbortHandle;

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Plant {
    /// set-nx: the key has no lease.
    SetnxWithoutExpire,
    /// lua-release: the release is a bare DEL.
    DelWithoutOwnerCheck,
    /// lua-release: the release is GET, then DEL.
    GetThenDel,
    /// redisson: nobody renews the lease.
    NoWatchdog,
    /// redisson: a renewal without an answer is the last one.
    WatchdogNotRearmed,
    /// redisson: a renewal prolongs whoever's lock it is.
    RenewWithoutOwnerCheck,
    /// redisson: release and renewal say yes to anybody.
    OwnerCheckAlwaysTrue,
    /// redisson: a waiter trusts the message of the release alone.
    LostWakeUp,
    /// redisson: replicas are asked for confirmations on another connection.
    WaitOnAnotherConnection,
    /// red: a majority counts however long the asking took.
    RedWithoutElapsedTime,
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
    /// A purchase is dropped with its client, and its connection goes back to the pool with its
    /// transaction open.
    AbortWithClient,
    /// Path `queued`: an admitted purchase that is not written is acknowledged, and nothing of it
    /// is given back.
    LostCompensation,
    /// The audit tells that all is well.
    LyingAudit,
    /// What was sold out once is sold out for ever.
    SoldOutForEver,
}

impl Plant {
    /// The bug of the lock, if it is one.
    pub fn of_lock(self) -> Option<LockPlant> {
        Some(match self {
            Self::SetnxWithoutExpire => LockPlant::SetnxWithoutExpire,
            Self::DelWithoutOwnerCheck => LockPlant::DelWithoutOwnerCheck,
            Self::GetThenDel => LockPlant::GetThenDel,
            Self::NoWatchdog => LockPlant::NoWatchdog,
            Self::WatchdogNotRearmed => LockPlant::WatchdogNotRearmed,
            Self::RenewWithoutOwnerCheck => LockPlant::RenewWithoutOwnerCheck,
            Self::OwnerCheckAlwaysTrue => LockPlant::OwnerCheckAlwaysTrue,
            Self::LostWakeUp => LockPlant::LostWakeUp,
            Self::WaitOnAnotherConnection => LockPlant::WaitOnAnotherConnection,
            Self::RedWithoutElapsedTime => LockPlant::RedWithoutElapsedTime,
            Self::TokenFromRedis
            | Self::FenceAtWriteOnly
            | Self::CommitAfterLockWait
            | Self::RetryWithFreshId
            | Self::AnswerBeforeCommit
            | Self::ReleaseBeforeCommit
            | Self::NoStockCondition
            | Self::AbortWithClient
            | Self::LostCompensation
            | Self::LyingAudit
            | Self::SoldOutForEver => return None,
        })
    }

    /// Whether it is a bug of the writer `single`.
    pub fn is_of_single(self) -> bool {
        self.of_lock().is_none()
            && !matches!(self, Self::LyingAudit | Self::SoldOutForEver | Self::LostCompensation)
    }

    /// The only kind of lock that can have it, if so.
    pub fn kind(self) -> Option<LockKind> {
        self.of_lock().map(LockPlant::kind)
    }
}

/// Aborts a task when it is dropped.
pub(super) struct Leash(pub(super) Option<AbortHandle>);

impl Leash {
    /// Leaves the task alone.
    pub(super) fn let_go(mut self) {
        self.0 = None;
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    /// The other way round: a bug of a lock that has no name here does not compile.
    fn named(bug: LockPlant) -> Plant {
        match bug {
            LockPlant::SetnxWithoutExpire => Plant::SetnxWithoutExpire,
            LockPlant::DelWithoutOwnerCheck => Plant::DelWithoutOwnerCheck,
            LockPlant::GetThenDel => Plant::GetThenDel,
            LockPlant::NoWatchdog => Plant::NoWatchdog,
            LockPlant::WatchdogNotRearmed => Plant::WatchdogNotRearmed,
            LockPlant::RenewWithoutOwnerCheck => Plant::RenewWithoutOwnerCheck,
            LockPlant::OwnerCheckAlwaysTrue => Plant::OwnerCheckAlwaysTrue,
            LockPlant::LostWakeUp => Plant::LostWakeUp,
            LockPlant::WaitOnAnotherConnection => Plant::WaitOnAnotherConnection,
            LockPlant::RedWithoutElapsedTime => Plant::RedWithoutElapsedTime,
        }
    }

    #[test]
    fn every_bug_of_a_lock_has_one_name_and_every_name_the_bug_that_it_says() {
        for plant in Plant::value_variants() {
            if let Some(bug) = plant.of_lock() {
                assert_eq!(named(bug), *plant);
            }
        }
    }
}
