//! One line for each cell, and for each seed of an injected bug, as it ends: a long run shows that
//! it continues, also in a log.

use loadtest_lab::results::RunEvent;

use crate::table::verdict;
use crate::{injected_bugs, matrix};

/// The line of a comparison: which cell, and its verdict.
pub fn comparison_line(event: RunEvent<'_>) -> String {
    match event {
        RunEvent::CellFinished { cell, number, total } => {
            let (verdict, _) = verdict(cell);
            let (axes, took_s) = (cell.axes, cell.took_s);
            format!("{number:>3}/{total} {axes:<50} {verdict:<12} {took_s:>5.1} s")
        }
        RunEvent::SeedFinished { bug, attempt } => injected_bugs::line(bug, attempt),
    }
}

/// The line of a matrix, which also says what was seen of a fault.
pub fn matrix_line(event: RunEvent<'_>) -> String {
    match event {
        RunEvent::CellFinished { cell, number, total } => {
            format!("{number:>3}/{total} {}", matrix::line(cell))
        }
        RunEvent::SeedFinished { bug, attempt } => injected_bugs::line(bug, attempt),
    }
}
