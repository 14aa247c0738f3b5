//! Presets of cells: the smoke run, the story, and everything.

use clap::ValueEnum as _;
use loadtest_judge::setting::{Guards, Scope};
use serde::Serialize;
use testbed::Replication;

use crate::cell_axes::{CellAxes, PurchaseMode};
use crate::cell_spec::CellSpec;
use crate::faults::{
    EnsembleFault, FaultKind, Link, NetworkFault, PairFault, SentinelFault, TopologyFault,
};
use crate::injected_bugs::DEFAULT_SEEDS;
use crate::lock::Lock;
use crate::matrix_axes::{Axes, NotGenerated};
use crate::predict::Scenario;
use crate::seeded_rng::SeededRng;
use crate::topology::Topology;

/// Cells that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// Every lock and every fault of single servers at least once, in a few minutes.
    Smoke,
    /// Every topology at least once, without faults and with some.
    SmokeTopologies,
    /// What a lock is good for.
    Story,
    /// Everything that has a prediction.
    Full,
}

impl Preset {
    /// The name of its flag.
    pub fn name(self) -> &'static str {
        match self {
            Self::Smoke => "smoke",
            Self::SmokeTopologies => "smoke-topologies",
            Self::Story => "story",
            Self::Full => "full",
        }
    }

    /// Draws `count` of these cells by the seed.
    pub fn sample(trials: Vec<CellSpec>, count: usize, seed: u64) -> Vec<CellSpec> {
        SeededRng::of(seed, "sample").some_of(trials, count)
    }

    /// Names of the bugs that are injected after its cells, and seeds of each. None in the smoke
    /// run: a test of its own injects some.
    pub fn bugs(self) -> (&'static [&'static str], u64) {
        match self {
            Self::Smoke | Self::SmokeTopologies => (&[], DEFAULT_SEEDS),
            Self::Story => (&STORY_BUGS, 1),
            Self::Full => (&["all"], DEFAULT_SEEDS),
        }
    }

    /// Names of the bugs injected by default, and seeds of each. A matrix without a preset, and a
    /// sample of one, has none.
    pub fn default_bugs(preset: Option<Self>, is_sample: bool) -> (&'static [&'static str], u64) {
        match preset {
            Some(preset) if !is_sample => preset.bugs(),
            _ => (&[], DEFAULT_SEEDS),
        }
    }

    /// The preset's cells, and combinations that are not generated.
    pub fn trials(self) -> (Vec<CellSpec>, Vec<NotGenerated>) {
        match self {
            Self::Smoke => (smoke(), Vec::new()),
            Self::SmokeTopologies => (smoke_topologies(), Vec::new()),
            Self::Story => (story(), Vec::new()),
            Self::Full => full(),
        }
    }
}

/// Bugs that the story ends with: one of a lock, one of the sale, one of its account, none of which
/// needs a fault to show.
const STORY_BUGS: [&str; 3] = ["release-before-commit", "no-stock-condition", "lying-audit"];

/// For each fault the lock under which the smoke run has it: all locks but one have a turn, and the
/// last one, `none`, has its cell without a fault.
const SMOKE_FAULTS: [(FaultKind, Lock); 47] = [
    (FaultKind::KillReplica, Lock::Redisson),
    (FaultKind::FreezeReplica, Lock::LuaRelease),
    (FaultKind::StarveReplica, Lock::Redisson),
    (FaultKind::RollingRestart, Lock::Redisson),
    (FaultKind::RestartRedis, Lock::Reentrant),
    (FaultKind::FlushRedis, Lock::Fair),
    (FaultKind::FlushScripts, Lock::Redisson),
    (FaultKind::EvictRedis, Lock::ReadWrite),
    (FaultKind::FreezeRedis, Lock::SetNx),
    (FaultKind::FailOverRedis, Lock::Redisson),
    (FaultKind::Sentinel(SentinelFault::MasterLost), Lock::Redisson),
    (FaultKind::Sentinel(SentinelFault::OldMasterReturns), Lock::Redisson),
    (FaultKind::RedisClock, Lock::SetnxExpire),
    (FaultKind::PauseRedis, Lock::Redisson),
    (FaultKind::BusyRedis, Lock::Redisson),
    (FaultKind::RedisTooFewReplicas, Lock::Redisson),
    (FaultKind::RedisOutOfMemory, Lock::Redisson),
    (FaultKind::RedisDiskFull, Lock::Redisson),
    (FaultKind::RestartDatabase, Lock::MysqlNamed),
    (FaultKind::FreezeDatabase, Lock::MysqlTable),
    (FaultKind::DatabaseDiskFull, Lock::Redisson),
    (FaultKind::FailOverDatabase(Replication::SemiSync), Lock::Redisson),
    (FaultKind::FailOverDatabase(Replication::Async), Lock::Redisson),
    (FaultKind::Network(NetworkFault::Cut, Link::Redis), Lock::OwnerCheck),
    (FaultKind::Network(NetworkFault::Delay, Link::Redis), Lock::GetsetTimestamp),
    (FaultKind::Network(NetworkFault::Reset, Link::Redis), Lock::Multi),
    (FaultKind::Network(NetworkFault::HalfOpen, Link::Redis), Lock::Redlock),
    (FaultKind::Network(NetworkFault::Cut, Link::Database), Lock::MysqlRow),
    (FaultKind::Network(NetworkFault::Delay, Link::Database), Lock::Local),
    (FaultKind::Network(NetworkFault::Reset, Link::Database), Lock::Redisson),
    (FaultKind::Network(NetworkFault::HalfOpen, Link::Database), Lock::Redisson),
    (FaultKind::Network(NetworkFault::Cut, Link::Replica), Lock::Redisson),
    (FaultKind::Network(NetworkFault::Delay, Link::Replica), Lock::Redisson),
    (FaultKind::Network(NetworkFault::Reset, Link::Replica), Lock::Redisson),
    (FaultKind::Network(NetworkFault::HalfOpen, Link::Replica), Lock::Redisson),
    (FaultKind::Network(NetworkFault::Cut, Link::Zookeeper), Lock::Zookeeper),
    (FaultKind::Network(NetworkFault::Delay, Link::Zookeeper), Lock::Zookeeper),
    (FaultKind::Network(NetworkFault::Reset, Link::Zookeeper), Lock::Zookeeper),
    (FaultKind::Network(NetworkFault::HalfOpen, Link::Zookeeper), Lock::Zookeeper),
    (FaultKind::LoseCommit, Lock::Redisson),
    (FaultKind::LoseScript, Lock::Redisson),
    (FaultKind::HangUp, Lock::Redisson),
    (FaultKind::LosePackets(Link::Redis), Lock::Redisson),
    (FaultKind::LosePackets(Link::Database), Lock::MysqlTable),
    (FaultKind::LosePackets(Link::Replica), Lock::Redisson),
    (FaultKind::LosePackets(Link::Zookeeper), Lock::Zookeeper),
    (FaultKind::TwoAtOnce, Lock::Redisson),
];

/// For each fault of several servers the topology and the lock of its cell.
const TOPOLOGY_FAULTS: [(TopologyFault, Topology, Lock); TopologyFault::ALL.len()] = {
    use Topology as T;
    use TopologyFault as F;
    [
        (F::Ensemble(EnsembleFault::LeaderLost), T::Ensemble, Lock::Zookeeper),
        (F::Ensemble(EnsembleFault::SplitBrain), T::Ensemble, Lock::Etcd),
        (F::Ensemble(EnsembleFault::DiskFull), T::Ensemble, Lock::Zookeeper),
        (F::SlotMoves, T::RedisCluster, Lock::Redisson),
        (F::ClusterFailover, T::RedisCluster, Lock::Redisson),
        (F::Pair(PairFault::ReplicaLags), T::SemiSync, Lock::Redisson),
        (F::Pair(PairFault::OldPrimaryReturns), T::SemiSync, Lock::Redisson),
        (F::CertificationConflict, T::Galera, Lock::Redisson),
        (F::NodeLeaves, T::Galera, Lock::Redisson),
        (F::ShardLost, T::Sharded, Lock::Redisson),
        (F::ThreeAtOnce, T::Replicated, Lock::Zookeeper),
    ]
};

/// The failovers of topologies whose servers the fault would else bring along.
const OWN_FAILOVERS: [(FaultKind, Topology); 4] = [
    (FaultKind::Sentinel(SentinelFault::MasterLost), Topology::Sentinel),
    (FaultKind::Sentinel(SentinelFault::OldMasterReturns), Topology::Sentinel),
    (FaultKind::FailOverDatabase(Replication::SemiSync), Topology::SemiSync),
    (FaultKind::FailOverDatabase(Replication::Async), Topology::Async),
];

/// Every lock and every fault of single servers at least once, in a few minutes.
fn smoke() -> Vec<CellSpec> {
    let plain =
        |lock, scope, guards| CellSpec::plain(CellAxes { lock, scope, guards, replicas: 2 });
    let mut trials = vec![
        plain(Lock::None, Scope::User, Guards::On),
        CellSpec { scenario: Scenario::Inside, ..plain(Lock::Redisson, Scope::User, Guards::Off) },
        frozen(Lock::Redisson, Scenario::FrozenUnfenced, 2),
        frozen(Lock::Redisson, Scenario::FrozenFenced, 2),
    ];
    trials.extend(SMOKE_FAULTS.map(|(fault, lock)| CellSpec {
        fault: Some(fault),
        ..plain(lock, Scope::User, Guards::On)
    }));
    let is_there = |lock: &Lock| trials.iter().any(|trial| trial.axes.lock == *lock);
    let others: Vec<Lock> =
        Lock::value_variants().iter().copied().filter(|lock| !is_there(lock)).collect();
    trials.extend(others.into_iter().map(|lock| plain(lock, Scope::User, Guards::On)));
    trials
}

/// Each topology under a lock per voucher without guards, where nothing but the lock keeps
/// purchases apart; shards with guards, which they have always. Then with guards: replicas of the
/// service are killed or restarted, and each fault happens that needs several servers.
fn smoke_topologies() -> Vec<CellSpec> {
    use Topology as T;
    let lock = |topology| match topology {
        T::Ensemble | T::Replicated => Lock::Zookeeper,
        T::SemiSync | T::Async => Lock::MysqlRow,
        T::Single | T::Sentinel | T::RedisCluster | T::Galera | T::Sharded => Lock::Redisson,
    };
    let several = Topology::value_variants().iter().copied().filter(|one| !one.is_single());
    let mut trials = Vec::new();
    for topology in several {
        let replicas = 2;
        let axes = |scope, guards| CellAxes { lock: lock(topology), scope, guards, replicas };
        let guards = if topology == T::Sharded { Guards::On } else { Guards::Off };
        let alone = CellSpec::plain(axes(Scope::Voucher, guards));
        trials.push(CellSpec { topology, ..alone });
        let guarded = CellSpec::plain(axes(Scope::User, Guards::On));
        // The others have a failover, and all but one restart every replica as well.
        if matches!(topology, T::Galera | T::Sharded | T::Ensemble | T::Replicated) {
            let kill = FaultKind::KillReplica;
            trials.push(CellSpec { topology, fault: Some(kill), ..guarded });
        }
        // Restarts take the longest. What these have of servers is also in others, or has a fault.
        if !matches!(topology, T::Async | T::Sharded | T::Replicated) {
            let restart = FaultKind::RollingRestart;
            trials.push(CellSpec { topology, fault: Some(restart), ..guarded });
        }
    }
    let of_topologies =
        TOPOLOGY_FAULTS.map(|(fault, on, lock)| (FaultKind::OnTopology(fault), on, lock));
    let failovers = OWN_FAILOVERS.map(|(fault, on)| (fault, on, Lock::Redisson));
    trials.extend(of_topologies.into_iter().chain(failovers).map(|(fault, topology, lock)| {
        let axes = CellAxes { lock, scope: Scope::User, guards: Guards::On, replicas: 2 };
        CellSpec { fault: Some(fault), topology, ..CellSpec::plain(axes) }
    }));
    let (lock, scope) = (Lock::Etcd, Scope::Voucher);
    let axes = CellAxes { lock, scope, guards: Guards::Off, replicas: 2 };
    trials.push(CellSpec { topology: T::Ensemble, ..CellSpec::plain(axes) });
    trials
}

/// What a lock is good for, in the order of the story.
///
/// First the local lock against a distributed one, on one replica and on three, without the
/// database's guards and with them. Then work that outlasts a lease, and a frozen holder without
/// and with fencing.
fn story() -> Vec<CellSpec> {
    let mut trials = Vec::new();
    for guards in [Guards::Off, Guards::On] {
        for scope in [Scope::User, Scope::Voucher] {
            for replicas in [1, 3] {
                for lock in [Lock::Local, Lock::Redisson] {
                    trials.push(CellSpec::plain(CellAxes { lock, scope, guards, replicas }));
                }
            }
        }
    }
    let axes = |lock| CellAxes { lock, scope: Scope::Voucher, guards: Guards::Off, replicas: 3 };
    let long = |lock, scenario| CellSpec::of(axes(lock), scenario, None);
    trials.extend([
        long(Lock::LuaRelease, Scenario::LongWorkIgnored),
        long(Lock::LuaRelease, Scenario::LongWorkStopped),
        long(Lock::Redisson, Scenario::LongWorkKept),
        frozen(Lock::Redisson, Scenario::FrozenUnfenced, 3),
        frozen(Lock::Redisson, Scenario::FrozenFenced, 3),
    ]);
    trials
}

/// Everything that has a prediction, on two replicas and, without a fault, on one and on four. On
/// several servers the faults that single ones cannot have.
fn full() -> (Vec<CellSpec>, Vec<NotGenerated>) {
    let locks = Lock::value_variants().to_vec();
    let scopes = vec![Scope::User, Scope::Voucher];
    let guards = vec![Guards::Off, Guards::On];
    let scenarios = Scenario::value_variants().to_vec();
    let (topologies, mode) = (vec![Topology::Single], PurchaseMode::Direct);
    let without_fault = Axes {
        locks: locks.clone(),
        scopes: scopes.clone(),
        guards: guards.clone(),
        replicas: vec![1, 2, 4],
        scenarios: scenarios.clone(),
        faults: vec![None],
        topologies: topologies.clone(),
        mode,
    };
    let faults = FaultKind::ALL.map(Some).to_vec();
    let replicas = vec![2];
    let with_fault = Axes { locks, scopes, guards, replicas, scenarios, faults, topologies, mode };
    let several = Topology::value_variants().iter().copied().filter(|one| !one.is_single());
    let on_several_servers = Axes {
        guards: vec![Guards::On],
        scenarios: vec![Scenario::ShortWork],
        faults: TopologyFault::ALL.map(FaultKind::OnTopology).map(Some).to_vec(),
        topologies: several.collect(),
        ..with_fault.clone()
    };
    let (mut trials, mut not_generated) = without_fault.trials();
    for (further, also_not) in [with_fault.trials(), on_several_servers.trials()] {
        trials.extend(further);
        for one in also_not {
            match not_generated.iter_mut().find(|known| known.because == one.because) {
                Some(known) => known.combinations += one.combinations,
                None => not_generated.push(one),
            }
        }
    }
    (trials, not_generated)
}

fn frozen(lock: Lock, scenario: Scenario, replicas: u16) -> CellSpec {
    let axes = CellAxes { lock, scope: Scope::Voucher, guards: Guards::Off, replicas };
    CellSpec::of(axes, scenario, Some(FaultKind::FreezeReplica))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_smoke_run_has_every_lock_and_every_fault() {
        let trials = smoke();
        for lock in Lock::value_variants() {
            assert!(trials.iter().any(|trial| trial.axes.lock == *lock), "{lock:?}");
        }
        for fault in FaultKind::ALL {
            assert!(trials.iter().any(|trial| trial.fault == Some(fault)), "{fault:?}");
        }
    }

    #[test]
    fn the_manual_says_how_many_cells_each_preset_has() {
        let manual = include_str!("../../../docs/laboratory.md");
        for (before, preset) in [
            ("every fault of single servers: ", Preset::Smoke),
            ("several servers of each sort: ", Preset::SmokeTopologies),
            ("**`--full`** has ", Preset::Full),
        ] {
            let (_, text) = manual.split_once(before).expect(before);
            let (figure, _) = text.split_once(" cells").expect("a figure");
            assert_eq!(figure.replace(',', ""), preset.trials().0.len().to_string(), "{before}");
        }
    }

    #[test]
    fn the_topologies_have_a_cell_of_each_fault_that_needs_several_servers() {
        let trials = smoke_topologies();
        let failovers = OWN_FAILOVERS.map(|(fault, _)| fault);
        for fault in TopologyFault::ALL.map(FaultKind::OnTopology).into_iter().chain(failovers) {
            let count = trials.iter().filter(|trial| trial.fault == Some(fault)).count();
            assert_eq!(count, 1, "{fault:?}");
        }
    }

    #[test]
    fn the_smoke_run_has_a_lock_inside_the_transaction() {
        let inside = |trial: &CellSpec| trial.scenario == Scenario::Inside;
        let trial = smoke().into_iter().find(inside).expect("one");
        assert!(!trial.expectation().expect("a prediction").prediction.holds(), "it is to break");
    }

    #[test]
    fn every_cell_of_a_preset_has_a_prediction_and_is_unique() {
        for trials in [smoke(), smoke_topologies(), story(), full().0] {
            let mut seen = HashSet::new();
            for trial in &trials {
                assert!(trial.expectation().is_ok(), "{trial}: {:?}", trial.expectation());
                assert_eq!(trial.supports_mode(PurchaseMode::Direct), Ok(()), "{trial}");
                assert!(seen.insert(format!("{trial:?}")), "{trial} comes twice");
            }
        }
    }

    #[test]
    fn the_story_preset_has_both_sides_of_each_comparison() {
        let trials = story();
        let has = |holds: bool, scenario: Scenario| {
            trials.iter().any(|trial| {
                trial.scenario == scenario
                    && trial.expectation().is_ok_and(|it| it.prediction.holds() == holds)
            })
        };
        assert!(has(true, Scenario::ShortWork) && has(false, Scenario::ShortWork));
        assert!(has(false, Scenario::FrozenUnfenced) && has(true, Scenario::FrozenFenced));
        assert!(has(false, Scenario::LongWorkIgnored));
        assert!(has(true, Scenario::LongWorkStopped) && has(true, Scenario::LongWorkKept));
    }
}
