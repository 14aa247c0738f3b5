//! What each cell of the laboratory is expected to show, as data.
//!
//! The lock around a purchase is per user by default, so all it can stop is one user buying twice;
//! selling more than the stock is stopped by the stock condition, or by a lock per voucher. With
//! guards on every cell holds. With guards off, many concurrent buyers and several requests of one
//! user at once:
//!
#![doc = include_str!("predictions.md")]
//!
//! `-` means that the case says nothing. A cell that was to break and did not is as wrong as one
//! that was to hold and broke: it shows nothing.

use serde::{Deserialize, Serialize};

/// What the lock is held for.
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
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// One lock per buyer.
    User,
    /// One lock per voucher.
    Voucher,
}

impl Scope {
    /// The name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Voucher => "voucher",
        }
    }
}

/// Whether the database has the last word: unique key and stock condition.
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
#[serde(rename_all = "lowercase")]
pub enum Guards {
    /// The lock is all there is.
    Off,
    /// As in production.
    On,
}

impl Guards {
    /// The name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
        }
    }
}

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Circumstance {
    /// The work is shorter than the lease, and the lock is released after the commit.
    ShortWork,
    /// The work outlasts a lease without renewal, and the holder works on.
    LongWorkIgnored,
    /// The work outlasts a lease without renewal, and the holder stops.
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

/// Which of the two promises of a sale a cell breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Prediction {
    /// More orders than stock.
    pub oversells: bool,
    /// Users with more than one order.
    pub duplicates: bool,
}

impl Prediction {
    /// Both promises are kept.
    pub const HOLDS: Self = Self { oversells: false, duplicates: false };
    /// Too many are sold, but nobody buys twice.
    pub const OVERSELLS: Self = Self { oversells: true, duplicates: false };
    /// Neither is kept.
    pub const BREAKS: Self = Self { oversells: true, duplicates: true };

    /// Whether both promises are kept.
    pub fn holds(self) -> bool {
        self == Self::HOLDS
    }

    /// The words of the table.
    pub fn words(self) -> &'static str {
        match (self.oversells, self.duplicates) {
            (false, false) => "holds",
            (true, false) => "oversells",
            (false, true) => "duplicates",
            (true, true) => "oversells, duplicates",
        }
    }
}

/// One line of the table.
#[derive(Debug)]
pub struct Row {
    families: &'static [Family],
    scopes: &'static [Scope],
    circumstances: &'static [Circumstance],
    one: Option<Prediction>,
    many: Option<Prediction>,
}

use Circumstance as C;
use Family as F;
use Prediction as P;

const ANY_WORK: &[C] =
    &[C::ShortWork, C::LongWorkIgnored, C::LongWorkStopped, C::LongWorkKept, C::Inside];
const DISTRIBUTED: &[F] = &[F::Lease, F::RenewedLease, F::Session, F::Transaction];

/// One line with its cells in the order of the table.
const fn row(
    families: &'static [F],
    circumstances: &'static [C],
    scopes: &'static [Scope],
    one: Option<P>,
    many: Option<P>,
) -> Row {
    Row { families, scopes, circumstances, one, many }
}

/// The table, line by line as in the documentation of this module.
pub const TABLE: [Row; 11] = {
    const ANY: &[Scope] = &[Scope::User, Scope::Voucher];
    const USER: &[Scope] = &[Scope::User];
    const VOUCHER: &[Scope] = &[Scope::Voucher];
    const HOLDS: Option<P> = Some(P::HOLDS);
    const OVERSELLS: Option<P> = Some(P::OVERSELLS);
    const BREAKS: Option<P> = Some(P::BREAKS);
    const LAPSING: &[F] = &[F::Lease, F::RenewedLease, F::Session];
    const KEPT: &[F] = &[F::RenewedLease, F::Session, F::Transaction];
    [
        row(&[F::None], ANY_WORK, ANY, BREAKS, BREAKS),
        row(&[F::Local], &[C::ShortWork], USER, OVERSELLS, BREAKS),
        row(&[F::Local], &[C::ShortWork], VOUCHER, HOLDS, BREAKS),
        row(DISTRIBUTED, &[C::ShortWork], USER, OVERSELLS, OVERSELLS),
        row(DISTRIBUTED, &[C::ShortWork], VOUCHER, HOLDS, HOLDS),
        row(&[F::Lease], &[C::LongWorkIgnored], VOUCHER, BREAKS, BREAKS),
        row(&[F::Lease], &[C::LongWorkStopped], VOUCHER, HOLDS, HOLDS),
        row(KEPT, &[C::LongWorkKept], VOUCHER, HOLDS, HOLDS),
        row(&[F::Local, F::Lease, F::RenewedLease, F::Session], &[C::Inside], USER, BREAKS, BREAKS),
        row(LAPSING, &[C::FrozenUnfenced], VOUCHER, None, OVERSELLS),
        row(DISTRIBUTED, &[C::FrozenFenced], VOUCHER, None, HOLDS),
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
    pub circumstance: Circumstance,
}

/// What the case is expected to show; `None` where the table says nothing.
pub fn prediction(case: Case) -> Option<Prediction> {
    if case.guards == Guards::On {
        return Some(Prediction::HOLDS);
    }
    let row = TABLE.iter().find(|row| {
        row.families.contains(&case.family)
            && row.scopes.contains(&case.scope)
            && row.circumstances.contains(&case.circumstance)
    })?;
    if case.replicas > 1 { row.many } else { row.one }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::lock::Lock;

    const NORMATIVE: &str = include_str!("predictions.md");

    /// One case for each line of the normative table, in its order (more where a line names
    /// several).
    fn cases(line: usize) -> Vec<(Family, Circumstance)> {
        let with = |families: &[Family], circumstance| {
            families.iter().map(|family| (*family, circumstance)).collect::<Vec<_>>()
        };
        match line {
            0 => ANY_WORK.iter().map(|work| (F::None, *work)).collect(),
            1 | 2 => with(&[F::Local], C::ShortWork),
            3 | 4 => with(DISTRIBUTED, C::ShortWork),
            5 => with(&[F::Lease], C::LongWorkIgnored),
            6 => with(&[F::Lease], C::LongWorkStopped),
            7 => with(&[F::RenewedLease, F::Session, F::Transaction], C::LongWorkKept),
            8 => with(&[F::Local, F::Lease, F::RenewedLease, F::Session], C::Inside),
            9 => with(&[F::Lease, F::RenewedLease, F::Session], C::FrozenUnfenced),
            10 => with(DISTRIBUTED, C::FrozenFenced),
            _ => panic!("the table grew: line {line} has no case"),
        }
    }

    #[test]
    fn every_prediction_equals_the_normative_table() {
        let lines: Vec<Vec<&str>> = NORMATIVE
            .lines()
            .skip(2)
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        assert_eq!(lines.len(), TABLE.len());
        for (index, line) in lines.iter().enumerate() {
            let [_, scope, one, many] = line[..] else { panic!("four columns: {line:?}") };
            let scopes = match scope {
                "user" => vec![Scope::User],
                "voucher" => vec![Scope::Voucher],
                "any" => vec![Scope::User, Scope::Voucher],
                other => panic!("unknown scope {other}"),
            };
            for (family, circumstance) in cases(index) {
                for scope in &scopes {
                    for (replicas, expected) in [(1, one), (2, many), (3, many)] {
                        let guards = Guards::Off;
                        let case = Case { family, scope: *scope, guards, replicas, circumstance };
                        let words = prediction(case).map_or("-", Prediction::words);
                        assert_eq!(words, expected, "{line:?} {case:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn with_guards_on_every_case_holds() {
        for family in [F::None, F::Local, F::Lease, F::RenewedLease, F::Session, F::Transaction] {
            for scope in [Scope::User, Scope::Voucher] {
                for replicas in [1, 3] {
                    let (guards, circumstance) = (Guards::On, C::ShortWork);
                    let case = Case { family, scope, guards, replicas, circumstance };
                    assert_eq!(prediction(case), Some(Prediction::HOLDS));
                }
            }
        }
    }

    #[test]
    fn every_lock_with_short_work_is_in_the_table() {
        use clap::ValueEnum as _;
        for lock in Lock::value_variants() {
            for scope in [Scope::User, Scope::Voucher] {
                for replicas in [1, 2, 3] {
                    let (family, guards) = (lock.family(), Guards::Off);
                    let circumstance = C::ShortWork;
                    let case = Case { family, scope, guards, replicas, circumstance };
                    assert!(prediction(case).is_some(), "{case:?}");
                }
            }
        }
    }

    #[test]
    fn a_case_the_table_does_not_know_has_no_prediction() {
        let case = Case {
            family: F::Local,
            scope: Scope::Voucher,
            guards: Guards::Off,
            replicas: 3,
            circumstance: C::LongWorkKept,
        };
        assert_eq!(prediction(case), None);
    }
}
