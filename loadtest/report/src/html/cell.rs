//! The section of one cell.

use loadtest_judge::setting::Scope;
use loadtest_judge::verdict::RuleFinding;
use loadtest_lab::cell::CellReport;
use loadtest_lab::detail::ReplicaWork;
use loadtest_lab::metrics::{HistogramSummary, LockMetrics};
use loadtest_lab::round::{FaultRecord, Round};
use loadtest_load::outcome::Outcome;
use loadtest_load::stats::{Figures, Latency};
use serde::Serialize;

use crate::html::grid::{CellKind, milliseconds, rate, surprise};
use crate::html::holds;
use crate::html::setup::SetupView;
use crate::html::timeline::{Timeline, timelines};
use crate::table::problems;
use crate::{Report, counted, repeat};

/// Most cells of a page on which each is shown in full. Beyond it cells that were safe as predicted
/// are shown in brief: a full page of all cells of `--full` would have some 20 MB.
pub const MAX_FULL_CELLS: usize = 200;
/// Most time lines of one cell.
const MAX_TIMELINES: usize = 8;

/// Everything that a cell's section shows.
#[derive(Debug, Serialize)]
pub struct Section {
    /// What links to it name.
    pub id: String,
    /// The cell in words.
    pub name: String,
    /// What it came to.
    pub kind: CellKind,
    /// A mark that shows it without colour.
    pub mark: &'static str,
    /// What it came to, in words.
    pub words: String,
    /// Whether it is open from the start.
    pub open: bool,
    /// Why it is not in order.
    pub problems: Vec<String>,
    /// What it should show, and why.
    pub because: String,
    /// What it came to, over all of its loads.
    pub facts: Vec<Fact>,
    /// The figures of its main load, which is the only one without a fault.
    pub load: Vec<Fact>,
    /// What was done to it, and how it went on.
    pub round: Option<RoundView>,
    /// Latencies: all, and by outcome.
    pub latency: Vec<LatencyLine>,
    /// What each replica did.
    pub replicas: Vec<ReplicaLine>,
    /// The requests that prove what was broken.
    pub timelines: Vec<Timeline>,
    /// What one lock is held for.
    pub lock_of: &'static str,
    /// What the locks did.
    pub locks: Option<Locks>,
    /// The rules.
    pub rules: Vec<RuleLine>,
    /// How often each status and code came.
    pub codes: Vec<Fact>,
    /// What the generator itself cost.
    pub generator: Vec<Fact>,
    /// Why the figures on speed are the generator's rather than the service's.
    pub bottlenecks: Vec<String>,
    /// What it was started with.
    pub setup: Option<SetupView>,
    /// The command that repeats it.
    pub command: String,
    /// The command that judges its history again, if that was kept.
    pub check: Option<String>,
    /// Whether there is something to draw.
    pub plotted: bool,
    /// Whether only what matters most is shown.
    pub brief: bool,
}

/// A name and a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// What.
    pub name: String,
    /// How much, or which.
    pub value: String,
}

/// What was done to a cell.
#[derive(Debug, Serialize)]
pub struct RoundView {
    /// What was planned, what was done when, and what was seen of it.
    pub strikes: Vec<String>,
    /// Names and values.
    pub facts: Vec<Fact>,
}

/// Latencies of one outcome.
#[derive(Debug, Serialize)]
pub struct LatencyLine {
    /// Which.
    pub outcome: String,
    /// How often it came.
    pub count: u64,
    /// Within how many milliseconds half, 90 %, 99 % and all came.
    pub ms: [String; 4],
}

/// The work of one replica.
#[derive(Debug, Serialize)]
pub struct ReplicaLine {
    /// Its name.
    pub name: String,
    /// Requests that it answered.
    pub answers: u64,
    /// Orders that it acknowledged.
    pub orders: u64,
    /// The same in percent of the busiest replica's.
    pub percent: u64,
}

/// What the locks did.
#[derive(Debug, Serialize)]
pub struct Locks {
    /// How many replicas reported, in words.
    pub replicas: String,
    /// What is missing in it, if something is.
    pub missing: Option<String>,
    /// Counters.
    pub counts: Vec<Fact>,
    /// Times.
    pub times: Vec<TimeLine>,
}

/// One histogram of the locks.
#[derive(Debug, Serialize)]
pub struct TimeLine {
    /// What was measured.
    pub what: &'static str,
    /// How often.
    pub count: u64,
    /// Mean, median and 99th percentile.
    pub ms: [String; 3],
}

/// One rule.
#[derive(Debug, Serialize)]
pub struct RuleLine {
    /// In words.
    pub rule: &'static str,
    /// `held`, `broken` or `not judged`.
    pub held: &'static str,
    /// The same as a mark.
    pub mark: &'static str,
    /// Whether the cell had to keep it.
    pub demanded: bool,
    /// The figures behind it.
    pub detail: String,
}

impl Fact {
    /// A name and a value: a number, a text, or words made for it.
    #[allow(clippy::needless_pass_by_value)]
    pub fn new(name: &str, value: impl ToString) -> Self {
        Self { name: name.to_owned(), value: value.to_string() }
    }
}

impl Section {
    /// The section of this cell of the report.
    pub fn of(cell: &CellReport, report: &Report) -> Self {
        let kind = CellKind::of(cell);
        let brief = is_brief(cell, report);
        let detail = cell.detail.as_ref().filter(|_| !brief);
        let figures = cell.load.as_ref().filter(|_| !brief);
        Self {
            id: cell.id(),
            name: cell.title(),
            kind,
            mark: kind.mark(),
            words: match kind {
                CellKind::Surprise => surprise(cell),
                _ => kind.words().to_owned(),
            },
            open: false,
            problems: problems(cell),
            because: format!("{}, because {}", cell.predicted.words(), cell.because),
            facts: facts(cell),
            load: cell.load.as_ref().map(|figures| main_load(cell, figures)).unwrap_or_default(),
            round: cell.round.as_ref().map(round),
            latency: figures.map(latency).unwrap_or_default(),
            replicas: detail.map(|detail| replicas(&detail.replicas)).unwrap_or_default(),
            timelines: drawn(cell),
            lock_of: match cell.axes.scope {
                Scope::User => "a user",
                Scope::Voucher => "the voucher",
            },
            locks: detail.and_then(|detail| detail.locks.as_ref()).map(locks),
            rules: if brief { Vec::new() } else { rules(cell) },
            codes: figures.map(codes).unwrap_or_default(),
            generator: figures.map(generator).unwrap_or_default(),
            bottlenecks: figures.map(Figures::bottlenecks).unwrap_or_default(),
            setup: SetupView::of(cell),
            command: repeat::one(report, cell),
            check: cell.history.as_deref().map(repeat::check),
            plotted: detail.is_some(),
            brief,
        }
    }
}

/// Whether only what matters most of that cell is shown.
pub fn is_brief(cell: &CellReport, report: &Report) -> bool {
    report.cells.len() > MAX_FULL_CELLS && CellKind::of(cell) == CellKind::Safe
}

fn facts(cell: &CellReport) -> Vec<Fact> {
    if cell.load.is_none() {
        return Vec::new();
    }
    let mut facts = Vec::new();
    if !cell.trial().is_plain() {
        facts.extend([Fact::new("seed", cell.seed), Fact::new("tries", cell.tries)]);
    }
    facts.extend([
        Fact::new("observed", cell.observed.words()),
        Fact::new("orders", format!("{} for {} units", cell.orders, cell.stock)),
        Fact::new("oversold", cell.oversold),
        Fact::new("users who bought twice", cell.duplicate_users),
        Fact::new("acknowledged and lost", cell.lost),
        Fact::new("the cell took", format!("{:.1} s with its servers", cell.took_s)),
    ]);
    facts.extend(cell.overlaps.map(|it| Fact::new("holds of one lock at once", holds::words(&it))));
    facts
}

fn main_load(cell: &CellReport, figures: &Figures) -> Vec<Fact> {
    // Not all connections are busy where requests come at a pace of their own.
    let in_flight = if figures.in_flight_mean > 0.0 {
        format!("{:.0} on average", figures.in_flight_mean)
    } else {
        format!("at most {}", figures.in_flight_peak)
    };
    vec![
        Fact::new("orders per second", rate(cell.orders_per_s)),
        Fact::new("requests per second", rate(figures.requests_per_s)),
        Fact::new(
            "latency",
            format!("p50 {} ms, p99 {} ms", milliseconds(cell.p50_ms), milliseconds(cell.p99_ms)),
        ),
        Fact::new(
            "requests",
            format!("{} of {} users in {:.1} s", cell.requests, figures.users, figures.elapsed_s),
        ),
        Fact::new("in flight", in_flight),
    ]
}

/// Exact enough: loads have far fewer than 2^53 nanoseconds.
#[allow(clippy::cast_precision_loss)]
fn round(round: &Round) -> RoundView {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let words = |fault: &FaultRecord| {
        let (begin, end) = (seconds(fault.begin_ns), seconds(fault.end_ns));
        format!("{} from {begin:.2} s to {end:.2} s: {}", fault.name.name(), fault.witness)
    };
    let planned = [format!("Planned: {}", round.plan)];
    let [before, during, after] = round.requests;
    RoundView {
        strikes: planned.into_iter().chain(round.faults.iter().map(words)).collect(),
        facts: vec![
            Fact::new("in flight when it hit", round.in_flight),
            Fact::new("requests", format!("{before} before, {during} during, {after} after")),
            Fact::new("answers before it", format!("{} per second", rate(round.before_per_s))),
            Fact::new("throughput back", round.back()),
            Fact::new("requests that failed", round.failed_requests),
            Fact::new("bought after it", round.ok_after),
            Fact::new("served by each replica after", round.served_after),
        ],
    }
}

fn latency(figures: &Figures) -> Vec<LatencyLine> {
    let line = |outcome: &str, latency: &Latency| LatencyLine {
        outcome: words(outcome),
        count: latency.count,
        ms: [latency.p50_ms, latency.p90_ms, latency.p99_ms, latency.max_ms].map(milliseconds),
    };
    let mut lines = vec![line("all", &figures.all)];
    for outcome in Outcome::ALL {
        let latency = figures.outcomes.get(&outcome).filter(|latency| latency.count > 0);
        lines.extend(latency.map(|latency| line(outcome.name(), latency)));
    }
    lines
}

/// An outcome's name, in words.
pub fn words(outcome: &str) -> String {
    outcome.replace('_', " ")
}

fn replicas(work: &[ReplicaWork]) -> Vec<ReplicaLine> {
    let most = work.iter().map(|work| work.orders).max().unwrap_or(0).max(1);
    let line = |work: &ReplicaWork| ReplicaLine {
        name: work.replica.clone(),
        answers: work.answers,
        orders: work.orders,
        percent: work.orders * 100 / most,
    };
    work.iter().map(line).collect()
}

fn locks(metrics: &LockMetrics) -> Locks {
    let line = |what, spread: &HistogramSummary| {
        let bound = |ms: Option<f64>| ms.map_or("–".to_owned(), |ms| format!("≤ {ms}"));
        let mean =
            if spread.count > 0 { format!("{:.2}", spread.mean_ms) } else { "–".to_owned() };
        let ms = [mean, bound(spread.p50_at_most_ms), bound(spread.p99_at_most_ms)];
        TimeLine { what, count: spread.count, ms }
    };
    Locks {
        replicas: counted(metrics.replicas, "replica"),
        missing: missing(metrics.started_anew),
        counts: vec![
            Fact::new("taken", metrics.acquired),
            Fact::new("server asked", metrics.attempts),
            Fact::new("held by another", metrics.busy),
            Fact::new("timed out waiting", metrics.timed_out),
            Fact::new("server failed", metrics.failed),
            Fact::new("lost while held", metrics.lost),
        ],
        times: vec![
            line("wait", &metrics.wait),
            line("hold", &metrics.hold),
            line("hand-off", &metrics.hand_off),
        ],
    }
}

/// Which lock counts are missing because replicas were restarted.
fn missing(started_anew: usize) -> Option<String> {
    let who = match started_anew {
        0 => return None,
        1 => "One replica was killed or restarted, and counts".to_owned(),
        more => format!("{more} replicas were killed or restarted, and count"),
    };
    Some(format!("{who} from the restart on; earlier values are missing."))
}

fn drawn(cell: &CellReport) -> Vec<Timeline> {
    let findings = cell.verdict.iter().flat_map(|verdict| &verdict.findings);
    let broken = findings.filter(|finding| finding.held == Some(false));
    let faults = cell.round.as_ref().map(|round| &round.faults[..]).unwrap_or_default();
    broken
        .flat_map(|finding| timelines(finding, cell.axes, cell.detail.as_ref(), faults))
        .take(MAX_TIMELINES)
        .collect()
}

fn rules(cell: &CellReport) -> Vec<RuleLine> {
    let Some(verdict) = &cell.verdict else { return Vec::new() };
    let demanded = loadtest_lab::cell::demanded(cell.predicted, verdict);
    let line = |finding: &RuleFinding| {
        let (held, mark) = match finding.held {
            Some(true) => ("held", "✓"),
            Some(false) => ("broken", "✗"),
            None => ("not judged", "–"),
        };
        RuleLine {
            rule: finding.rule.words(),
            held,
            mark,
            demanded: demanded.contains(&finding.rule),
            detail: finding.detail.clone(),
        }
    };
    verdict.findings.iter().filter(|one| one.concerns_run(&demanded)).map(line).collect()
}

fn codes(figures: &Figures) -> Vec<Fact> {
    figures.codes.iter().map(|(code, count)| Fact::new(code, count)).collect()
}

fn generator(figures: &Figures) -> Vec<Fact> {
    let cost = &figures.cost;
    let mut facts = vec![
        Fact::new("processor time", format!("{:.2} s", cost.cpu_s)),
        Fact::new("of the whole machine", format!("{:.0} %", cost.machine_share * 100.0)),
        Fact::new("waited for the history", format!("{:.3} s", cost.recorder_wait_s)),
    ];
    if cost.lateness.count > 0 {
        let late = format!("99 % at most {} ms", milliseconds(cost.lateness.p99_ms));
        facts.push(Fact::new("left late", late));
        facts.push(Fact::new("never sent", cost.dropped));
    }
    facts
}
