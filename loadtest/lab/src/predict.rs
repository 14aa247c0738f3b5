//! What each cell of the laboratory is expected to show, as data.
//!
//! The lock around a purchase is per user by default, so it can only stop one user buying twice.
//! Selling more than the stock is stopped by the stock condition, or by a lock per voucher. With
//! guards on every cell holds, but for a database that loses its primary asynchronously. With
//! guards off, many concurrent buyers and several requests of one user at once:
//!
#![doc = include_str!("predictions.md")]
//!
//! `-` means that the table has no prediction. A cell that was predicted to break and did not is as
//! wrong as one that was predicted to hold and broke: it shows nothing.

use loadtest_judge::setting::{Guards, Scope};
use serde::{Deserialize, Serialize};

/// The families of locks that behave alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// No lock at all.
    None,
    /// A mutex inside one process.
    Local,
    /// Kept by a server until a fixed time.
    Lease,
    /// The same, renewed while its holder lives.
    RenewedLease,
    /// Kept while the holder's session lives.
    Session,
    /// A row lock of the transaction that writes (`mysql-row`).
    Transaction,
}

/// What happens around the locked section.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// The work is shorter than the lease, and the lock is released after the commit.
    ShortWork,
    /// The work outlasts a lease without renewal, and the holder works on.
    LongWorkIgnored,
    /// Some of the work outlasts a lease without renewal, and its holder stops.
    LongWorkStopped,
    /// Long work under a lock that lives as long as its holder.
    LongWorkKept,
    /// The lock is taken inside the transaction and freed before its commit.
    Inside,
    /// The holder is frozen past its lock, between its last look and its write.
    FrozenUnfenced,
    /// The same with a fencing token, or with a lock that is the transaction itself.
    FrozenFenced,
}

impl Scenario {
    /// The name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::ShortWork => "short-work",
            Self::LongWorkIgnored => "long-work-ignored",
            Self::LongWorkStopped => "long-work-stopped",
            Self::LongWorkKept => "long-work-kept",
            Self::Inside => "inside",
            Self::FrozenUnfenced => "frozen-unfenced",
            Self::FrozenFenced => "frozen-fenced",
        }
    }

    /// What it does, in a sentence without a subject.
    pub fn description(self) -> &'static str {
        match self {
            Self::ShortWork => "the work is shorter than the lease",
            Self::LongWorkIgnored => "the work outlasts the lease, and the holder works on",
            Self::LongWorkStopped => "some work outlasts the lease, and its holder stops",
            Self::LongWorkKept => "the work is long, and the lock lives as long as its holder",
            Self::Inside => "the lock is taken inside the transaction and free before its COMMIT",
            Self::FrozenUnfenced => {
                "the holder is frozen past its lock, between its last look and its COMMIT"
            }
            Self::FrozenFenced => {
                "the holder is frozen past its lock, but a fence or its transaction holds"
            }
        }
    }

    /// Whether holders wait until their leases have ended, or would have.
    pub fn outlasts_the_lease(self) -> bool {
        !matches!(self, Self::ShortWork | Self::Inside)
    }

    /// Whether the holder is frozen between its last look and its write.
    pub fn is_frozen(self) -> bool {
        matches!(self, Self::FrozenUnfenced | Self::FrozenFenced)
    }
}

/// Which of the promises of a sale a cell breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Prediction {
    /// More orders than stock.
    pub oversells: bool,
    /// Users with more than one order.
    pub duplicates: bool,
    /// Acknowledged orders that do not exist. Where that is not predicted, it breaks a rule of
    /// every cell, and is observed as that.
    #[serde(default)]
    pub loses: bool,
}

impl Prediction {
    /// All promises are kept.
    pub const HOLDS: Self = Self { oversells: false, duplicates: false, loses: false };
    /// Too many are sold, but no user buys twice.
    pub const OVERSELLS: Self = Self { oversells: true, ..Self::HOLDS };
    /// Too many are sold, and users buy twice.
    pub const BREAKS: Self = Self { oversells: true, duplicates: true, loses: false };
    /// Acknowledged orders are lost.
    pub const LOSES: Self = Self { loses: true, ..Self::HOLDS };

    /// Whether this has a broken promise that the other has not.
    pub fn breaks_more_than(self, other: Self) -> bool {
        self.oversells && !other.oversells
            || self.duplicates && !other.duplicates
            || self.loses && !other.loses
    }

    /// Whether all promises are kept.
    pub fn holds(self) -> bool {
        self == Self::HOLDS
    }

    /// The words of the table.
    pub fn words(self) -> &'static str {
        match (self.oversells, self.duplicates) {
            (false, false) if self.loses => "loses orders",
            (false, false) => "holds",
            (true, false) => "oversells",
            (false, true) => "duplicates",
            (true, true) => "oversells, duplicates",
        }
    }
}

/// One line of the table.
#[derive(Debug)]
pub struct PredictionRow {
    families: &'static [Family],
    scopes: &'static [Scope],
    scenarios: &'static [Scenario],
    one: Option<Prediction>,
    many: Option<Prediction>,
    because: &'static str,
}

use Family as F;
use Prediction as P;
use Scenario as C;

const ANY_WORK: &[C] =
    &[C::ShortWork, C::LongWorkIgnored, C::LongWorkStopped, C::LongWorkKept, C::Inside];
const DISTRIBUTED: &[F] = &[F::Lease, F::RenewedLease, F::Session, F::Transaction];

/// One line with its cells in the order of the table.
const fn row(
    families: &'static [F],
    scenarios: &'static [C],
    scopes: &'static [Scope],
    [one, many]: [Option<P>; 2],
    because: &'static str,
) -> PredictionRow {
    PredictionRow { families, scopes, scenarios, one, many, because }
}

const NO_EXCLUSION: &str =
    "nothing keeps two purchases apart, so both read the same stock and the same user twice";
const LOCAL_PER_USER: &str = "the lock keeps two requests of one user apart only within a \
    replica, and two users nowhere";
const LOCAL_PER_VOUCHER: &str =
    "the lock keeps all buyers of a voucher apart within a replica, but not between replicas";
const PER_USER: &str = "one user's requests follow each other on all replicas, so no user buys \
    twice; two users are not kept apart, so the last units are sold to several";
const PER_VOUCHER: &str = "all purchases of the voucher follow each other on all replicas";
const OUTLIVED: &str = "the lease ends while its holder works on, so the next holder works on the \
    same stock at the same time";
const STOPPED: &str = "the lease ends before the work, and the holder looks before each \
    statement and before COMMIT and rolls back: nothing read under a lost lock is written";
const KEPT_ALIVE: &str = "the lock lives as long as its holder works on";
const FREED_EARLY: &str = "the lock is free before the COMMIT, so the next holder does not yet \
    see the order and the stock";
const FROZEN: &str = "the lock lapses while its holder stands still between its last look and \
    its COMMIT; the next holder reads the old stock, and both sell the same unit";
const FENCED: &str = "the fence was raised in the frozen holder's own transaction (or that \
    transaction is the lock), so the next holder reads only after its COMMIT or rollback";
const GUARDED: &str = "the unique key and the stock condition of the database are enforced, \
    whatever becomes of the lock";

/// The table, line by line as in the documentation of this module.
pub const PREDICTIONS: [PredictionRow; 11] = {
    const ANY: &[Scope] = &[Scope::User, Scope::Voucher];
    const USER: &[Scope] = &[Scope::User];
    const VOUCHER: &[Scope] = &[Scope::Voucher];
    const HOLDS: Option<P> = Some(P::HOLDS);
    const OVERSELLS: Option<P> = Some(P::OVERSELLS);
    const BREAKS: Option<P> = Some(P::BREAKS);
    const LAPSING: &[F] = &[F::Lease, F::RenewedLease, F::Session];
    const KEPT: &[F] = &[F::RenewedLease, F::Session, F::Transaction];
    const TAKEN_INSIDE: &[F] = &[F::Local, F::Lease, F::RenewedLease, F::Session];
    [
        row(&[F::None], ANY_WORK, ANY, [BREAKS, BREAKS], NO_EXCLUSION),
        row(&[F::Local], &[C::ShortWork], USER, [OVERSELLS, BREAKS], LOCAL_PER_USER),
        row(&[F::Local], &[C::ShortWork], VOUCHER, [HOLDS, BREAKS], LOCAL_PER_VOUCHER),
        row(DISTRIBUTED, &[C::ShortWork], USER, [OVERSELLS, OVERSELLS], PER_USER),
        row(DISTRIBUTED, &[C::ShortWork], VOUCHER, [HOLDS, HOLDS], PER_VOUCHER),
        row(&[F::Lease], &[C::LongWorkIgnored], VOUCHER, [BREAKS, BREAKS], OUTLIVED),
        row(&[F::Lease], &[C::LongWorkStopped], VOUCHER, [HOLDS, HOLDS], STOPPED),
        row(KEPT, &[C::LongWorkKept], VOUCHER, [HOLDS, HOLDS], KEPT_ALIVE),
        row(TAKEN_INSIDE, &[C::Inside], USER, [BREAKS, BREAKS], FREED_EARLY),
        row(LAPSING, &[C::FrozenUnfenced], VOUCHER, [None, OVERSELLS], FROZEN),
        row(DISTRIBUTED, &[C::FrozenFenced], VOUCHER, [None, HOLDS], FENCED),
    ]
};

/// A case to be predicted.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The lock's family.
    pub family: Family,
    /// What it is held for.
    pub scope: Scope,
    /// Whether the database guards the sale as well.
    pub guards: Guards,
    /// Number of replicas, at least 1.
    pub replicas: u16,
    /// What happens around the locked section.
    pub scenario: Scenario,
}

/// What the case is expected to show; `None` where the table says nothing.
pub fn prediction(case: Case) -> Option<Prediction> {
    expectation(case).map(|(prediction, _)| prediction)
}

/// What the case is expected to show, and the reason in words.
pub fn expectation(case: Case) -> Option<(Prediction, &'static str)> {
    if case.guards == Guards::On {
        return Some((Prediction::HOLDS, GUARDED));
    }
    let row = PREDICTIONS.iter().find(|row| {
        row.families.contains(&case.family)
            && row.scopes.contains(&case.scope)
            && row.scenarios.contains(&case.scenario)
    })?;
    let prediction = if case.replicas > 1 { row.many } else { row.one };
    prediction.map(|prediction| (prediction, row.because))
}

#[cfg(test)]
#[path = "predict_tests.rs"]
mod tests;
