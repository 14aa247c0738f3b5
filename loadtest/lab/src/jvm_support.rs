//! Which cells replicas in Java can be part of; the others are refused before anything is started.

use loadtest_measure::error::{Error, Result};

use crate::cell_axes::{CellAxes, Load, PurchaseMode, Writer};
use crate::cell_spec::CellSpec;
use crate::faults::FaultKind;
use crate::fleet::{Fleet, ReplicasOf, jar, java};
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
    trials.iter().try_for_each(|trial| check_trial(*trial, fleet.replicas_of))?;
    jar()?;
    java().map(drop)
}

fn check_trial(trial: CellSpec, replicas_of: ReplicasOf) -> Result<()> {
    let CellAxes { lock, replicas, .. } = trial.axes;
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
    if replicas_of == ReplicasOf::Mixed && !replicas.is_multiple_of(2) {
        return usage("--replicas-of mixed needs an even number of --replicas");
    }
    Ok(())
}

fn usage(what: &str) -> Result<()> {
    Err(Error::Usage(what.to_owned()))
}

#[cfg(test)]
mod tests {
    use loadtest_judge::setting::{Guards, Scope};

    use super::*;
    use crate::cell_axes::InjectedBug;
    use crate::fleet::JvmBug;

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
}
