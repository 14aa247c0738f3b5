//! Runs one cell: a fresh deployment, a voucher, a load, perhaps with a fault in its middle, and a
//! verdict.

use std::sync::Arc;
use std::time::{Duration, Instant};

use loadtest_judge::holds::HoldOverlaps;
use loadtest_judge::terms::Terms;
use loadtest_judge::validity;
use loadtest_judge::verdict::{Rule, Verdict};
use loadtest_load::client::Target;
use loadtest_load::drive;
use loadtest_load::history::History;
use loadtest_load::history::final_state::Audit;
use loadtest_load::live::LiveFigures;
use loadtest_load::stats::Figures;
use loadtest_measure::error::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::cell_axes::CellAxes;
use crate::cell_plan::{CellPlan, Setup};
use crate::cell_spec::{CellSpec, Expectation};
use crate::cluster::Cluster;
use crate::deployment::DeploymentSpec;
use crate::detail::Detail;
use crate::faults::{FaultKind, slow_down_commits, slow_down_some_writes};
use crate::predict::{Prediction, Scenario};
use crate::round;
use crate::round::Round;
use crate::sale::Sale;
use crate::topology::Topology;

/// How long COMMIT takes where the lock is free before it: as on a disk that turns. On a fast one
/// the gap is shorter than the time between two looks of those that wait for some locks.
const SLOW_COMMIT: Duration = Duration::from_millis(5);
/// How long a write takes that outlasts its lease, so that its holder stops. It is one in
/// [`OUTLASTING_ONE_IN`] of each replica; the others sell, so the late write would be wrong.
pub(super) const OUTLASTING_WRITE: Duration = Duration::from_millis(600);
const OUTLASTING_ONE_IN: u64 = 4;
/// What two holders at once can break without guards.
const RULES_OF_A_LOCK: [Rule; 3] =
    [Rule::OrdersWithinStock, Rule::OneOrderPerUser, Rule::StockAddsUp];

/// What came out of a cell; the members of the report's JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct CellReport {
    /// Where it stands.
    #[serde(flatten)]
    pub axes: CellAxes,
    /// What happened around the locked section.
    #[serde(alias = "circumstance")]
    pub scenario: Scenario,
    /// What happened to the deployment.
    pub fault: Option<FaultKind>,
    /// Which servers it ran on.
    #[serde(default, skip_serializing_if = "Topology::is_single")]
    pub topology: Topology,
    /// Requests sent.
    pub requests: u64,
    /// Units on sale.
    pub stock: u64,
    /// Orders in the database afterwards.
    pub orders: u64,
    /// Orders beyond the stock.
    pub oversold: u64,
    /// Users with more than one order.
    pub duplicate_users: u64,
    /// Orders that were acknowledged and are absent from the database.
    pub lost: u64,
    /// What should be shown.
    pub predicted: Prediction,
    /// Why.
    pub because: String,
    /// What was.
    pub observed: Prediction,
    /// Observed equals predicted, and every rule that this cell must keep held.
    pub as_predicted: bool,
    /// Whether this was a real load.
    pub valid: bool,
    /// Acknowledged orders, divided by the seconds from the first request to the last
    /// acknowledgement.
    pub orders_per_s: f64,
    /// Half of all requests were answered within this many milliseconds.
    pub p50_ms: f64,
    /// 99 % of all requests were answered within this many milliseconds.
    pub p99_ms: f64,
    /// Why it was no real load.
    pub invalid_because: Vec<String>,
    /// Whether its load did not come to the fault as planned, which says nothing of the lock: it
    /// was never healthy, or all was sold before the fault was over.
    #[serde(default)]
    pub spoiled: bool,
    /// Whether a replica died that no fault had killed.
    #[serde(default)]
    pub died: bool,
    /// Orders that were committed when their lock's validity time had ended, if that explains what
    /// was broken. Their holders stood still between their last look and COMMIT.
    #[serde(default)]
    pub committed_late: u64,
    /// Rules that this cell had to keep and did not.
    pub broken_rules: Vec<Rule>,
    /// Why the cell could not be run, if so.
    pub error: Option<String>,
    /// All figures of the load.
    pub load: Option<Figures>,
    /// Every rule with its figures.
    pub verdict: Option<Verdict>,
    /// The service's own audit.
    pub audit: Option<Audit>,
    /// What happened when, where there was a fault.
    pub round: Option<Round>,
    /// The course of the load, the proofs of what was broken, the locks.
    pub detail: Option<Detail>,
    /// How often two held one lock at once, if replicas reported holds.
    #[serde(default)]
    pub overlaps: Option<HoldOverlaps>,
    /// What it was started with, if it came so far.
    #[serde(default)]
    pub setup: Option<Setup>,
    /// What settled the schedule.
    pub seed: u64,
    /// How often the cell was run until it came out so.
    pub tries: u32,
    /// Seconds that the cell took, its servers included.
    pub took_s: f64,
    /// The file of its history, if that was kept.
    pub history: Option<String>,
    /// The side of a rung of the ladder that it is, such as `set-nx` or `set-nx-repaired`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rung: Option<String>,
}

impl CellReport {
    /// Which cell it is.
    pub fn trial(&self) -> CellSpec {
        let Self { axes, scenario, fault, topology, .. } = *self;
        CellSpec { axes, scenario, fault, topology }
    }

    /// The cell's name in links.
    pub fn id(&self) -> String {
        self.rung.clone().unwrap_or_else(|| self.trial().id())
    }

    /// The cell's name in words.
    pub fn title(&self) -> String {
        let trial = self.trial();
        self.rung.as_ref().map_or_else(|| trial.to_string(), |rung| format!("{rung}: {trial}"))
    }

    /// Whether the cell is a real load and came out as predicted.
    pub fn ok(&self) -> bool {
        self.valid && self.as_predicted
    }

    /// A cell without results yet.
    fn blank(trial: CellSpec, stock: u64) -> Self {
        let Expectation { prediction, because } = trial.expectation().unwrap_or_else(|reason| {
            Expectation { prediction: Prediction::HOLDS, because: reason.to_owned() }
        });
        Self {
            axes: trial.axes,
            scenario: trial.scenario,
            fault: trial.fault,
            topology: trial.topology,
            requests: 0,
            stock,
            orders: 0,
            oversold: 0,
            duplicate_users: 0,
            lost: 0,
            predicted: prediction,
            because,
            observed: Prediction::HOLDS,
            as_predicted: false,
            valid: false,
            orders_per_s: 0.0,
            p50_ms: 0.0,
            p99_ms: 0.0,
            invalid_because: Vec::new(),
            spoiled: false,
            died: false,
            committed_late: 0,
            broken_rules: Vec::new(),
            error: None,
            load: None,
            verdict: None,
            audit: None,
            round: None,
            detail: None,
            overlaps: None,
            setup: None,
            seed: 0,
            tries: 1,
            took_s: 0.0,
            history: None,
            rung: None,
        }
    }

    /// A cell that could not be run: invalid, whatever was predicted.
    pub fn failed(trial: CellSpec, stock: u64, error: String, took: Duration) -> Self {
        Self {
            invalid_because: vec!["it could not be run".to_owned()],
            error: Some(error),
            took_s: took.as_secs_f64(),
            ..Self::blank(trial, stock)
        }
    }

    /// The report on a load that was run and judged.
    pub fn of(trial: CellSpec, stock: u64, figures: Figures, verdict: Verdict) -> Self {
        let blank = Self::blank(trial, stock);
        let observed = Prediction {
            oversells: verdict.oversold > 0,
            duplicates: verdict.duplicate_users > 0,
            loses: blank.predicted.loses && verdict.lost > 0,
        };
        let demanded = demanded(blank.predicted, &verdict);
        let broken_rules = verdict.broken(&demanded).map(|it| it.rule).collect::<Vec<_>>();
        let mut invalid_because = why_invalid(trial, &figures, stock, verdict.orders);
        // The fence would pass without evidence.
        if trial.is_fenced() && !verdict.fenced() {
            invalid_because.push("the tokens' order was not recorded".to_owned());
        }
        if trial.excludes_others() && !verdict.is_judged(Rule::OneHolderAtATime) {
            invalid_because.push("no replica reported when it held a lock".to_owned());
        }
        invalid_because.extend(validity::of_dropped(&figures));
        Self {
            requests: figures.requests,
            orders: verdict.orders,
            oversold: verdict.oversold,
            duplicate_users: verdict.duplicate_users,
            lost: verdict.lost,
            observed,
            as_predicted: observed == blank.predicted && broken_rules.is_empty(),
            valid: invalid_because.is_empty(),
            orders_per_s: figures.orders_per_s,
            p50_ms: figures.all.p50_ms,
            p99_ms: figures.all.p99_ms,
            invalid_because,
            broken_rules,
            load: Some(figures),
            verdict: Some(verdict),
            ..blank
        }
    }

    /// Makes the cell invalid if a rule that the run demands could not be judged, or if orders that
    /// were committed late explain what was broken.
    #[must_use]
    pub(crate) fn with_history(mut self, history: &History, terms: &Terms) -> Self {
        if let (Some(verdict), true) = (&self.verdict, self.broken_rules.is_empty()) {
            let unjudged = terms.demands.iter().filter(|rule| !verdict.is_judged(**rule));
            self.invalid_because
                .extend(unjudged.map(|rule| format!("not judged: {}", rule.words())));
        }
        let mut broken = self.broken_rules.iter();
        let is_of_lock = broken.all(|rule| RULES_OF_A_LOCK.contains(rule));
        if !self.as_predicted && is_of_lock && self.trial().rests_on_validity() {
            self.committed_late = validity::committed_late(&history.records, &history.names);
            self.invalid_because.extend(validity::of_late_commits(self.committed_late));
        }
        self.spoiled |= self.committed_late > 0;
        self.valid = self.invalid_because.is_empty();
        self
    }

    /// Adds the round, which may make the cell invalid.
    #[must_use]
    pub fn with_round(mut self, round: Round) -> Self {
        self.invalid_because.extend(round.why_invalid());
        self.spoiled = round.ok_after == 0 && self.orders >= self.stock;
        self.valid = self.invalid_because.is_empty();
        self.round = Some(round);
        self
    }
}

/// Why this load was none, as cells of its kind count it; empty if it was one.
fn why_invalid(trial: CellSpec, figures: &Figures, stock: u64, orders: u64) -> Vec<String> {
    let replicas = trial.axes.replicas;
    match trial.scenario {
        // Of a round the whole history says it, not the figures of its main load.
        _ if trial.fault.is_some() => Vec::new(),
        Scenario::LongWorkIgnored | Scenario::LongWorkKept | Scenario::LongWorkStopped => {
            let mut reasons = validity::of_long_work(figures, stock, orders, replicas);
            let stops = trial.scenario == Scenario::LongWorkStopped;
            reasons.extend(stops.then(|| validity::of_lost_locks(figures)).flatten());
            reasons
        }
        _ => validity::reasons(figures, stock, orders, replicas),
    }
}

/// The rules that a cell must keep.
///
/// What it is predicted to break is not demanded, nor that the stock adds up where naive code
/// overwrites it. These are demanded everywhere:
///
/// - nothing acknowledged is lost, except where that is predicted;
/// - no refusal leaves an order;
/// - the audit is correct;
/// - "sold out" is true: even a stock that loses updates falls by at most one for each order.
///
/// Rules of some runs are judged where they are demanded.
pub fn demanded(predicted: Prediction, verdict: &Verdict) -> Vec<Rule> {
    let hangs_on_it = |rule: &Rule| match rule {
        Rule::OrdersWithinStock => predicted.oversells,
        Rule::OneOrderPerUser => predicted.duplicates,
        Rule::AcknowledgedExist => predicted.loses,
        Rule::StockAddsUp => predicted.oversells || predicted.duplicates,
        rule if rule.is_of_some_runs() => !verdict.is_judged(*rule),
        _ => false,
    };
    Rule::ALL.into_iter().filter(|rule| !hangs_on_it(rule)).collect()
}

/// Runs one cell from its database to its verdict.
pub async fn run(cluster: &Cluster, number: u16, cell_plan: &CellPlan) -> CellReport {
    let began = Instant::now();
    let CellPlan { trial, load, schedule, .. } = cell_plan;
    let (trial, axes) = (*trial, trial.axes);
    let spec = DeploymentSpec {
        number,
        replicas: axes.replicas,
        flags: cell_plan.flags.clone(),
        fleet: load.fleet,
        worker_threads: None,
        needs: axes.lock.needs(),
        requirements: trial.requirements(schedule),
        topology: trial.topology,
        page_port: None,
        history: cell_plan.history.clone(),
    };
    let mut report = match cluster.deploy(spec).await {
        Ok(deployment) => {
            let report = async {
                let sale = Sale::open(&deployment, cell_plan).await?;
                Box::pin(run_sale(&sale, cell_plan)).await
            };
            let report = report.await.unwrap_or_else(|error| {
                let kills = trial.fault.is_some_and(|fault| fault.kills(schedule));
                let error = blame_dead_replicas(error, &deployment.dead(), kills);
                let text = format!("{error}\n{}", deployment.log_tails());
                let spoiled = matches!(error, Error::Unhealthy(_));
                let died = matches!(error, Error::Died(_));
                let failed = CellReport::failed(trial, load.stock, text, began.elapsed());
                CellReport { spoiled, died, ..failed }
            });
            deployment.end().await;
            report
        }
        Err(error) => CellReport::failed(trial, load.stock, error.to_string(), began.elapsed()),
    };
    report.setup = Some(Setup { flags: cell_plan.flags.clone(), load: load.clone() });
    report.seed = cell_plan.seed;
    report.took_s = began.elapsed().as_secs_f64();
    report
}

/// An error after which replicas are found dead, which no fault kills, is theirs.
fn blame_dead_replicas(error: Error, dead: &[String], kills: bool) -> Error {
    match error {
        Error::Died(_) | Error::Interrupted => error,
        _ if kills || dead.is_empty() => error,
        _ => Error::Died(dead.join(" and ")),
    }
}

/// Runs the cell's load to its end, with its fault if it has one, and judges it.
pub(super) async fn run_sale(sale: &Sale<'_>, cell_plan: &CellPlan) -> Result<CellReport> {
    let CellPlan { trial, load, .. } = cell_plan;
    if trial.fault.is_some() {
        return Box::pin(round::run(sale, cell_plan)).await;
    }
    let plan =
        sale.plan(&sale.users, Target::parse(sale.deployment.url())?, load.requests_per_user);
    plan.check()?;
    let recorded = sale.record(&plan)?;
    let connections = drive::connect(&plan).await?;
    match trial.scenario {
        Scenario::Inside => slow_down_commits(sale.deployment, SLOW_COMMIT),
        Scenario::LongWorkStopped => {
            slow_down_some_writes(sale.deployment, (OUTLASTING_WRITE, OUTLASTING_ONE_IN));
        }
        _ => {}
    }
    let live = Arc::new(LiveFigures::new(&plan));
    let progress = cell_plan.follow(&live, &plan);
    let figures = drive::run(&plan, connections, recorded.recorder(), &live).await?;
    drop(progress);
    sale.judge_and_end(recorded, figures).await
}

#[cfg(test)]
#[path = "cell_tests.rs"]
mod tests;
