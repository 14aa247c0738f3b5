use clap::ValueEnum as _;
use loadtest_judge::setting::Scope;

use super::*;
use crate::lock::Lock;

fn trial(lock: Lock, scope: Scope, guards: Guards) -> CellSpec {
    CellSpec::plain(CellAxes { lock, scope, guards, replicas: 2 })
}

#[test]
fn with_guards_on_every_cell_holds_but_where_an_asynchronous_primary_is_lost() {
    for lock in Lock::value_variants() {
        for scope in [Scope::User, Scope::Voucher] {
            for fault in FaultKind::ALL {
                let trial = CellSpec { fault: Some(fault), ..trial(*lock, scope, Guards::On) };
                let expected = trial.expectation().expect("a prediction");
                let is_lost = fault == FaultKind::FailOverDatabase(Replication::Async);
                let prediction = if is_lost { Prediction::LOSES } else { Prediction::HOLDS };
                assert_eq!(expected.prediction, prediction, "{trial}");
                assert!(expected.because.starts_with(fault.description()), "{trial}");
                let suits = fault.suits(*lock, PurchaseMode::Direct);
                assert_eq!(trial.supports_mode(PurchaseMode::Direct), suits, "{trial}");
            }
        }
    }
}

#[test]
fn an_etcd_lock_has_no_lease_that_etcd_refuses() {
    let fault = Some(FaultKind::KillReplica);
    let lease = |lock| {
        let trial = CellSpec { fault, ..trial(lock, Scope::User, Guards::On) };
        let flags = trial.flags(&Load::DEFAULT, FaultRequirements::default());
        let at = flags.iter().position(|flag| flag == "--lease-ms").expect("it has a lease");
        flags[at + 1].clone()
    };
    assert_eq!([lease(Lock::Etcd), lease(Lock::Redisson)], ["1500", "1000"]);
}

#[test]
fn without_guards_a_fault_at_a_random_moment_is_no_cell() {
    let calm = trial(Lock::Redisson, Scope::Voucher, Guards::Off);
    for fault in FaultKind::ALL {
        assert!(CellSpec { fault: Some(fault), ..calm }.expectation().is_err(), "{fault:?}");
    }
}

#[test]
fn a_frozen_holder_is_a_cell_of_locks_that_lapse_and_a_fenced_one_of_those_with_tokens() {
    let frozen = |lock, scenario| CellSpec {
        scenario,
        fault: Some(FaultKind::FreezeReplica),
        ..trial(lock, Scope::Voucher, Guards::Off)
    };
    for lock in Lock::value_variants() {
        let unfenced = frozen(*lock, Scenario::FrozenUnfenced).expectation();
        let fenced = frozen(*lock, Scenario::FrozenFenced);
        let lapses =
            matches!(lock.family(), Family::Lease | Family::RenewedLease | Family::Session);
        assert_eq!(
            unfenced.ok().map(|expected| expected.prediction),
            lapses.then_some(Prediction::OVERSELLS),
            "{lock:?}"
        );
        let has_cell = lock.has_tokens() || *lock == Lock::MysqlRow;
        assert_eq!(fenced.expectation().is_ok(), has_cell, "{lock:?}");
        let flags = fenced.flags(&Load::DEFAULT, FaultRequirements::default());
        assert_eq!(flags.contains(&"--fenced".to_owned()), lock.has_tokens(), "{lock:?}");
    }
}

#[test]
fn each_line_of_the_normative_table_is_a_cell_of_some_lock() {
    let of = |lock, scope, scenario, fault| {
        let trial = CellSpec { scenario, fault, ..trial(lock, scope, Guards::Off) };
        trial.expectation().map(|expected| expected.prediction.words())
    };
    let freeze = Some(FaultKind::FreezeReplica);
    let both = Ok("oversells, duplicates");
    let (user, voucher) = (Scope::User, Scope::Voucher);
    assert_eq!(of(Lock::None, user, Scenario::ShortWork, None), both);
    assert_eq!(of(Lock::Local, user, Scenario::ShortWork, None), both);
    assert_eq!(of(Lock::Redisson, user, Scenario::ShortWork, None), Ok("oversells"));
    assert_eq!(of(Lock::Redisson, voucher, Scenario::ShortWork, None), Ok("holds"));
    assert_eq!(of(Lock::LuaRelease, voucher, Scenario::LongWorkIgnored, None), both);
    assert_eq!(of(Lock::LuaRelease, voucher, Scenario::LongWorkStopped, None), Ok("holds"));
    assert!(of(Lock::SetNx, voucher, Scenario::LongWorkStopped, None).is_err(), "bare DEL");
    assert_eq!(of(Lock::MysqlRow, voucher, Scenario::LongWorkKept, None), Ok("holds"));
    assert_eq!(of(Lock::Redisson, user, Scenario::Inside, None), both);
    assert_eq!(of(Lock::Zookeeper, voucher, Scenario::FrozenUnfenced, freeze), Ok("oversells"));
    assert_eq!(of(Lock::MysqlRow, voucher, Scenario::FrozenFenced, freeze), Ok("holds"));
    assert!(of(Lock::MysqlRow, user, Scenario::Inside, None).is_err());
}

#[test]
fn a_fault_and_long_work_each_have_a_lease_that_they_outlast() {
    let flag = |trial: &CellSpec, name: &str| {
        let flags = trial.flags(&trial.load(&Load::DEFAULT), FaultRequirements::default());
        let at = flags.iter().position(|flag| flag == name)?;
        flags.get(at + 1)?.parse::<u64>().ok()
    };
    let calm = trial(Lock::LuaRelease, Scope::Voucher, Guards::Off);
    assert_eq!(flag(&calm, "--lease-ms"), None);
    let stopped = CellSpec { scenario: Scenario::LongWorkStopped, ..calm };
    assert_eq!(flag(&stopped, "--work-ms"), None, "only some of it outlasts the lease");
    let lease = flag(&stopped, "--lease-ms").map(std::time::Duration::from_millis);
    assert!(lease < Some(crate::cell::OUTLASTING_WRITE));
    assert!(stopped.requirements(&Schedule::of(1, "any", 2)).has(Link::Database));
    for scenario in [Scenario::LongWorkIgnored, Scenario::LongWorkKept] {
        let long = CellSpec { scenario, ..calm };
        assert!(flag(&long, "--work-ms") > flag(&long, "--lease-ms"), "{scenario:?}");
    }
    let fault = Some(FaultKind::FreezeReplica);
    let frozen = CellSpec { fault, ..trial(Lock::LuaRelease, Scope::User, Guards::On) };
    let lease_ms = flag(&frozen, "--lease-ms").expect("a lease");
    for seed in 0..100 {
        assert!(Schedule::of(seed, "any", 2).lasts_ms > lease_ms);
    }
}
