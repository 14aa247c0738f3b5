//! The matrix as a table: one square a cell, coloured, marked and named by what it came to.
//!
//! Few locks stand side by side, so that they are compared at a glance; many stand below each
//! other, so that the table fits a screen. Cells in which something happens are no part of that
//! table: they stand below it, by what happens, whatever locks there are.

use loadtest_judge::setting::{Guards, Scope};
use loadtest_lab::cell::CellReport;
use loadtest_lab::lock::Lock;
use serde::Serialize;

use crate::names;
use crate::table::no_verdict_on_speed;
use crate::text::Text;

/// Most locks that stand side by side.
const SIDE_BY_SIDE: usize = 4;

/// What a cell came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CellKind {
    /// Nothing was broken, as predicted.
    Safe,
    /// Something was broken, as predicted.
    Unsafe,
    /// It came out otherwise than predicted.
    Surprise,
    /// It was no real load, so it shows nothing.
    Invalid,
}

impl CellKind {
    /// All, in the order of the legend.
    pub const ALL: [Self; 4] = [Self::Safe, Self::Unsafe, Self::Surprise, Self::Invalid];

    /// The kind of a cell.
    pub fn of(cell: &CellReport) -> Self {
        match (cell.valid || cell.found_violation(), cell.as_predicted, cell.observed.holds()) {
            (false, ..) => Self::Invalid,
            (true, false, _) => Self::Surprise,
            (true, true, true) => Self::Safe,
            (true, true, false) => Self::Unsafe,
        }
    }

    /// A mark that shows it without colour.
    pub fn mark(self) -> &'static str {
        match self {
            Self::Safe => "✓",
            Self::Unsafe => "✗",
            Self::Surprise => "!",
            Self::Invalid => "?",
        }
    }

    /// What it is called.
    pub fn words(self) -> Text {
        Text::of(match self {
            Self::Safe => "safe",
            Self::Unsafe => "unsafe",
            Self::Surprise => "surprise",
            Self::Invalid => "invalid",
        })
    }

    /// What it means.
    pub fn meaning(self) -> Text {
        Text::of(match self {
            Self::Safe => "safe_means",
            Self::Unsafe => "unsafe_means",
            Self::Surprise => "surprise_means",
            Self::Invalid => "invalid_means",
        })
    }
}

/// One square.
#[derive(Debug, Serialize)]
pub struct Square {
    /// The id of the cell's section.
    pub id: String,
    /// What it came to.
    pub kind: CellKind,
    /// A mark that shows it without colour.
    pub mark: &'static str,
    /// What it shows, in words.
    pub words: Text,
    /// The cell's name.
    pub name: Text,
    /// What is not said by where it stands.
    pub label: Option<String>,
    /// Orders per second; `None` if it was not run.
    pub rate: Option<String>,
    /// The 99th percentile in milliseconds.
    pub p99: Option<String>,
    /// Whether these are no verdict on speed.
    pub limited: bool,
}

/// One line of squares.
#[derive(Debug, Serialize)]
pub struct Row {
    /// What its cells have in common.
    pub name: Text,
    /// The squares, one a column; `None` where there is no such cell.
    pub squares: Vec<Option<Square>>,
}

/// Lines that belong together.
#[derive(Debug, Serialize)]
pub struct Group {
    /// What they have in common.
    pub name: Text,
    /// The lines.
    pub rows: Vec<Row>,
}

/// Cells in which the same happens.
#[derive(Debug, Serialize)]
pub struct ScenarioRow {
    /// What.
    pub name: &'static str,
    /// What that does.
    pub does: Text,
    /// The cells.
    pub squares: Vec<Square>,
}

/// Cells that have guards and scope in common.
#[derive(Debug, Serialize)]
pub struct ScenarioGroup {
    /// What they have in common.
    pub name: Text,
    /// The lines.
    pub rows: Vec<ScenarioRow>,
}

/// The table.
#[derive(Debug, Serialize)]
pub struct Grid {
    /// What the first column holds.
    pub corner: Text,
    /// The other columns.
    pub columns: Vec<Text>,
    /// The lines, in groups.
    pub groups: Vec<Group>,
    /// Cells in which something happens.
    pub scenarios: Vec<ScenarioGroup>,
}

/// Where a cell stands in the table: group, row, column.
type GridPosition = [Text; 3];

impl Grid {
    /// Lays out all cells, in the order in which they come.
    pub fn of(cells: &[CellReport]) -> Self {
        let plain = || cells.iter().filter(|cell| cell.trial().is_plain());
        let mut locks: Vec<Lock> = Vec::new();
        for cell in plain() {
            if !locks.contains(&cell.axes.lock) {
                locks.push(cell.axes.lock);
            }
        }
        let (corner, spot): (_, fn(&CellReport) -> GridPosition) =
            if locks.len() <= SIDE_BY_SIDE { ("replicas", by_lock) } else { ("lock", by_place) };
        let corner = Text::of(corner);
        let mut columns: Vec<Text> = Vec::new();
        let mut groups: Vec<Group> = Vec::new();
        for cell in plain() {
            let [_, _, column] = spot(cell);
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        for cell in plain() {
            let [group, row, column] = spot(cell);
            let rows = &mut entry(
                &mut groups,
                |one| one.name == group,
                || Group { name: group.clone(), rows: Vec::new() },
            )
            .rows;
            let row = entry(
                rows,
                |one| one.name == row,
                || Row { name: row.clone(), squares: columns.iter().map(|_| None).collect() },
            );
            let at = columns.iter().position(|one| *one == column);
            if let Some(square) = at.and_then(|at| row.squares.get_mut(at)) {
                *square = Some(Square::of(cell));
            }
        }
        Self { corner, columns, groups, scenarios: scenarios(cells) }
    }
}

/// The first that `is` it, which is made if there is none.
fn entry<T>(list: &mut Vec<T>, is: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> &mut T {
    let at = list.iter().position(is).unwrap_or_else(|| {
        list.push(make());
        list.len() - 1
    });
    &mut list[at]
}

fn scenarios(cells: &[CellReport]) -> Vec<ScenarioGroup> {
    let mut groups: Vec<ScenarioGroup> = Vec::new();
    for cell in cells {
        let (trial, axes) = (cell.trial(), cell.axes);
        let (Some(what), Some(does)) = (trial.scenario_or_fault(), trial.description()) else {
            continue;
        };
        let name = group(cell);
        let rows = &mut entry(
            &mut groups,
            |one| one.name == name,
            || ScenarioGroup { name: name.clone(), rows: Vec::new() },
        )
        .rows;
        let row = entry(
            rows,
            |one| one.name == what,
            || ScenarioRow { name: what, does: Text::english(does), squares: Vec::new() },
        );
        let label = format!("{} × {}", axes.lock.name(), axes.replicas);
        let label = Some(cell.rung.clone().unwrap_or(label));
        row.squares.push(Square { label, ..Square::of(cell) });
    }
    groups
}

fn group(cell: &CellReport) -> Text {
    Text::joined("comma", [guarded(cell.axes.guards), scoped(cell.axes.scope)])
}

fn by_lock(cell: &CellReport) -> GridPosition {
    let (group, axes) = (group(cell), cell.axes);
    [group, axes.replicas.into(), axes.lock.name().into()]
}

fn by_place(cell: &CellReport) -> GridPosition {
    let axes = cell.axes;
    let column = Text::of("times").with("scope", scoped(axes.scope)).with("count", axes.replicas);
    [guarded(axes.guards), axes.lock.name().into(), column]
}

fn guarded(guards: Guards) -> Text {
    Text::of(match guards {
        Guards::Off => "without_guards",
        Guards::On => "with_guards",
    })
}

fn scoped(scope: Scope) -> Text {
    Text::of(match scope {
        Scope::User => "lock_per_user",
        Scope::Voucher => "lock_per_voucher",
    })
}

impl Square {
    fn of(cell: &CellReport) -> Self {
        let kind = CellKind::of(cell);
        let words = match kind {
            CellKind::Safe | CellKind::Invalid => kind.words(),
            CellKind::Unsafe => names::prediction(cell.observed),
            CellKind::Surprise => surprise(cell),
        };
        let ran = cell.load.is_some();
        Self {
            id: cell.id(),
            kind,
            mark: kind.mark(),
            words,
            name: names::title(cell),
            label: None,
            rate: ran.then(|| rate(cell.orders_per_s)),
            p99: ran.then(|| milliseconds(cell.p99_ms)),
            limited: !no_verdict_on_speed(cell).is_empty(),
        }
    }
}

/// What came out otherwise, under the name that the legend has for it.
pub fn surprise(cell: &CellReport) -> Text {
    let (observed, predicted) = (cell.observed, cell.predicted);
    let what = if observed != predicted {
        Text::of("instead_of")
            .with("observed", names::prediction(observed))
            .with("predicted", names::prediction(predicted))
    } else if let Some(rule) = cell.broken_rules.first() {
        Text::of("rule_broken").with("rule", names::rule(*rule))
    } else {
        Text::of("not_healed")
    };
    Text::joined("colon", [CellKind::Surprise.words(), what])
}

/// A rate as it is shown.
pub fn rate(per_s: f64) -> String {
    format!("{per_s:.0}")
}

/// Milliseconds as they are shown: three digits or more are enough.
pub fn milliseconds(ms: f64) -> String {
    if ms < 100.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}
