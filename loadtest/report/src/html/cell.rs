//! The section of one cell.

use loadtest_judge::setting::Scope;
use loadtest_judge::verdict::RuleFinding;
use loadtest_lab::cell::CellReport;
use loadtest_lab::detail::ReplicaWork;
use loadtest_lab::metrics::{HistogramSummary, LockMetrics};
use loadtest_load::outcome::Outcome;
use loadtest_load::stats::{Figures, Latency};
use serde::Serialize;

use crate::html::grid::{CellKind, milliseconds, rate, surprise};
use crate::html::round::RoundView;
use crate::html::setup::SetupView;
use crate::html::timeline::{Timeline, timelines};
use crate::table::{no_verdict_on_speed, problems};
use crate::text::Text;
use crate::{Report, names, repeat};

/// Most cells of a page on which each is shown in full. Beyond it cells that were safe as predicted
/// are shown in brief: a full page of all cells of `--full` would have more than 20 MB.
pub const MAX_FULL_CELLS: usize = 200;
/// Most characters of a value that stands beside others.
const LONG_VALUE: usize = 40;
/// Most time lines of one cell.
const MAX_TIMELINES: usize = 8;

/// Everything that a cell's section shows.
#[derive(Debug, Serialize)]
pub struct Section {
    /// What links to it name.
    pub id: String,
    /// The cell in words.
    pub name: Text,
    /// What it came to.
    pub kind: CellKind,
    /// A mark that shows it without colour.
    pub mark: &'static str,
    /// What it came to, in words.
    pub words: Text,
    /// Whether it is open from the start.
    pub open: bool,
    /// Why it is not in order.
    pub problems: Vec<Text>,
    /// What it should show, and why.
    pub because: Text,
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
    pub lock_of: Text,
    /// What the locks did.
    pub locks: Option<Locks>,
    /// The rules.
    pub rules: Vec<RuleLine>,
    /// How often each status and code came.
    pub codes: Vec<Fact>,
    /// What the generator itself cost.
    pub generator: Vec<Fact>,
    /// Why the figures on speed are not the service's alone.
    pub bottlenecks: Vec<Text>,
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
    pub name: Text,
    /// How much, or which.
    pub value: Text,
    /// Whether its value needs a line of its own.
    pub long: bool,
}

/// Latencies of one outcome.
#[derive(Debug, Serialize)]
pub struct LatencyLine {
    /// Which.
    pub outcome: Text,
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
    pub replicas: Text,
    /// What is missing in it, if something is.
    pub missing: Option<Text>,
    /// Counters.
    pub counts: Vec<Fact>,
    /// Times.
    pub times: Vec<TimeLine>,
}

/// One histogram of the locks.
#[derive(Debug, Serialize)]
pub struct TimeLine {
    /// What was measured.
    pub what: Text,
    /// How often.
    pub count: u64,
    /// Mean, median and 99th percentile.
    pub ms: [String; 3],
}

/// One rule.
#[derive(Debug, Serialize)]
pub struct RuleLine {
    /// In words.
    pub rule: Text,
    /// Whether it was broken.
    pub broken: bool,
    /// Whether it was kept, in words.
    pub held: Text,
    /// The same as a mark.
    pub mark: &'static str,
    /// The figures behind it.
    pub detail: Text,
}

impl Fact {
    /// The name of that key, and a value: a number, a text, or words made for it.
    pub fn new(key: &'static str, value: impl Into<Text>) -> Self {
        Self::named(Text::of(key), value)
    }

    /// A name and a value.
    pub fn named(name: impl Into<Text>, value: impl Into<Text>) -> Self {
        let value = value.into();
        let long = value.to_string().chars().count() > LONG_VALUE;
        Self { name: name.into(), value, long }
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
            name: names::title(cell),
            kind,
            mark: kind.mark(),
            words: match kind {
                CellKind::Surprise => surprise(cell),
                _ => kind.words(),
            },
            open: false,
            problems: problems(cell),
            because: Text::of("predicted_because")
                .with("predicted", names::prediction(cell.predicted))
                .with("why", names::because(cell)),
            facts: facts(cell),
            load: cell.load.as_ref().map(|figures| main_load(cell, figures)).unwrap_or_default(),
            round: cell.round.as_ref().map(RoundView::of),
            latency: figures.map(latency).unwrap_or_default(),
            replicas: detail.map(|detail| replicas(&detail.replicas)).unwrap_or_default(),
            timelines: drawn(cell),
            lock_of: Text::of(match cell.axes.scope {
                Scope::User => "of_a_user",
                Scope::Voucher => "of_the_voucher",
            }),
            locks: detail.and_then(|detail| detail.locks.as_ref()).map(locks),
            rules: if brief { Vec::new() } else { rules(cell) },
            codes: figures.map(codes).unwrap_or_default(),
            generator: figures.map(generator).unwrap_or_default(),
            bottlenecks: no_verdict_on_speed(cell).into_iter().map(Text::english).collect(),
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
    let orders = Text::of("orders_for").with("orders", cell.orders).with("units", cell.stock);
    facts.extend([
        Fact::new("observed", names::prediction(cell.observed)),
        Fact::new("orders", orders),
        Fact::new("oversold", cell.oversold),
        Fact::new("bought_twice", cell.duplicate_users),
        Fact::new("lost", cell.lost),
        Fact::new("cell_took", Text::of("with_servers").with("s", format!("{:.1}", cell.took_s))),
    ]);
    facts.extend(cell.overlaps.map(|it| Fact::new("holds_at_once", names::overlaps(&it))));
    facts
}

fn main_load(cell: &CellReport, figures: &Figures) -> Vec<Fact> {
    // Not all connections are busy where requests come at a pace of their own.
    let in_flight = if figures.in_flight_mean > 0.0 {
        Text::of("on_average").with("count", format!("{:.0}", figures.in_flight_mean))
    } else {
        Text::of("at_most").with("count", figures.in_flight_peak)
    };
    let latency = Text::of("p50_p99")
        .with("p50", milliseconds(cell.p50_ms))
        .with("p99", milliseconds(cell.p99_ms));
    let requests = Text::of("requests_of")
        .with("count", cell.requests)
        .with("users", figures.users)
        .with("s", format!("{:.1}", figures.elapsed_s));
    vec![
        Fact::new("orders_per_second", rate(cell.orders_per_s)),
        Fact::new("requests_per_second", rate(figures.requests_per_s)),
        Fact::new("latency", latency),
        Fact::new("requests", requests),
        Fact::new("in_flight", in_flight),
    ]
}

fn latency(figures: &Figures) -> Vec<LatencyLine> {
    let line = |outcome: Text, latency: &Latency| LatencyLine {
        outcome,
        count: latency.count,
        ms: [latency.p50_ms, latency.p90_ms, latency.p99_ms, latency.max_ms].map(milliseconds),
    };
    let mut lines = vec![line(Text::of("all"), &figures.all)];
    for outcome in Outcome::ALL {
        let latency = figures.outcomes.get(&outcome).filter(|latency| latency.count > 0);
        lines.extend(latency.map(|latency| line(names::outcome(outcome), latency)));
    }
    lines
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
    let line = |what: &'static str, spread: &HistogramSummary| {
        let bound = |ms: Option<f64>| ms.map_or("–".to_owned(), |ms| format!("≤ {ms}"));
        let mean =
            if spread.count > 0 { format!("{:.2}", spread.mean_ms) } else { "–".to_owned() };
        let ms = [mean, bound(spread.p50_at_most_ms), bound(spread.p99_at_most_ms)];
        TimeLine { what: Text::of(what), count: spread.count, ms }
    };
    Locks {
        replicas: Text::counted("replicas", metrics.replicas),
        missing: match metrics.started_anew {
            0 => None,
            count => Some(Text::counted("counts_missing", count)),
        },
        counts: vec![
            Fact::new("locks_taken", metrics.acquired),
            Fact::new("locks_asked", metrics.attempts),
            Fact::new("locks_busy", metrics.busy),
            Fact::new("locks_timed_out", metrics.timed_out),
            Fact::new("locks_failed", metrics.failed),
            Fact::new("locks_lost", metrics.lost),
        ],
        times: vec![
            line("wait", &metrics.wait),
            line("hold", &metrics.hold),
            line("hand_off", &metrics.hand_off),
        ],
    }
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
            Some(false) if demanded.contains(&finding.rule) => ("broken", "✗"),
            Some(false) => ("broken_as_predicted", "✗"),
            None => ("not_judged", "–"),
        };
        RuleLine {
            rule: names::rule(finding.rule),
            broken: finding.held == Some(false),
            held: Text::of(held),
            mark,
            detail: Text::english(&finding.detail),
        }
    };
    verdict.findings.iter().filter(|one| one.concerns_run(&demanded)).map(line).collect()
}

fn codes(figures: &Figures) -> Vec<Fact> {
    figures.codes.iter().map(|(code, count)| Fact::named(code, *count)).collect()
}

fn generator(figures: &Figures) -> Vec<Fact> {
    let cost = &figures.cost;
    let mut facts = Vec::new();
    if !cost.shared {
        let share = format!("{:.0} %", cost.machine_share * 100.0);
        facts.push(Fact::new("processor_time", format!("{:.2} s", cost.cpu_s)));
        facts.push(Fact::new("of_the_machine", share));
    }
    facts.push(Fact::new("waited_for_history", format!("{:.3} s", cost.recorder_wait_s)));
    if cost.lateness.count > 0 {
        let late = Text::of("at_most_late").with("ms", milliseconds(cost.lateness.p99_ms));
        facts.push(Fact::new("left_late", late));
        facts.push(Fact::new("never_sent", cost.dropped));
    }
    facts
}
