//! Four lines that show the point of a report: a local and a distributed lock, on one replica and
//! on three.

use comfy_table::{CellAlignment, Table};
use loadtest_judge::setting::{Guards, Scope};
use loadtest_lab::cell::CellReport;
use loadtest_lab::cell_axes::{CellAxes, Load};
use loadtest_lab::cell_spec::CellSpec;
use loadtest_lab::lock::Lock;

use crate::table::TableFormat;
use crate::{counted, wrapped};

/// Each lock with where it lives.
const LOCKS: [(Lock, &str); 2] = [(Lock::Local, "in each process"), (Lock::DEFAULT, "in Redis")];
const REPLICAS: [u16; 2] = [1, 3];
const HEADERS: [&str; 4] = ["lock", "replicas", "users who bought twice", "units oversold"];

/// The table with its caption; `None` unless all four cells were run and are valid.
pub(super) fn summary(cells: &[CellReport], load: &Load, format: TableFormat) -> Option<String> {
    let mut table = Table::new();
    table.load_style(format.style()).force_no_tty().set_header(HEADERS);
    for replicas in REPLICAS {
        for (lock, lives) in LOCKS {
            let axes = CellAxes { lock, scope: Scope::Voucher, guards: Guards::Off, replicas };
            let is_it = |cell: &&CellReport| cell.valid && cell.trial() == CellSpec::plain(axes);
            let cell = cells.iter().find(is_it)?;
            table.add_row([
                format!("{} ({lives})", lock.name()),
                replicas.to_string(),
                cell.duplicate_users.to_string(),
                cell.oversold.to_string(),
            ]);
        }
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        if format != TableFormat::Markdown {
            column.set_padding((0, 1));
        }
        if index > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let sale = format!(
        "One lock per voucher, no guards in the database; {} with {} each want {} units:",
        counted(load.users, "user"),
        counted(load.requests_per_user, "simultaneous request"),
        load.stock
    );
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    Some(format!("{}\n\n{}", wrapped(&sale, format.columns()), lines.join("\n")))
}

#[cfg(test)]
mod tests {
    use loadtest_lab::fixtures::{axes, cell, story};

    use super::*;
    use crate::tests::{matrix_report, report};

    fn four() -> Vec<CellReport> {
        let of = |lock, replicas| axes(lock, Scope::Voucher, Guards::Off, replicas);
        vec![
            cell(of(Lock::Local, 3), 123, 67),
            cell(of(Lock::Redisson, 3), 0, 0),
            cell(of(Lock::Local, 1), 0, 0),
            cell(of(Lock::Redisson, 1), 0, 0),
        ]
    }

    #[test]
    fn a_report_with_the_four_cells_begins_with_their_four_lines() {
        let expected = "\
One lock per voucher, no guards in the database; 700 users with 3 simultaneous requests each want
100 units:

lock                     replicas  users who bought twice  units oversold
──────────────────────────────────────────────────────────────────────────
local (in each process)         1                       0               0
redisson (in Redis)             1                       0               0
local (in each process)         3                      67             123
redisson (in Redis)             3                       0               0

";
        let matrix = matrix_report();
        for mut report in [report(story()), matrix] {
            report.cells.splice(0..0, four());
            let text = report.text(TableFormat::FILE);
            assert!(text.starts_with(expected), "{text}");
            let markdown = report.text(TableFormat::Markdown);
            assert!(markdown.contains("| local (in each process) |        3 |"), "{markdown}");
        }
    }

    #[test]
    fn without_one_of_the_four_cells_or_with_an_invalid_one_there_are_no_four_lines() {
        let text = |cells: Vec<CellReport>| summary(&cells, &Load::DEFAULT, TableFormat::FILE);
        assert!(text(four()).is_some());
        for missing in 0..4 {
            let mut cells = four();
            cells[missing].valid = false;
            assert_eq!(text(cells), None);
            let mut cells = four();
            cells.remove(missing);
            assert_eq!(text(cells), None);
        }
    }
}
