use clap::ValueEnum as _;
use loadtest_judge::setting::{Guards, Scope};
use loadtest_judge::verdict::Rule;
use testbed::Replication;

use super::*;
use crate::cell_axes::{CellAxes, PurchaseMode};
use crate::faults::{EnsembleFault, FaultKind, Link, PairFault, SentinelFault, TopologyFault};
use crate::lock::Lock;
use crate::matrix_axes::{Axes, leave_out_packet_loss};
use crate::predict::{Prediction, Scenario};
use crate::topology::Topology;

fn axes() -> Axes {
    Axes {
        locks: vec![Lock::Local, Lock::Redisson],
        scopes: vec![Scope::User, Scope::Voucher],
        guards: vec![Guards::Off, Guards::On],
        replicas: vec![1, 3],
        scenarios: vec![Scenario::ShortWork],
        faults: vec![None],
        topologies: vec![Topology::Single],
        mode: PurchaseMode::Direct,
    }
}

#[test]
fn a_topology_is_an_axis_and_refuses_what_needs_the_one_server_that_it_replaces() {
    let faults = [None, Some(FaultKind::KillReplica), Some(FaultKind::FreezeRedis)].to_vec();
    let (guards, replicas) = (vec![Guards::On], vec![2]);
    let axes = Axes { faults, guards, replicas, scopes: vec![Scope::User], ..axes() };
    let count = |topologies: &[Topology]| {
        let (trials, not) = Axes { topologies: topologies.to_vec(), ..axes.clone() }.trials();
        assert!(trials.iter().all(|trial| topologies.contains(&trial.topology)));
        (trials.len(), not.iter().map(|one| one.combinations).sum::<usize>())
    };
    assert_eq!(count(&[Topology::Single]), (6, 0));
    assert_eq!(count(&[Topology::Sentinel]), (4, 2), "it has no Redis to be frozen");
    assert_eq!(count(&[Topology::SemiSync, Topology::Galera]), (12, 0));
    assert_eq!(count(&[Topology::Ensemble]), (0, 6), "neither lock is in ZooKeeper");
}

#[test]
fn a_failover_is_a_cell_where_the_topology_has_the_servers_that_it_needs() {
    let [master, returns] =
        [SentinelFault::MasterLost, SentinelFault::OldMasterReturns].map(FaultKind::Sentinel);
    let [semi_sync, asynchronous] =
        [Replication::SemiSync, Replication::Async].map(FaultKind::FailOverDatabase);
    let faults = [master, returns, semi_sync, asynchronous, FaultKind::FlushRedis];
    let of_one = [FaultKind::RestartDatabase, FaultKind::FreezeDatabase];
    let others = [FaultKind::FailOverRedis].into_iter().chain(of_one);
    let faults = faults.into_iter().chain(others).chain([FaultKind::DatabaseDiskFull]);
    let faults: Vec<_> = faults.collect();
    let on = |topology| {
        let topologies = vec![topology];
        let (locks, guards, replicas) = (vec![Lock::Zookeeper], vec![Guards::On], vec![2]);
        let (scopes, faults) = (vec![Scope::User], faults.iter().copied().map(Some).collect());
        let axes = Axes { locks, scopes, guards, replicas, faults, topologies, ..axes() };
        axes.trials().0.iter().filter_map(|trial| trial.fault).collect::<Vec<_>>()
    };
    let of_databases = &faults[2..4];
    assert_eq!(on(Topology::Replicated), [master, returns, semi_sync]);
    assert_eq!(on(Topology::Sentinel)[..4], faults[..4]);
    assert_eq!(on(Topology::Sentinel)[4..], faults[6..], "its Redis is several");
    assert_eq!(on(Topology::RedisCluster)[..2], *of_databases, "it has no sentinels");
    for (topology, own, others) in
        [(Topology::SemiSync, semi_sync, asynchronous), (Topology::Async, asynchronous, semi_sync)]
    {
        let cells = on(topology);
        assert!(cells.contains(&own) && !cells.contains(&others), "{topology:?}: {cells:?}");
        for of_one in &faults[6..] {
            assert!(!cells.contains(of_one), "{topology:?}: {cells:?}");
        }
    }
    assert!(!on(Topology::Galera).iter().any(|fault| of_databases.contains(fault)));
}

#[test]
fn a_fault_of_several_servers_is_no_cell_where_they_are_one_or_the_lock_does_not_use_them() {
    let fault = |fault| vec![Some(FaultKind::OnTopology(fault))];
    let cells = |faults: &[Option<FaultKind>], lock, topology| {
        let (guards, scopes) = (vec![Guards::On], vec![Scope::User]);
        let (locks, topologies) = (vec![lock], vec![topology]);
        let (faults, replicas) = (faults.to_vec(), vec![2]);
        let axes = Axes { locks, scopes, guards, replicas, faults, topologies, ..axes() };
        axes.trials().0.len()
    };
    let lost = fault(TopologyFault::Ensemble(EnsembleFault::LeaderLost));
    assert_eq!(cells(&lost, Lock::Etcd, Topology::Ensemble), 1);
    assert_eq!(cells(&lost, Lock::Etcd, Topology::Single), 0, "one server leads no other");
    assert_eq!(cells(&lost, Lock::Redisson, Topology::Replicated), 0, "it uses no ensemble");
    let moves = fault(TopologyFault::SlotMoves);
    assert_eq!(cells(&moves, Lock::Redisson, Topology::RedisCluster), 1);
    assert_eq!(cells(&moves, Lock::Redisson, Topology::Sentinel), 0, "it has no slots");
    let of_a_queue = Axes {
        guards: vec![Guards::On],
        faults: moves.clone(),
        topologies: vec![Topology::RedisCluster],
        mode: PurchaseMode::Queued,
        ..axes()
    };
    let queued = |lock| Axes { locks: vec![lock], ..of_a_queue.clone() }.trials().0.len();
    assert_eq!((queued(Lock::None), queued(Lock::Redisson)), (2, 0), "queues are in slots too");
    let failover = fault(TopologyFault::ClusterFailover);
    assert_eq!(cells(&failover, Lock::MysqlRow, Topology::RedisCluster), 1, "order ids are there");
    assert_eq!(cells(&failover, Lock::Redisson, Topology::Sentinel), 0, "it is no cluster");
    assert_eq!(cells(&moves, Lock::Redlock, Topology::RedisCluster), 0, "it has its own servers");
    let conflict = fault(TopologyFault::CertificationConflict);
    assert_eq!(cells(&conflict, Lock::Redisson, Topology::Galera), 1);
    assert_eq!(cells(&conflict, Lock::Redisson, Topology::SemiSync), 0, "one takes writes");
    let returns = fault(TopologyFault::Pair(PairFault::OldPrimaryReturns));
    assert_eq!(cells(&returns, Lock::Redisson, Topology::SemiSync), 1);
    assert_eq!(cells(&returns, Lock::Redisson, Topology::Async), 0, "two would acknowledge");
    let full = fault(TopologyFault::Ensemble(EnsembleFault::DiskFull));
    assert_eq!(cells(&full, Lock::Zookeeper, Topology::Ensemble), 1);
    assert_eq!(cells(&full, Lock::Etcd, Topology::Ensemble), 0, "it needs no C library");
    let leaves = fault(TopologyFault::NodeLeaves);
    assert_eq!(cells(&leaves, Lock::Redisson, Topology::Galera), 1);
    assert_eq!(cells(&leaves, Lock::Redisson, Topology::Sharded), 0, "no node is there");
    let shard = fault(TopologyFault::ShardLost);
    assert_eq!(cells(&shard, Lock::MysqlNamed, Topology::Sharded), 1);
    assert_eq!(cells(&shard, Lock::MysqlRow, Topology::Sharded), 0, "its row is the front's");
    let three = fault(TopologyFault::ThreeAtOnce);
    assert_eq!(cells(&three, Lock::Zookeeper, Topology::Replicated), 1);
    assert_eq!(cells(&three, Lock::Zookeeper, Topology::Ensemble), 0, "it has one database");
}

#[test]
fn the_matrix_is_the_product_of_its_axes_each_cell_once() {
    let twice = Axes { replicas: vec![1, 3, 1], ..axes() };
    for axes in [axes(), twice] {
        let (trials, not_generated) = axes.trials();
        assert_eq!((trials.len(), not_generated.len()), (16, 0));
    }
}

#[test]
fn combinations_without_a_prediction_are_no_cells_and_are_counted_with_the_reason() {
    let faults = vec![None, Some(FaultKind::KillReplica)];
    let (trials, not_generated) = Axes { faults, ..axes() }.trials();
    assert_eq!(trials.len(), 16 + 8, "with guards on only");
    let [one] = &not_generated[..] else { panic!("{not_generated:?}") };
    assert_eq!(one.combinations, 8);
    assert!(one.because.contains("without guards"), "{}", one.because);
    let all = Axes {
        locks: Lock::value_variants().to_vec(),
        scenarios: Scenario::value_variants().to_vec(),
        faults: std::iter::once(None).chain(FaultKind::ALL.map(Some)).collect(),
        ..axes()
    };
    let product = all.locks.len() * 2 * 2 * 2 * all.scenarios.len() * all.faults.len();
    let (trials, not_generated) = all.trials();
    let counted: usize = not_generated.iter().map(|one| one.combinations).sum();
    assert_eq!(trials.len() + counted, product);
}

#[test]
fn a_machine_that_can_lose_no_packet_has_no_cell_of_that_and_is_asked_only_for_one() {
    let cells = |faults: Vec<Option<FaultKind>>, why_not: Option<&str>| {
        let axes = Axes { faults, guards: vec![Guards::On], ..axes() };
        leave_out_packet_loss(axes.trials(), || why_not.map(str::to_owned))
    };
    let lossy = Some(FaultKind::LosePackets(Link::Redis));
    let why_not = Some("cannot lose packets");
    let (trials, not_generated) = cells(vec![None, lossy], None);
    assert_eq!((trials.len(), not_generated), (16, vec![]));
    let (trials, not_generated) = cells(vec![None, lossy], why_not);
    let because = "cannot lose packets".to_owned();
    assert_eq!((trials.len(), not_generated), (8, vec![NotGenerated { because, combinations: 8 }]));
    let (trials, _) = leave_out_packet_loss(axes().trials(), || panic!("no packet is lost"));
    assert_eq!(trials.len(), 16);
    let (trials, not_generated) = cells(vec![lossy], why_not);
    let error = check(&trials, &not_generated).expect_err("no cell");
    assert!(error.to_string().contains("cannot lose packets"), "{error}");
}

#[test]
fn in_the_queued_mode_each_number_of_replicas_has_a_cell_for_each_possible_fault() {
    let faults: Vec<_> = std::iter::once(None).chain(FaultKind::known().map(Some)).collect();
    let all = Axes {
        locks: vec![Lock::None, Lock::Redisson],
        scenarios: Scenario::value_variants().to_vec(),
        faults,
        mode: PurchaseMode::Queued,
        ..axes()
    };
    let product = 2 * 2 * 2 * 2 * all.scenarios.len() * all.faults.len();
    let (trials, not_generated) = all.trials();
    let counted: usize = not_generated.iter().map(|one| one.combinations).sum();
    assert_eq!(trials.len() + counted, product);
    // Not those of ZooKeeper, and of points in a purchase under a lock.
    let with_fault = FaultKind::ALL.len() - 5;
    assert_eq!(trials.len(), 2 * (1 + with_fault));
    for CellSpec { axes, scenario, .. } in trials {
        let CellAxes { lock, scope, guards, .. } = axes;
        assert_eq!((lock, scope, guards), (Lock::None, Scope::User, Guards::On));
        assert_eq!(scenario, Scenario::ShortWork);
    }
    let (none, why) = Axes { mode: PurchaseMode::Queued, ..axes() }.trials();
    let error = check(&none, &why).expect_err("no cell");
    assert!(error.to_string().contains("the mode queued takes no lock"), "{error}");
}

#[test]
fn a_matrix_beyond_its_bounds_is_a_usage_error_that_says_why_there_is_no_cell() {
    let checked = |axes: Axes| {
        let (trials, not_generated) = axes.trials();
        check(&trials, &not_generated)
    };
    assert!(checked(axes()).is_ok());
    let none =
        Axes { guards: vec![Guards::Off], faults: vec![Some(FaultKind::KillReplica)], ..axes() };
    let error = checked(none).expect_err("no cell");
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("without guards"), "{error}");
    for replicas in [0, 17] {
        let wrong =
            checked(Axes { replicas: vec![replicas], ..axes() }).expect_err("no such number");
        assert_eq!(
            (wrong.exit_code(), wrong.to_string().contains("1 to 16")),
            (2, true),
            "{wrong}"
        );
    }
}

fn report(observed: Prediction, predicted: Prediction, valid: bool) -> CellReport {
    let axes =
        CellAxes { lock: Lock::Redisson, scope: Scope::Voucher, guards: Guards::Off, replicas: 2 };
    let trial = CellSpec::plain(axes);
    let failed = CellReport::failed(trial, 100, String::new(), std::time::Duration::ZERO);
    CellReport { predicted, observed, valid, ..failed }
}

#[test]
fn only_a_cell_that_showed_too_little_has_another_try() {
    use Prediction as P;
    assert!(is_worth_retrying(&report(P::HOLDS, P::OVERSELLS, true)));
    assert!(is_worth_retrying(&report(P::OVERSELLS, P::BREAKS, true)));
    assert!(!is_worth_retrying(&report(P::OVERSELLS, P::OVERSELLS, true)), "it is shown");
    assert!(!is_worth_retrying(&report(P::OVERSELLS, P::HOLDS, true)), "it broke");
    assert!(!is_worth_retrying(&report(P::BREAKS, P::OVERSELLS, true)), "it broke more");
    assert!(!is_worth_retrying(&report(P::HOLDS, P::OVERSELLS, false)), "it was no load");
    let missed =
        CellReport { scenario: Scenario::FrozenUnfenced, ..report(P::HOLDS, P::OVERSELLS, false) };
    assert!(is_worth_retrying(&missed), "the fault missed its moment");
    let spoiled = CellReport { spoiled: true, ..report(P::HOLDS, P::HOLDS, false) };
    assert!(is_worth_retrying(&spoiled), "it was never healthy");
    assert!(
        !is_worth_retrying(&CellReport { observed: P::BREAKS, ..spoiled }),
        "it broke all the same"
    );
}

/// A round whose load did not come as far as planned, in which these rules were broken.
fn with_broken(report: CellReport, broken: &[Rule]) -> CellReport {
    let round = crate::fixtures::frozen(Scenario::FrozenFenced, 0).round;
    CellReport { round, broken_rules: broken.to_vec(), ..report }
}

#[test]
fn a_round_that_has_found_something_is_not_run_again_though_it_is_invalid_besides() {
    use Prediction as P;
    let invalid = || report(P::HOLDS, P::HOLDS, false);
    let frozen = || CellReport { scenario: Scenario::FrozenFenced, ..invalid() };
    let spoiled = || CellReport { spoiled: true, ..invalid() };
    for missed in [frozen(), spoiled()] {
        assert!(is_worth_retrying(&with_broken(missed.clone(), &[])));
        let found = with_broken(missed, &[Rule::SoldOutStaysSoldOut]);
        assert!(!is_worth_retrying(&found));
    }
    assert!(!is_worth_retrying(&CellReport { died: true, ..frozen() }), "a replica died");
}

#[test]
fn a_rule_that_uses_lengths_accuses_nothing_while_the_generator_stood_still() {
    let stood_still = loadtest_judge::validity::of_stalls(90, 100).expect("a reason");
    let cell = |why: &str, rule| CellReport {
        invalid_because: vec![why.to_owned()],
        ..with_broken(report(Prediction::HOLDS, Prediction::HOLDS, false), &[rule])
    };
    assert!(cell("too little", Rule::ServedAfterFault).found_violation());
    assert!(!cell(&stood_still, Rule::ServedAfterFault).found_violation());
    assert!(cell(&stood_still, Rule::OrdersWithinStock).found_violation());
}

#[test]
fn a_cell_whose_orders_were_committed_late_is_run_again() {
    let late = CellReport {
        spoiled: true,
        committed_late: 1,
        broken_rules: vec![Rule::OrdersWithinStock],
        ..report(Prediction::HOLDS, Prediction::OVERSELLS, false)
    };
    assert!(is_worth_retrying(&late));
    assert!(!is_conclusive(&late));
    assert!(!is_worth_retrying(&CellReport { died: true, ..late }));
}

#[test]
fn a_cell_is_finished_if_it_is_valid_or_has_found_something() {
    use Prediction as P;
    let cell = |valid| CellReport { error: None, ..report(P::HOLDS, P::HOLDS, valid) };
    assert!(is_conclusive(&cell(true)));
    assert!(!is_conclusive(&cell(false)), "it shows nothing");
    assert!(is_conclusive(&with_broken(cell(false), &[Rule::EachReplicaServes])));
    let failed = report(P::HOLDS, P::HOLDS, false);
    assert!(!is_conclusive(&failed), "it could not be run");
    assert!(is_conclusive(&CellReport { died: true, ..failed }), "its replica died");
}

#[test]
fn cells_that_mostly_wait_run_together_and_all_others_alone() {
    let cell = |lock, scenario| {
        let axes = CellAxes { lock, scope: Scope::Voucher, guards: Guards::Off, replicas: 3 };
        CellSpec::of(axes, scenario, None)
    };
    let short = cell(Lock::Redisson, Scenario::ShortWork);
    let kept = cell(Lock::Redisson, Scenario::LongWorkKept);
    let ignored = cell(Lock::LuaRelease, Scenario::LongWorkIgnored);
    let elsewhere = cell(Lock::Zookeeper, Scenario::LongWorkKept);
    let count = |trials: &[CellSpec]| run_together(trials, |trial| *trial != ignored).len();
    assert_eq!(count(&[short, kept, kept]), 1, "rates are compared");
    assert_eq!(count(&[elsewhere, kept]), 1, "it starts a server");
    assert_eq!(count(&[kept; 6]), 5, "fifteen replicas");
    let frozen = CellSpec { fault: Some(FaultKind::FreezeReplica), ..kept };
    let killed = CellSpec { fault: Some(FaultKind::KillReplica), ..kept };
    let sentinel = CellSpec { topology: Topology::Sentinel, ..kept };
    assert_eq!(count(&[kept, frozen, killed]), 2);
    assert_eq!(count(&[kept, sentinel]), 1, "it starts servers");
    assert_eq!(count(&[kept, kept, short]), 2);
    assert_eq!(count(&[kept, ignored, kept]), 1, "the second one is finished");
}
