use super::*;
use crate::lock::Lock;

const NORMATIVE: &str = include_str!("predictions.md");

/// One case for each line of the normative table, in its order (more where a line names
/// several).
fn cases(line: usize) -> Vec<(Family, Scenario)> {
    let with = |families: &[Family], scenario| {
        families.iter().map(|family| (*family, scenario)).collect::<Vec<_>>()
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
    assert_eq!(lines.len(), PREDICTIONS.len());
    for (index, line) in lines.iter().enumerate() {
        let [_, scope, one, many] = line[..] else { panic!("four columns: {line:?}") };
        let scopes = match scope {
            "user" => vec![Scope::User],
            "voucher" => vec![Scope::Voucher],
            "any" => vec![Scope::User, Scope::Voucher],
            other => panic!("unknown scope {other}"),
        };
        for (family, scenario) in cases(index) {
            for scope in &scopes {
                for (replicas, expected) in [(1, one), (2, many), (3, many)] {
                    let guards = Guards::Off;
                    let case = Case { family, scope: *scope, guards, replicas, scenario };
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
                let (guards, scenario) = (Guards::On, C::ShortWork);
                let case = Case { family, scope, guards, replicas, scenario };
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
                let scenario = C::ShortWork;
                let case = Case { family, scope, guards, replicas, scenario };
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
        scenario: C::LongWorkKept,
    };
    assert_eq!(prediction(case), None);
}
