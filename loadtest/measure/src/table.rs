//! Tables of figures.

use std::ops::Range;

use comfy_table::{Cell, CellAlignment, Table, presets};

/// An empty table with that header, the columns of figures to the right.
pub fn table(header: &[&str], figures: Range<usize>) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_FULL_CONDENSED)
        .force_no_tty()
        .set_header(header.iter().map(Cell::new));
    for index in figures {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// A part as per cent.
pub fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}
