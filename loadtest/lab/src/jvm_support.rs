//! Which cells replicas in Java can be part of; the others are refused before anything is started.

use loadtest_judge::setting::Guards;
use loadtest_measure::error::{Error, Result};

use crate::cell_axes::{CellAxes, Load, PurchaseMode, Writer};
use crate::cell_spec::CellSpec;
use crate::faults::FaultKind;
use crate::fleet::{Fleet, JvmBug, ReplicasOf};
use crate::java::{Java, jar};
use crate::lock::Lock;
use crate::predict::Scenario;
use crate::topology::Topology;

/// Scenarios in which a JVM replica can take part. It has no fencing, and a holder does not notice
/// that its lock is lost: a pause of the JVM can outlast the short lease of `long-work-kept`.
const JVM_SCENARIOS: [Scenario; 4] =
    [Scenario::ShortWork, Scenario::LongWorkIgnored, Scenario::Inside, Scenario::FrozenUnfenced];

/// Faults that a JVM replica is tried under.
const JVM_FAULTS: [FaultKind; 3] =
    [FaultKind::KillReplica, FaultKind::FreezeReplica, FaultKind::FailOverRedis];

/// The locks that a JVM replica has.
const JVM_LOCKS: [Lock; 6] =
    [Lock::None, Lock::Local, Lock::SetNx, Lock::OwnerCheck, Lock::LuaRelease, Lock::Redisson];

/// Fails if a cell of the run needs what its replicas do not have, or if none can be started.
pub fn check(trials: &[CellSpec], load: &Load) -> Result<()> {
    let fleet = load.fleet;
    if fleet.replicas_of == ReplicasOf::Rust {
        let only_jvm = fleet != Fleet::RUST;
        return if only_jvm {
            usage("--jvm-local-lock and --inject-jvm-bug go with --replicas-of jvm or mixed")
        } else {
            Ok(())
        };
    }
    if load.mode == PurchaseMode::Queued {
        return usage("JVM replicas have no --mode queued");
    }
    if load.writer == Writer::Grouped {
        return usage("JVM replicas have no --writer grouped");
    }
    if load.injected_bug.is_some() && fleet.replicas_of == ReplicasOf::Jvm {
        return usage("--inject-bug is for replicas in Rust; JVM ones have --inject-jvm-bug");
    }
    trials.iter().try_for_each(|trial| check_trial(*trial, fleet))?;
    jar()?;
    Java::find()?.version().map(drop)
}

fn check_trial(trial: CellSpec, fleet: Fleet) -> Result<()> {
    let CellAxes { lock, replicas, guards, .. } = trial.axes;
    let lacks = |what: &str, name: &str, known: &[&str]| {
        usage(&format!("JVM replicas have no {what} {name}; they have {}", known.join(", ")))
    };
    if !JVM_LOCKS.contains(&lock) {
        return lacks("lock", lock.name(), &JVM_LOCKS.map(Lock::name));
    }
    if !JVM_SCENARIOS.contains(&trial.scenario) {
        return lacks("scenario", trial.scenario.name(), &JVM_SCENARIOS.map(Scenario::name));
    }
    if let Some(fault) = trial.fault.filter(|fault| !JVM_FAULTS.contains(fault)) {
        return lacks("fault", fault.name(), &JVM_FAULTS.map(FaultKind::name));
    }
    if !trial.topology.is_single() {
        return lacks("topology", trial.topology.name(), &[Topology::Single.name()]);
    }
    match fleet.jvm_bug {
        Some(JvmBug::SelfInvocation) if trial.scenario == Scenario::Inside => {
            return usage(
                "--inject-jvm-bug self-invocation needs a lock around the transaction: leave out \
                 --scenarios inside",
            );
        }
        Some(JvmBug::NoStockCondition) if guards == Guards::Off => {
            return usage(
                "--inject-jvm-bug no-stock-condition needs --guards on: without guards there is no \
                 stock condition",
            );
        }
        _ => {}
    }
    if fleet.replicas_of == ReplicasOf::Mixed && !replicas.is_multiple_of(2) {
        return usage("--replicas-of mixed needs an even number of --replicas");
    }
    Ok(())
}

fn usage(what: &str) -> Result<()> {
    Err(Error::Usage(what.to_owned()))
}

#[cfg(test)]
mod tests {
    use loadtest_judge::setting::Scope;

    use super::*;
    use crate::cell_axes::InjectedBug;

    fn refusal(lock: Lock, replicas: u16, load: &Load) -> String {
        let axes = CellAxes { lock, scope: Scope::User, guards: Guards::Off, replicas };
        let error = check(&[CellSpec::plain(axes)], load).expect_err("it is refused");
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    }

    #[test]
    fn what_replicas_in_java_do_not_have_is_refused_by_its_name() {
        let of = |replicas_of| Fleet { replicas_of, ..Fleet::RUST };
        let load = |replicas_of| Load { fleet: of(replicas_of), ..Load::DEFAULT };
        let (jvm, mixed) = (load(ReplicasOf::Jvm), load(ReplicasOf::Mixed));
        let fair = refusal(Lock::Fair, 2, &jvm);
        assert!(fair.contains("no lock fair; they have none, local, set-nx"), "{fair}");
        assert!(refusal(Lock::Local, 3, &mixed).contains("even number of --replicas"));
        let grouped = Load { writer: Writer::Grouped, ..jvm.clone() };
        assert!(refusal(Lock::Local, 2, &grouped).contains("--writer grouped"));
        let bug = Load { injected_bug: Some(InjectedBug::LyingAudit), ..jvm };
        assert!(refusal(Lock::Local, 2, &bug).contains("--inject-jvm-bug"));
        let fleet = Fleet { jvm_bug: Some(JvmBug::LyingAudit), ..Fleet::RUST };
        let rust = Load { fleet, ..Load::DEFAULT };
        assert!(refusal(Lock::Local, 2, &rust).contains("go with --replicas-of"));
    }

    #[test]
    fn a_bug_that_a_cell_does_not_have_is_refused_with_what_it_needs() {
        let load = |bug| {
            let fleet = Fleet { replicas_of: ReplicasOf::Mixed, jvm_bug: Some(bug), ..Fleet::RUST };
            Load { fleet, ..Load::DEFAULT }
        };
        let axes =
            CellAxes { lock: Lock::Local, scope: Scope::User, guards: Guards::Off, replicas: 2 };
        let inside = CellSpec::of(axes, Scenario::Inside, None);
        for (bug, trial, needed) in [
            (JvmBug::NoStockCondition, CellSpec::plain(axes), "needs --guards on"),
            (JvmBug::SelfInvocation, inside, "leave out --scenarios inside"),
        ] {
            let error = check(&[trial], &load(bug)).expect_err("the bug would do nothing");
            let said = error.to_string();
            assert!(said.contains(bug.name()) && said.contains(needed), "{said}");
            assert_eq!(error.exit_code(), 2);
        }
        let on = CellAxes { guards: Guards::On, ..axes };
        assert!(check_trial(CellSpec::plain(on), load(JvmBug::NoStockCondition).fleet).is_ok());
        assert!(check_trial(inside, load(JvmBug::LyingAudit).fleet).is_ok());
    }
}
