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

use crate::baseline::{BugChange, Change, Changes, NOTEWORTHY, list_names};
use crate::conclusion::Conclusion;
use crate::html::cell::{Fact, Section, is_brief};
use crate::html::grid::{CellKind, Grid};
use crate::html::injected_bugs::InjectedBugTable;
use crate::table::no_verdict_on_speed;
use crate::text::Text;
use crate::{Report, names, repeat};

/// Most cells that are open from the start: each draws its curves then.
const MAX_OPEN: usize = 8;

/// The whole page.
#[derive(Debug, Serialize)]
pub struct Page {
    /// The title of the page.
    pub title: Text,
    /// What was asked.
    pub question: Text,
    /// The answer.
    pub answer: Text,
    /// What it rests on.
    pub more: Text,
    /// A bug that all replicas had, if they had one.
    pub injected_bug: Option<&'static str>,
    /// Whether the run is green.
    pub ok: bool,
    /// How many cells and injected bugs there are, and how many came out as predicted.
    pub count: Text,
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
    pub words: Text,
    /// What it means.
    pub meaning: Text,
    /// How many there are.
    pub count: usize,
}

/// Facts under a heading.
#[derive(Debug, Serialize)]
pub struct FactSheet {
    /// The heading.
    pub title: Text,
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
    pub same: Text,
    /// The factor from which on a figure has changed.
    pub noteworthy: f64,
    /// Cells that are new.
    pub new: Text,
    /// Cells that were not run any more.
    pub gone: Text,
    /// Injected bugs with another outcome.
    pub bugs: Vec<BugChange>,
}

/// What changed in one cell.
#[derive(Debug, Serialize)]
pub struct ChangeLine {
    /// Which.
    pub name: Text,
    /// Its verdict before.
    pub was: Option<Text>,
    /// Its verdict now.
    pub is: Option<Text>,
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
        let question = [setting].into_iter().filter(|it| !it.is_empty()).chain(question(report));
        let count = count(report);
        Self {
            title: Text::of("page_title").with("count", count.clone()),
            question: Text::sentences(question),
            answer,
            more,
            injected_bug,
            ok: report.ok,
            count,
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
fn count(report: &Report) -> Text {
    let good = report.cells.iter().filter(|cell| cell.ok()).count();
    let cells = Text::counted("cells", report.cells.len());
    let mut parts = vec![Text::of("cells_as_predicted").with("cells", cells).with("good", good)];
    if let Some(results) = &report.injected_bugs {
        let bugs = Text::counted("bugs", results.injected);
        parts.push(Text::of("bugs_caught").with("bugs", bugs).with("caught", results.caught));
        if results.clean < results.injected {
            let unclean = results.injected - results.clean;
            parts.push(Text::of("bugs_unclean").with("count", unclean));
        }
    }
    Text::joined("semicolon", parts)
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
fn question(report: &Report) -> Vec<Text> {
    let load = &report.load;
    let special = report.cells.iter().filter(|cell| !cell.trial().is_plain()).count();
    let mut sentences = Vec::new();
    if special == report.cells.len() {
        sentences.push(Text::of("sale_with_faults"));
    } else {
        let requests = Text::counted("requests", load.requests_per_user);
        let sale = Text::of("sale").with("units", load.stock).with("users", load.users);
        sentences.push(sale.with("requests", requests));
        sentences.extend((special > 0).then(|| Text::counted("more_sales", special)));
    }
    let mut locks: Vec<Lock> = report.cells.iter().map(|cell| cell.axes.lock).collect();
    locks.dedup();
    sentences.push(match locks[..] {
        [Lock::None] => Text::of("is_stock_kept"),
        [lock] => Text::of("does_lock_keep").with("lock", lock.name()),
        _ => Text::of("which_lock_keeps"),
    });
    sentences
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
        ChangeLine { name: names::cell(change.cell), was, is, throughput, p99 }
    };
    ChangesView {
        since: moment(&changes.since),
        changed: changes.changed.iter().map(line).collect(),
        same: Text::counted("cells", changes.same),
        noteworthy: NOTEWORTHY,
        new: list_names(&changes.new),
        gone: list_names(&changes.gone),
        bugs: changes.bugs.clone(),
    }
}

fn about(report: &Report) -> Vec<FactSheet> {
    let (load, versions, machine) = (&report.load, &report.versions, &report.machine);
    let [loadtest, seckill] = versions.builds().map(Text::english);
    let loadtest = Text::joined("comma", [versions.loadtest.into(), loadtest]);
    let mut ran = vec![
        Fact::named("loadtest", loadtest),
        Fact::named("seckill", seckill),
        Fact::new("database", &versions.database),
        Fact::named("Redis", &versions.redis),
        Fact::named("HAProxy", &versions.haproxy),
    ];
    ran.extend(versions.zookeeper.as_ref().map(|version| Fact::named("ZooKeeper", version)));
    ran.extend(versions.etcd.as_ref().map(|version| Fact::named("etcd", version)));
    ran.extend(versions.nats.as_ref().map(|version| Fact::named("NATS", version)));
    let sheet = |title: &'static str, facts| FactSheet { title: Text::of(title), facts };
    let mut all = Vec::new();
    all.extend(is_used(load, &report.cells).then(|| usual(load)));
    let took = format!("{}, {:.0} s", moment(&report.started_at), report.took_s);
    all.extend([
        sheet(
            "server_settings",
            vec![
                Fact::new("database", Text::english(report.settings.database())),
                Fact::named("Redis", Text::english(report.settings.redis())),
            ],
        ),
        sheet("versions", ran),
        sheet("generator", generator(&report.cells)),
        sheet(
            "machine",
            vec![
                Fact::new("processors", format!("{} × {}", machine.cpus, machine.cpu)),
                Fact::new("memory", format!("{} MiB", machine.memory_mib)),
                Fact::new("system", format!("{}, Linux {}", machine.system, machine.kernel)),
                Fact::new("the_run", took),
            ],
        ),
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
    let bug = load.injected_bug.map_or_else(|| Text::of("none"), |bug| bug.name().into());
    FactSheet {
        title: Text::of("usual_load"),
        facts: vec![
            Fact::new("users", load.users),
            Fact::new("units", load.stock),
            Fact::new("requests_per_user", load.requests_per_user),
            Fact::new("connections_busy", load.connections),
            Fact::new("extra_work", format!("{} ms", load.work_ms)),
            Fact::new("mode", load.mode.name()),
            Fact::new("injected_bug", bug),
        ],
    }
}

/// Over all cells that ran; processor time of those that ran alone.
fn generator(cells: &[CellReport]) -> Vec<Fact> {
    let loads: Vec<_> = cells.iter().filter_map(|cell| cell.load.as_ref()).collect();
    let costs: Vec<&Cost> = loads.iter().map(|figures| &figures.cost).collect();
    let alone = || costs.iter().filter(|cost| !cost.shared);
    let cpu_s: f64 = alone().map(|cost| cost.cpu_s).sum();
    let most = alone().map(|cost| cost.machine_share).fold(0.0, f64::max);
    let is_limited = |cost: &Cost, p99_ms| !cost.shared && !cost.bottlenecks(p99_ms).is_empty();
    let limited = loads.iter().filter(|load| is_limited(&load.cost, load.all.p99_ms)).count();
    let share = Text::of("at_most_in_a_cell").with("share", format!("{:.0} %", most * 100.0));
    let limited = Text::of("in_cells").with("some", limited).with("count", costs.len());
    let cpu_s = Text::of("in_all_cells").with("s", format!("{cpu_s:.1}"));
    let mut facts = vec![Fact::new("was_bottleneck", limited)];
    if alone().next().is_some() {
        facts.extend([Fact::new("processor_time", cpu_s), Fact::new("of_the_machine", share)]);
    }
    facts
}
