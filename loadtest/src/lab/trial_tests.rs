use clap::ValueEnum as _;

use super::*;
use crate::lab::lock::Lock;
use crate::lab::predict::Scope;

fn trial(lock: Lock, scope: Scope, guards: Guards) -> Trial {
    Trial::plain(Place { lock, scope, guards, replicas: 2 })
}

#[test]
fn with_guards_on_every_cell_holds_under_every_fault_that_the_lock_can_have() {
    for lock in Lock::value_variants() {
        for scope in [Scope::User, Scope::Voucher] {
            for fault in FaultKind::ALL {
                let trial = Trial { fault: Some(fault), ..trial(*lock, scope, Guards::On) };
                let expected = trial.expectation().expect("a prediction");
                assert!(expected.prediction.holds(), "{trial}");
                assert!(expected.because.starts_with(fault.does()), "{trial}");
                let suits = fault.suits(*lock, Path::Direct);
                assert_eq!(trial.goes_on(Path::Direct), suits, "{trial}");
            }
        }
    }
}

#[test]
fn without_guards_a_fault_at_a_random_moment_is_no_cell() {
    let calm = trial(Lock::Redisson, Scope::Voucher, Guards::Off);
    for fault in FaultKind::ALL {
        assert!(Trial { fault: Some(fault), ..calm }.expectation().is_err(), "{fault:?}");
    }
}

#[test]
fn a_frozen_holder_is_a_cell_of_locks_that_lapse_and_a_fenced_one_of_those_with_tokens() {
    let frozen = |lock, circumstance| Trial {
        circumstance,
        fault: Some(FaultKind::FreezeReplica),
        ..trial(lock, Scope::Voucher, Guards::Off)
    };
    for lock in Lock::value_variants() {
        let unfenced = frozen(*lock, Circumstance::FrozenUnfenced).expectation();
        let fenced = frozen(*lock, Circumstance::FrozenFenced);
        let lapses =
            matches!(lock.family(), Family::Lease | Family::RenewedLease | Family::Session);
        assert_eq!(
            unfenced.ok().map(|expected| expected.prediction),
            lapses.then_some(Prediction::OVERSELLS),
            "{lock:?}"
        );
        let has_cell = lock.has_tokens() || *lock == Lock::MysqlRow;
        assert_eq!(fenced.expectation().is_ok(), has_cell, "{lock:?}");
        let flags = fenced.flags(&Load::USUAL, Equipment::default());
        assert_eq!(flags.contains(&"--fenced".to_owned()), lock.has_tokens(), "{lock:?}");
    }
}

#[test]
fn each_line_of_the_normative_table_is_a_cell_of_some_lock() {
    let of = |lock, scope, circumstance, fault| {
        let trial = Trial { circumstance, fault, ..trial(lock, scope, Guards::Off) };
        trial.expectation().map(|expected| expected.prediction.words())
    };
    let freeze = Some(FaultKind::FreezeReplica);
    let both = Ok("oversells, duplicates");
    let (user, voucher) = (Scope::User, Scope::Voucher);
    assert_eq!(of(Lock::None, user, Circumstance::ShortWork, None), both);
    assert_eq!(of(Lock::Local, user, Circumstance::ShortWork, None), both);
    assert_eq!(of(Lock::Redisson, user, Circumstance::ShortWork, None), Ok("oversells"));
    assert_eq!(of(Lock::Redisson, voucher, Circumstance::ShortWork, None), Ok("holds"));
    assert_eq!(of(Lock::LuaRelease, voucher, Circumstance::LongWorkIgnored, None), both);
    assert_eq!(of(Lock::LuaRelease, voucher, Circumstance::LongWorkStopped, None), Ok("holds"));
    assert!(of(Lock::SetNx, voucher, Circumstance::LongWorkStopped, None).is_err(), "bare DEL");
    assert_eq!(of(Lock::MysqlRow, voucher, Circumstance::LongWorkKept, None), Ok("holds"));
    assert_eq!(of(Lock::Redisson, user, Circumstance::Inside, None), both);
    assert_eq!(of(Lock::Zookeeper, voucher, Circumstance::FrozenUnfenced, freeze), Ok("oversells"));
    assert_eq!(of(Lock::MysqlRow, voucher, Circumstance::FrozenFenced, freeze), Ok("holds"));
    assert!(of(Lock::MysqlRow, user, Circumstance::Inside, None).is_err());
}

#[test]
fn a_fault_comes_with_a_lease_that_it_outlasts_and_long_work_with_one_that_it_outlasts() {
    let flag = |trial: &Trial, name: &str| {
        let flags = trial.flags(&trial.load(&Load::USUAL), Equipment::default());
        let at = flags.iter().position(|flag| flag == name)?;
        flags.get(at + 1)?.parse::<u64>().ok()
    };
    let calm = trial(Lock::LuaRelease, Scope::Voucher, Guards::Off);
    assert_eq!(flag(&calm, "--lease-ms"), None);
    let stopped = Trial { circumstance: Circumstance::LongWorkStopped, ..calm };
    assert_eq!(flag(&stopped, "--work-ms"), None, "only some of it outlasts the lease");
    let lease = flag(&stopped, "--lease-ms").map(std::time::Duration::from_millis);
    assert!(lease < Some(crate::lab::cell::OUTLASTING_WRITE));
    assert!(stopped.equipment(&Schedule::of(1, "any", 2)).has(Link::Database));
    for circumstance in [Circumstance::LongWorkIgnored, Circumstance::LongWorkKept] {
        let long = Trial { circumstance, ..calm };
        assert!(flag(&long, "--work-ms") > flag(&long, "--lease-ms"), "{circumstance:?}");
    }
    let fault = Some(FaultKind::FreezeReplica);
    let frozen = Trial { fault, ..trial(Lock::LuaRelease, Scope::User, Guards::On) };
    let lease_ms = flag(&frozen, "--lease-ms").expect("a lease");
    for seed in 0..100 {
        assert!(Schedule::of(seed, "any", 2).lasts_ms > lease_ms);
    }
}
