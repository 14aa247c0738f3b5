//! The comparison as one table.

use std::io::IsTerminal as _;

use comfy_table::{Attribute, Cell, CellAlignment, Color, LineStyle, Table, TableStyle, presets};

use crate::lab::cell::CellReport;
use crate::lab::predict::Prediction;
use crate::load::stats::Figures;

/// Column headers, in order.
const HEADERS: [&str; 13] = [
    "lock",
    "scope",
    "guards",
    "replicas",
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
const NUMBERS: [&str; 7] =
    ["replicas", "oversold", "duplicates", "lost", "orders/s", "p50 ms", "p99 ms"];

/// A line under the header and no others: groups of cells are set apart by empty lines.
pub(super) const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// How a table is to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
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

impl Look {
    /// That of a text file.
    pub const FILE: Self = Self::Plain { colours: false, width: None };

    /// That of its lines.
    pub(super) fn style(self) -> TableStyle {
        if self == Self::Markdown { presets::ASCII_MARKDOWN } else { STYLE }
    }

    /// That of standard output.
    pub fn of_stdout() -> Self {
        if std::io::stdout().is_terminal() {
            Self::Plain { colours: true, width: Table::new().width() }
        } else {
            Self::FILE
        }
    }
}

/// The table of all cells. Where it is too wide for its reader, two words go below each other.
pub fn table(cells: &[CellReport], look: Look) -> String {
    let Look::Plain { colours, width } = look else {
        return render(cells, (presets::ASCII_MARKDOWN, false, false)).join("\n");
    };
    let widest = render(cells, (STYLE, false, false)).iter().map(|line| line.chars().count()).max();
    let narrow = width.is_some_and(|width| widest > Some(usize::from(width)));
    let lines = render(cells, (STYLE, colours, narrow));
    let mut text = Vec::new();
    let mut lines = lines.into_iter();
    text.extend(lines.by_ref().take(2));
    let mut group = None;
    for cell in cells {
        let this = Some((cell.place.guards, cell.place.scope));
        if group.is_some() && group != this {
            text.push(String::new());
        }
        group = this;
        text.extend(lines.by_ref().take(height(cell, narrow)));
    }
    text.join("\n")
}

/// Header, separator, then the lines of each cell.
fn render(cells: &[CellReport], (style, colours, narrow): (TableStyle, bool, bool)) -> Vec<String> {
    let mut table = Table::new();
    table.load_style(style).set_header(HEADERS);
    if colours {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    for cell in cells {
        table.add_row(row(cell, narrow));
    }
    if style == STYLE {
        for column in table.column_iter_mut() {
            column.set_padding((0, 1));
        }
    }
    for name in NUMBERS {
        let index = HEADERS.iter().position(|header| *header == name);
        if let Some(column) = index.and_then(|index| table.column_mut(index)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Lines that the cell takes.
fn height(cell: &CellReport, narrow: bool) -> usize {
    let two = cell.predicted == Prediction::BREAKS
        || (cell.load.is_some() && cell.observed == Prediction::BREAKS);
    if narrow && two { 2 } else { 1 }
}

fn words(prediction: Prediction, narrow: bool) -> String {
    let separator = if narrow { ",\n" } else { ", " };
    prediction.words().replace(", ", separator)
}

fn row(cell: &CellReport, narrow: bool) -> Vec<Cell> {
    let place = cell.place;
    let (verdict, colour) = verdict(cell);
    let mut row: Vec<Cell> =
        [place.lock.name(), place.scope.name(), place.guards.name()].map(Cell::new).into();
    row.push(Cell::new(place.replicas));
    row.push(Cell::new(words(cell.predicted, narrow)));
    if cell.load.is_some() {
        let observed = Cell::new(words(cell.observed, narrow));
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

/// What stands after a figure on speed that is the generator's rather than the service's.
const NO_VERDICT: &str = "*";
/// What that means.
pub(super) const NO_VERDICT_MEANS: &str =
    "*: no verdict on speed, since the generator was the bottleneck";

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

/// The last column: whether the cell shows what it was to show.
pub fn verdict(cell: &CellReport) -> (&'static str, Color) {
    let breaks_more = cell.observed.oversells && !cell.predicted.oversells
        || cell.observed.duplicates && !cell.predicted.duplicates;
    if !cell.valid {
        ("INVALID", Color::Red)
    } else if cell.as_predicted {
        ("as predicted", Color::Green)
    } else if breaks_more {
        ("BROKEN", Color::Red)
    } else if cell.observed != cell.predicted {
        ("NOT SHOWN", Color::Red)
    } else if cell.round.as_ref().is_some_and(|round| !round.unmet.is_empty()) {
        ("NOT HEALED", Color::Red)
    } else {
        ("RULE BROKEN", Color::Red)
    }
}

/// Why a cell is not in order, each reason in words; empty if it is.
pub fn problems(cell: &CellReport) -> Vec<String> {
    let mut because = Vec::new();
    if cell.load.is_some() && cell.observed != cell.predicted {
        because.push(format!(
            "predicted {}, observed {}",
            cell.predicted.words(),
            cell.observed.words()
        ));
    }
    if let Some(verdict) = &cell.verdict {
        because.extend(cell.broken_rules.iter().filter_map(|rule| {
            let finding = verdict.finding(*rule)?;
            Some(format!("not so: {} ({})", rule.words(), finding.detail))
        }));
    }
    because.extend(cell.shared());
    because.extend(cell.round.iter().flat_map(|round| round.unmet.iter().cloned()));
    if cell.error.is_none() {
        because.extend(cell.invalid_because.iter().cloned());
    }
    because.extend(cell.error.clone());
    because
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{matrix_report, report, story};

    #[test]
    fn figures_that_are_no_verdict_on_speed_are_marked_and_the_mark_is_explained() {
        let limited = |cell: &mut CellReport| {
            cell.load.as_mut().expect("figures").cost.machine_share = 0.9;
        };
        for look in [Look::FILE, Look::Markdown] {
            for mut report in [report(story()), matrix_report()] {
                assert!(!report.text(look).contains('*'), "{}", report.text(look));
                limited(&mut report.cells[1]);
                let text = report.text(look);
                assert_eq!((text.matches("312*").count(), text.matches("56.8*").count()), (1, 1));
                assert!(text.contains(NO_VERDICT_MEANS), "{text}");
            }
        }
    }
}
