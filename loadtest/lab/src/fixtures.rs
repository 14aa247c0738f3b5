//! Cells and results for tests of the laboratory and of its reports.

use std::collections::BTreeMap;

use loadtest_judge::setting::{Guards, Scope};
use loadtest_judge::verdict::{Rule, RuleFinding, Verdict};
use loadtest_load::stats::{Figures, Latency, ReplicaShare};
use loadtest_measure::machine::{Builds, Machine, Profiles, Versions};
use loadtest_measure::server_settings::ServerSettings;

use crate::cell::CellReport;
use crate::cell_axes::{CellAxes, Load};
use crate::cell_spec::CellSpec;
use crate::faults::{FaultKind, Schedule};
use crate::injected_bugs::RoundFindings;
use crate::injection_results::{Attempt, BugResults, InjectionResults};
use crate::lock::Lock;
use crate::predict::Scenario;
use crate::results::{CellSelection, RunResults};
use crate::round::{FaultRecord, PurchasesDuringFault, Round};

/// Figures of a load that is valid with up to three replicas.
pub fn figures() -> Figures {
    let share = || ReplicaShare { answers: 700, share: 1.0 / 3.0 };
    Figures {
        requests: 2100,
        users: 700,
        elapsed_s: 1.0,
        requests_per_s: 2100.0,
        orders_per_s: 312.4,
        all: Latency { count: 2100, p50_ms: 12.34, p99_ms: 56.78, ..Latency::default() },
        outcomes: BTreeMap::new(),
        codes: BTreeMap::new(),
        replicas: ["r1", "r2", "r3"].map(|name| (name.to_owned(), share())).into(),
        in_flight_mean: 95.0,
        in_flight_peak: 96,
        simultaneous_min: 3,
        ..Figures::default()
    }
}

/// A verdict with these figures in which every rule holds that they do not contradict.
pub fn verdict_of(oversold: u64, duplicate_users: u64) -> Verdict {
    let finding = |rule| {
        let held = match rule {
            Rule::OrdersWithinStock => oversold == 0,
            Rule::OneOrderPerUser => duplicate_users == 0,
            Rule::StockAddsUp => oversold + duplicate_users == 0,
            _ => true,
        };
        RuleFinding { held: Some(held), ..RuleFinding::unjudged(rule, "figures") }
    };
    let findings = Rule::ALL.map(finding).into();
    Verdict { orders: 100 + oversold, oversold, duplicate_users, lost: 0, findings }
}

/// A place in the comparison.
pub fn axes(lock: Lock, scope: Scope, guards: Guards, replicas: u16) -> CellAxes {
    CellAxes { lock, scope, guards, replicas }
}

/// A valid cell at that place, with these broken promises.
pub fn cell(axes: CellAxes, oversold: u64, duplicate_users: u64) -> CellReport {
    CellReport::of(CellSpec::plain(axes), 100, figures(), verdict_of(oversold, duplicate_users))
}

/// The pair per user, the distributed lock per voucher, and one guarded cell, all as predicted.
pub fn story() -> Vec<CellReport> {
    vec![
        cell(axes(Lock::Local, Scope::User, Guards::Off, 3), 310, 55),
        cell(axes(Lock::Redisson, Scope::User, Guards::Off, 3), 290, 0),
        cell(axes(Lock::Redisson, Scope::Voucher, Guards::Off, 3), 0, 0),
        cell(axes(Lock::None, Scope::User, Guards::On, 3), 0, 0),
    ]
}

/// Results of these bugs, each caught in the first round with every seed, and clean without the
/// bug.
pub fn injection_results(names: &[&'static str], seeds: u64) -> InjectionResults {
    let attempt = |seed| Attempt {
        seed,
        rounds: 1,
        caught_by: vec![format!("{}: 2 did", Rule::OneOrderPerUser.words())],
        missed: Vec::new(),
        clean: true,
        without: RoundFindings::default(),
    };
    let bug = |name: &&'static str| BugResults {
        name,
        breaks: "the lock is freed too early",
        shown_by: "redisson per user".to_owned(),
        seeds,
        attempts: (1..=seeds).map(attempt).collect(),
    };
    InjectionResults::of(names.iter().map(bug).collect(), seeds)
}

/// A holder frozen past its lock, and what was seen of it.
pub fn frozen(scenario: Scenario, oversold: u64) -> CellReport {
    let axes = axes(Lock::Redisson, Scope::Voucher, Guards::Off, 3);
    let trial = CellSpec::of(axes, scenario, Some(FaultKind::FreezeReplica));
    let report = CellReport::of(trial, 100, figures(), verdict_of(oversold, 0));
    let schedule = Schedule::of(9, "a cell", 3);
    let strike = FaultRecord {
        name: FaultKind::FreezeReplica,
        begin_ns: 1_500_000_000,
        end_ns: 2_500_000_000,
        witness: "r2 was in state T".to_owned(),
    };
    let round = Round {
        plan: schedule.words(trial.fault),
        schedule,
        faults: vec![strike],
        closing_ns: 4_000_000_000,
        in_flight: 17,
        requests: [120, 31, 400],
        ok_after: 60,
        before_per_s: 49.0,
        back_after_ms: Some(230),
        failed_requests: 2,
        served_after: 6,
        during: PurchasesDuringFault::default(),
    };
    CellReport { seed: 9, tries: 3, ..report.with_round(round) }
}

/// The story, one cell with a fault in its place, and two frozen holders.
pub fn matrix_cells() -> Vec<CellReport> {
    let mut cells = story();
    let killed = CellSpec { fault: Some(FaultKind::FreezeReplica), ..cells[3].trial() };
    cells.push(CellReport::of(killed, 100, figures(), verdict_of(0, 0)));
    cells.push(frozen(Scenario::FrozenUnfenced, 1));
    cells.push(frozen(Scenario::FrozenFenced, 0));
    cells
}

/// The results of a comparison with these cells.
pub fn comparison_of(cells: Vec<CellReport>) -> RunResults {
    RunResults {
        cells,
        not_applicable: Vec::new(),
        selection: None,
        injected_bugs: None,
        load: Load::DEFAULT,
        chosen: Vec::new(),
        settings: ServerSettings {
            innodb_flush_log_at_trx_commit: 1,
            redis_appendonly: "no".to_owned(),
            ..ServerSettings::default()
        },
        versions: Versions {
            loadtest: "0.1.0",
            builds: Builds { loadtest: "10ad".repeat(16), seckill: "5ec0".repeat(16) },
            profiles: Profiles { loadtest: "demo", seckill: "release".to_owned() },
            database: "10.11".to_owned(),
            redis: "7.0".to_owned(),
            haproxy: "2.6".to_owned(),
            zookeeper: None,
            etcd: None,
            nats: None,
        },
        machine: Machine::read(),
        started_at: "2026-01-01T00:00:00Z".to_owned(),
        took_s: 3.0,
    }
}

/// The results of a matrix of [`matrix_cells`].
pub fn matrix() -> RunResults {
    let selection = CellSelection {
        not_generated: Vec::new(),
        resumed: 0,
        seed: 7,
        preset: None,
        sample: None,
        command: None,
    };
    RunResults { selection: Some(selection), ..comparison_of(matrix_cells()) }
}
