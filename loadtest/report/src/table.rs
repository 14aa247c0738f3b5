//! The cells of a comparison, or of a matrix, as one table.

use std::io::IsTerminal as _;

use comfy_table::{Attribute, Cell, CellAlignment, Color, LineStyle, Table, TableStyle, presets};
use loadtest_lab::cell::CellReport;
use loadtest_lab::predict::Prediction;
use loadtest_lab::topology::Topology;
use loadtest_load::stats::Figures;

use crate::names;
use crate::text::Text;

/// Column headers, in order.
const HEADERS: [&str; 14] = [
    "lock",
    "scope",
    "guards",
    "replicas",
    "scenario",
    "predicted",
    "observed",
    "oversold",
    "duplicates",
    "lost",
    "orders/s",
    "p50 ms",
    "p99 ms",
    "verdict",
];
/// Columns whose cells are aligned as numbers.
const NUMERIC_COLUMNS: [&str; 7] =
    ["replicas", "oversold", "duplicates", "lost", "orders/s", "p50 ms", "p99 ms"];
/// Columns that name the cell.
const NAME_COLUMNS: usize = 5;

/// What a table is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableSubject {
    /// Cells in which nothing happens, so they are distinguished without it.
    Comparison,
    /// Cells of all kinds, which leave no room for a second percentile.
    Matrix,
}

/// How cells are laid out, from the widest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// A line each.
    Wide,
    /// Two words go below each other.
    Narrow,
    /// The cell's name has a line of its own as well.
    Stacked,
}

/// A line under the header and no others: groups of cells are set apart by empty lines.
pub(super) const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// The format of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableFormat {
    /// For a person.
    Plain {
        /// Whether the reader sees colours.
        colours: bool,
        /// Columns that the reader has, if that is known.
        width: Option<u16>,
    },
    /// As Markdown.
    Markdown,
}

impl TableFormat {
    /// The format of a text file.
    pub const FILE: Self = Self::Plain { colours: false, width: None };

    /// Columns for prose: as many as are good to read, or as the reader has.
    pub(super) fn columns(self) -> usize {
        const GOOD: u16 = 100;
        match self {
            Self::Plain { width: Some(width), .. } => width.min(GOOD).into(),
            _ => GOOD.into(),
        }
    }

    /// The style of the table's lines.
    pub(super) fn style(self) -> TableStyle {
        if self == Self::Markdown { presets::ASCII_MARKDOWN } else { STYLE }
    }

    /// The format that standard output can show.
    pub fn of_stdout() -> Self {
        if std::io::stdout().is_terminal() {
            Self::Plain { colours: true, width: Table::new().width() }
        } else {
            Self::FILE
        }
    }
}

/// The table of all cells, as wide as its reader has room for.
pub fn table(cells: &[CellReport], of: TableSubject, format: TableFormat) -> String {
    let TableFormat::Plain { colours, width } = format else {
        let style = (presets::ASCII_MARKDOWN, false);
        return render(cells, of, style, Layout::Wide).join("\n");
    };
    let fits = |layout: &Layout| {
        let lines = render(cells, of, (STYLE, false), *layout);
        let widest = lines.iter().map(|line| line.chars().count()).max();
        width.is_none_or(|width| widest <= Some(usize::from(width)))
    };
    let layout = [Layout::Wide, Layout::Narrow].into_iter().find(fits).unwrap_or(Layout::Stacked);
    let mut lines = render(cells, of, (STYLE, colours), layout).into_iter();
    let mut text: Vec<String> = lines.by_ref().take(2).collect();
    let mut group = None;
    for cell in cells {
        let this = Some((cell.axes.guards, cell.axes.scope));
        if group.is_some() && group != this {
            text.push(String::new());
        }
        group = this;
        text.extend((layout == Layout::Stacked).then(|| cell.trial().to_string()));
        text.extend(lines.by_ref().take(height(cell, layout)));
    }
    text.join("\n")
}

/// Whether that table has that column.
fn has(of: TableSubject, layout: Layout, index: usize) -> bool {
    match HEADERS[index] {
        _ if index < NAME_COLUMNS && layout == Layout::Stacked => false,
        "scenario" => of == TableSubject::Matrix,
        "p50 ms" => of == TableSubject::Comparison && layout != Layout::Stacked,
        _ => true,
    }
}

/// Header, separator, then the lines of each cell.
fn render(
    cells: &[CellReport],
    of: TableSubject,
    (style, colours): (TableStyle, bool),
    layout: Layout,
) -> Vec<String> {
    let columns: Vec<usize> = (0..HEADERS.len()).filter(|index| has(of, layout, *index)).collect();
    let mut table = Table::new();
    table.load_style(style).set_header(columns.iter().map(|index| HEADERS[*index]));
    if colours {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    for cell in cells {
        let row = row(cell, layout).into_iter().enumerate();
        table.add_row(row.filter(|(index, _)| columns.contains(index)).map(|(_, cell)| cell));
    }
    for (column, index) in table.column_iter_mut().zip(&columns) {
        if style == STYLE {
            column.set_padding((0, u16::from(layout != Layout::Stacked)));
        }
        if NUMERIC_COLUMNS.contains(&HEADERS[*index]) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let indent = if layout == Layout::Stacked { "  " } else { "" };
    table.lines().map(|line| format!("{indent}{line}").trim_end().to_owned()).collect()
}

/// Lines of the table that the cell takes.
fn height(cell: &CellReport, layout: Layout) -> usize {
    let two = cell.predicted == Prediction::BREAKS
        || (cell.load.is_some() && cell.observed == Prediction::BREAKS);
    if layout != Layout::Wide && two { 2 } else { 1 }
}

fn words(prediction: Prediction, layout: Layout) -> String {
    let separator = if layout == Layout::Wide { ", " } else { ",\n" };
    prediction.words().replace(", ", separator)
}

fn row(cell: &CellReport, layout: Layout) -> Vec<Cell> {
    let axes = cell.axes;
    let (verdict, colour) = verdict(cell);
    let mut row: Vec<Cell> =
        [axes.lock.name(), axes.scope.name(), axes.guards.name()].map(Cell::new).into();
    row.push(Cell::new(axes.replicas));
    let what = cell.trial().scenario_or_fault().unwrap_or(cell.scenario.name());
    row.push(match cell.topology {
        Topology::Single => Cell::new(what),
        topology => Cell::new(format!("{what} on {}", topology.name())),
    });
    row.push(Cell::new(words(cell.predicted, layout)));
    if cell.load.is_some() {
        let observed = Cell::new(words(cell.observed, layout));
        row.push(if cell.observed.holds() { observed } else { observed.fg(Color::Yellow) });
        row.extend([cell.oversold, cell.duplicate_users, cell.lost].map(Cell::new));
        row.push(Cell::new(speed(cell, &format!("{:.0}", cell.orders_per_s))));
        let latencies = [cell.p50_ms, cell.p99_ms];
        row.extend(latencies.map(|value| Cell::new(speed(cell, &format!("{value:.1}")))));
    } else {
        row.extend(["-"; 7].map(Cell::new));
    }
    row.push(Cell::new(verdict).fg(colour).add_attribute(Attribute::Bold));
    row
}

/// What stands after a figure on speed that is not the service's alone.
const NO_VERDICT: &str = "*";
/// What that means.
pub(super) const NO_VERDICT_MEANS: &str =
    "*: no verdict on speed, as other cells ran then or the generator was the bottleneck";

/// Why there is no verdict on the speed of a cell; empty if there is one.
pub fn no_verdict_on_speed(cell: &CellReport) -> Vec<String> {
    cell.load.as_ref().map(Figures::bottlenecks).unwrap_or_default()
}

/// A figure on speed, as it was formatted, with a mark if it is no verdict.
pub(super) fn speed(cell: &CellReport, figure: &str) -> String {
    let mark = if no_verdict_on_speed(cell).is_empty() { "" } else { NO_VERDICT };
    format!("{figure}{mark}")
}

/// The line that explains the mark, if a cell has it.
pub(super) fn footnote(cells: &[CellReport]) -> Option<String> {
    let any = cells.iter().any(|cell| !no_verdict_on_speed(cell).is_empty());
    any.then(|| NO_VERDICT_MEANS.to_owned())
}

/// The last column: whether the cell shows what it should show.
pub fn verdict(cell: &CellReport) -> (&'static str, Color) {
    let breaks_more = cell.observed.breaks_more_than(cell.predicted);
    if cell.died {
        ("DIED", Color::Red)
    } else if !cell.valid && !cell.found_violation() {
        ("INVALID", Color::Red)
    } else if cell.as_predicted {
        ("as predicted", Color::Green)
    } else if breaks_more {
        ("BROKEN", Color::Red)
    } else if cell.observed != cell.predicted {
        ("NOT SHOWN", Color::Red)
    } else if cell.broken_rules.iter().all(|rule| rule.is_of_faults()) {
        ("NOT HEALED", Color::Red)
    } else {
        ("RULE BROKEN", Color::Red)
    }
}

/// Why a cell is not in order, each reason in words; empty if it is.
pub fn problems(cell: &CellReport) -> Vec<Text> {
    let mut because = Vec::new();
    if cell.load.is_some() && cell.observed != cell.predicted {
        because.push(
            Text::of("not_as_predicted")
                .with("predicted", names::prediction(cell.predicted))
                .with("observed", names::prediction(cell.observed)),
        );
    }
    if let Some(verdict) = &cell.verdict {
        because.extend(cell.broken_rules.iter().filter_map(|rule| {
            let detail = Text::english(&verdict.finding(*rule)?.detail);
            Some(Text::of("rule_broken_by").with("rule", names::rule(*rule)).with("detail", detail))
        }));
    }
    if cell.error.is_none() {
        because.extend(cell.invalid_because.iter().map(Text::english));
    }
    because.extend(cell.error.as_ref().map(Text::english));
    because
}

#[cfg(test)]
mod tests {
    use loadtest_lab::cell_spec::CellSpec;
    use loadtest_lab::fixtures::{figures, story, verdict_of};
    use loadtest_lab::presets::Preset;

    use super::*;
    use crate::tests::{matrix_report, report};

    fn widest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    #[test]
    fn any_table_fits_into_80_columns_and_has_colours_where_they_are_seen() {
        let smoke: Vec<CellReport> = Preset::Smoke.trials().0.into_iter().map(cell).collect();
        let format = |width| TableFormat::Plain { colours: false, width };
        for (cells, of) in [(story(), TableSubject::Comparison), (smoke, TableSubject::Matrix)] {
            let wide = widest(&table(&cells, of, format(None)));
            for width in [80_u16, 100, 132, 180] {
                let text = table(&cells, of, format(Some(width)));
                let lines = text.lines().filter(|line| !line.contains(" per "));
                let most = lines.map(|line| line.chars().count()).max().expect("lines");
                assert!(most <= usize::from(width), "{width}: {text}");
                for cell in &cells {
                    assert!(text.contains(verdict(cell).0), "{text}");
                }
            }
            assert!(wide > 100, "{wide}");
            let colours = TableFormat::Plain { colours: true, width: Some(80) };
            assert!(table(&cells, of, colours).contains('\x1b'));
        }
    }

    fn cell(trial: CellSpec) -> CellReport {
        CellReport::of(trial, 100, figures(), verdict_of(310, 55))
    }

    #[test]
    fn of_a_cell_that_never_ran_nothing_is_claimed() {
        let ran = story();
        let failed = |cell: &CellReport| {
            let took = std::time::Duration::ZERO;
            CellReport::failed(cell.trial(), 100, "interrupted".to_owned(), took)
        };
        let cells = [failed(&ran[2])];
        for of in [TableSubject::Comparison, TableSubject::Matrix] {
            let text = table(&cells, of, TableFormat::FILE);
            let line = text.lines().last().expect("a line");
            assert_eq!(line.matches("holds").count(), 1, "only predicted: {line}");
            let figures = if of == TableSubject::Matrix { 6 } else { 7 };
            let words = line.split_whitespace().filter(|word| *word == "-").count();
            assert_eq!(words, figures, "{line}");
            assert!(line.ends_with("INVALID"), "{line}");
        }
    }

    #[test]
    fn figures_that_are_no_verdict_on_speed_are_marked_and_the_mark_is_explained() {
        let limited = |cell: &mut CellReport| {
            cell.load.as_mut().expect("figures").cost.machine_share = 0.9;
        };
        for format in [TableFormat::FILE, TableFormat::Markdown] {
            for mut report in [report(story()), matrix_report()] {
                assert!(!report.text(format).contains('*'), "{}", report.text(format));
                limited(&mut report.cells[1]);
                let text = report.text(format);
                assert_eq!((text.matches("312*").count(), text.matches("56.8*").count()), (1, 1));
                assert!(text.contains(NO_VERDICT_MEANS), "{text}");
            }
        }
    }
}
