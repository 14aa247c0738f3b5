//! What the page shows, in the order in which it shows it.

use std::collections::BTreeMap;

use loadtest_lab::cell::CellReport;
use loadtest_lab::cell_axes::{InjectedBug, Load};
use loadtest_lab::lock::Lock;
use loadtest_lab::round::FaultRecord;
use loadtest_lab::series::Series;
use loadtest_load::cost::Cost;
use loadtest_load::outcome::Outcome;
use loadtest_load::quantiles::Quantile;
use serde::Serialize;

use crate::baseline::{BugChange, Change, Changes, NOTEWORTHY, names};
use crate::conclusion::Conclusion;
use crate::html::cell::{Fact, Section, is_brief};
use crate::html::grid::{CellKind, Grid};
use crate::html::injected_bugs::InjectedBugTable;
use crate::table::no_verdict_on_speed;
use crate::{Report, counted, repeat};

/// Most cells that are open from the start: each draws its curves then.
const MAX_OPEN: usize = 8;

/// The whole page.
#[derive(Debug, Serialize)]
pub struct Page {
    /// What was asked.
    pub question: String,
    /// The answer.
    pub answer: String,
    /// What it rests on.
    pub more: String,
    /// A bug that all replicas had, if they had one.
    pub injected_bug: Option<&'static str>,
    /// Whether the run is green.
    pub ok: bool,
    /// How many cells and injected bugs there are, and how many came out as predicted.
    pub count: String,
    /// The matrix.
    pub grid: Grid,
    /// What its colours and marks mean.
    pub legend: Vec<Legend>,
    /// How many cells have no verdict on speed.
    pub limited: usize,
    /// What changed since an earlier run.
    pub changes: Option<ChangesView>,
    /// The cells.
    pub cells: Vec<Section>,
    /// The results of the injected bugs.
    pub injected_bugs: Option<InjectedBugTable>,
    /// The command that repeats it.
    pub command: String,
    /// Load, settings, versions, machine: each with its facts.
    pub about: Vec<FactSheet>,
    /// When the run began, RFC 3339.
    pub started_at: String,
    /// The same for people.
    pub began: String,
    /// What the script draws, by the id of the cell's section.
    pub plots: BTreeMap<String, Plot>,
}

/// One line of the legend.
#[derive(Debug, Serialize)]
pub struct Legend {
    /// Which kind of cell.
    pub kind: CellKind,
    /// Its mark.
    pub mark: &'static str,
    /// Its name.
    pub words: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// How many there are.
    pub count: usize,
}

/// Facts under a heading.
#[derive(Debug, Serialize)]
pub struct FactSheet {
    /// The heading.
    pub title: &'static str,
    /// The facts.
    pub facts: Vec<Fact>,
}

/// What the curves of one cell are drawn from.
#[derive(Debug, Serialize)]
pub struct Plot {
    /// Answers over time.
    pub series: Series,
    /// Latencies of each outcome, as the table has them.
    pub latency: BTreeMap<Outcome, Vec<Quantile>>,
    /// What was done to it, and when.
    pub faults: Vec<FaultRecord>,
    /// When the main load was over and the closing ones began, where there are any.
    pub closing_ns: Option<u64>,
}

/// What changed since an earlier run, in words.
#[derive(Debug, Serialize)]
pub struct ChangesView {
    /// When that run began.
    pub since: String,
    /// Cells that changed, those whose verdict did first.
    pub changed: Vec<ChangeLine>,
    /// How many did not, in words.
    pub same: String,
    /// The factor from which on a figure has changed.
    pub noteworthy: f64,
    /// Cells that are new.
    pub new: Vec<String>,
    /// Cells that were not run any more.
    pub gone: Vec<String>,
    /// Injected bugs with another outcome.
    pub bugs: Vec<BugChange>,
}

/// What changed in one cell.
#[derive(Debug, Serialize)]
pub struct ChangeLine {
    /// Which.
    pub name: String,
    /// Its verdict before.
    pub was: Option<String>,
    /// Its verdict now.
    pub is: Option<String>,
    /// Throughput now, as a multiple of that before.
    pub throughput: String,
    /// The same of the 99th percentile of latency.
    pub p99: String,
}

impl Page {
    /// The page of a report.
    pub fn of(report: &Report) -> Self {
        let (cells, load) = (&report.cells, &report.load);
        let injected_bug = load.injected_bug.map(InjectedBug::name);
        // The sentence on an injected bug has a place of its own.
        let Conclusion { setting, injected_bug: _, answer, more } = report.conclusion.clone();
        Self {
            question: setting + &question(report),
            answer,
            more,
            injected_bug,
            ok: report.ok,
            count: count(report),
            grid: Grid::of(cells),
            legend: CellKind::ALL.map(|kind| legend(kind, cells)).into(),
            limited: cells.iter().filter(|cell| !no_verdict_on_speed(cell).is_empty()).count(),
            changes: report.changes.as_ref().map(changes),
            cells: sections(report),
            injected_bugs: report.injected_bugs.as_ref().map(InjectedBugTable::of),
            command: repeat::run(report),
            about: about(report),
            started_at: report.started_at.clone(),
            began: moment(&report.started_at),
            plots: cells.iter().filter(|cell| !is_brief(cell, report)).filter_map(plot).collect(),
        }
    }
}

/// The sections of all cells; surprises are open, as long as they are few.
fn sections(report: &Report) -> Vec<Section> {
    let mut all: Vec<_> = report.cells.iter().map(|cell| Section::of(cell, report)).collect();
    let surprises = all.iter_mut().filter(|section| section.kind == CellKind::Surprise);
    surprises.take(MAX_OPEN).for_each(|section| section.open = true);
    all
}

/// How many came out as predicted.
fn count(report: &Report) -> String {
    let good = report.cells.iter().filter(|cell| cell.ok()).count();
    let mut parts =
        vec![format!("{}, {good} of them as predicted", counted(report.cells.len(), "cell"))];
    if let Some(results) = &report.injected_bugs {
        parts.push(format!(
            "{}, {} of them caught",
            counted(results.injected, "injected bug"),
            results.caught
        ));
        if results.clean < results.injected {
            parts.push(format!("{} not clean without the bug", results.injected - results.clean));
        }
    }
    parts.join("; ")
}

/// `2026-01-31T12:34:56Z` as `2026-01-31 12:34 UTC`; anything else as it is.
fn moment(rfc3339: &str) -> String {
    match (rfc3339.get(..10), rfc3339.get(11..16), rfc3339.ends_with('Z')) {
        (Some(day), Some(minute), true) => format!("{day} {minute} UTC"),
        _ => rfc3339.to_owned(),
    }
}

/// What all cells have in common is shown; cells in which something happens have loads of their
/// own.
fn question(report: &Report) -> String {
    let load = &report.load;
    let special = report.cells.iter().filter(|cell| !cell.trial().is_plain()).count();
    let sale = if special == report.cells.len() {
        "A voucher is sold under load, and meanwhile something goes wrong.".to_owned()
    } else {
        let meanwhile = match special {
            0 => String::new(),
            1 => " In one more sale something goes wrong meanwhile.".to_owned(),
            more => format!(" In {more} more sales something goes wrong meanwhile."),
        };
        format!(
            "{} units are put on sale, {} users want one, and each sends {} at the same \
             moment.{meanwhile}",
            load.stock,
            load.users,
            counted(load.requests_per_user, "request")
        )
    };
    let mut locks: Vec<Lock> = report.cells.iter().map(|cell| cell.axes.lock).collect();
    locks.dedup();
    let asked = match locks[..] {
        [Lock::None] => "Is the stock kept to, and does no user buy twice?".to_owned(),
        [lock] => format!("Does {} keep to the stock, and sell twice to no user?", lock.name()),
        _ => "Which lock keeps to the stock, and sells twice to no user?".to_owned(),
    };
    format!("{sale} {asked}")
}

fn legend(kind: CellKind, cells: &[CellReport]) -> Legend {
    let count = cells.iter().filter(|cell| CellKind::of(cell) == kind).count();
    Legend { kind, mark: kind.mark(), words: kind.words(), meaning: kind.meaning(), count }
}

fn plot(cell: &CellReport) -> Option<(String, Plot)> {
    let detail = cell.detail.as_ref()?;
    let plot = Plot {
        series: detail.series.clone(),
        latency: cell.load.as_ref().map(|figures| figures.curves.clone()).unwrap_or_default(),
        faults: cell.round.iter().flat_map(|round| round.faults.clone()).collect(),
        closing_ns: cell.round.as_ref().map(|round| round.closing_ns),
    };
    Some((cell.id(), plot))
}

fn changes(changes: &Changes) -> ChangesView {
    let times = |ratio: Option<f64>| ratio.map_or("–".to_owned(), |it| format!("× {it:.2}"));
    let line = |change: &Change| {
        let (was, is) = change.verdict.clone().unzip();
        let (throughput, p99) = (times(change.throughput), times(change.p99));
        ChangeLine { name: change.cell.to_string(), was, is, throughput, p99 }
    };
    ChangesView {
        since: moment(&changes.since),
        changed: changes.changed.iter().map(line).collect(),
        same: counted(changes.same, "cell"),
        noteworthy: NOTEWORTHY,
        new: names(&changes.new),
        gone: names(&changes.gone),
        bugs: changes.bugs.clone(),
    }
}

fn about(report: &Report) -> Vec<FactSheet> {
    let (load, versions, machine) = (&report.load, &report.versions, &report.machine);
    let [loadtest, seckill] = versions.builds();
    let mut ran = vec![
        Fact::new("loadtest", format!("{}, {loadtest}", versions.loadtest)),
        Fact::new("seckill", seckill),
        Fact::new("database", &versions.database),
        Fact::new("Redis", &versions.redis),
        Fact::new("HAProxy", &versions.haproxy),
    ];
    ran.extend(versions.zookeeper.as_ref().map(|version| Fact::new("ZooKeeper", version)));
    let mut all = Vec::new();
    all.extend(is_used(load, &report.cells).then(|| usual(load)));
    all.extend([
        FactSheet {
            title: "Settings of the servers",
            facts: vec![
                Fact::new("database", report.settings.database()),
                Fact::new("Redis", report.settings.redis()),
            ],
        },
        FactSheet { title: "Versions", facts: ran },
        FactSheet { title: "The generator itself", facts: generator(&report.cells) },
        FactSheet {
            title: "Machine",
            facts: vec![
                Fact::new("processors", format!("{} × {}", machine.cpus, machine.cpu)),
                Fact::new("memory", format!("{} MiB", machine.memory_mib)),
                Fact::new("system", format!("{}, Linux {}", machine.system, machine.kernel)),
                Fact::new(
                    "the run",
                    format!("{}, {:.0} s", moment(&report.started_at), report.took_s),
                ),
            ],
        },
    ]);
    all
}

/// Whether a cell had that load. For one that does not report it, the planned load is known.
fn is_used(load: &Load, cells: &[CellReport]) -> bool {
    cells.iter().any(|cell| match &cell.setup {
        Some(setup) => setup.load == *load,
        None => cell.trial().load(load) == *load,
    })
}

fn usual(load: &Load) -> FactSheet {
    FactSheet {
        title: "The usual load",
        facts: vec![
            Fact::new("users", load.users),
            Fact::new("units", load.stock),
            Fact::new("requests of a user at once", load.requests_per_user),
            Fact::new("connections kept busy", load.connections),
            Fact::new("extra work under the lock", format!("{} ms", load.work_ms)),
            Fact::new("mode", load.mode.name()),
            Fact::new("injected bug", load.injected_bug.map_or("none", InjectedBug::name)),
        ],
    }
}

/// Over all cells that ran.
fn generator(cells: &[CellReport]) -> Vec<Fact> {
    let loads: Vec<_> = cells.iter().filter_map(|cell| cell.load.as_ref()).collect();
    let costs: Vec<&Cost> = loads.iter().map(|figures| &figures.cost).collect();
    let cpu_s: f64 = costs.iter().map(|cost| cost.cpu_s).sum();
    let most = costs.iter().map(|cost| cost.machine_share).fold(0.0, f64::max);
    let limited = loads.iter().filter(|figures| !figures.bottlenecks().is_empty()).count();
    vec![
        Fact::new("processor time", format!("{cpu_s:.1} s in all cells")),
        Fact::new("of the whole machine", format!("at most {:.0} % in a cell", most * 100.0)),
        Fact::new("it was the bottleneck", format!("in {limited} of {} cells", costs.len())),
    ]
}
