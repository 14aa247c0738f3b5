//! What `loadtest learn` prints: the ladder as a table, and what each rung comes to.

use comfy_table::Table;
use loadtest_lab::cell::CellReport;
use loadtest_lab::ladder::{RUNGS, Rung, RungSide};

use crate::table::{STYLE, problems};
use crate::wrapped;

/// Columns for prose.
const COLUMNS: usize = 96;
/// Columns of one cell of the table.
const CELL_COLUMNS: usize = 34;

/// The ladder: rung, lock, fault, what breaks, what repairs it.
pub fn ladder() -> String {
    let mut table = Table::new();
    table.load_style(STYLE).force_no_tty();
    table.set_header(["rung", "lock", "fault", "what breaks", "what repairs it"]);
    for rung in RUNGS {
        let repair = format!("{}: {}", rung.repaired.lock(), rung.repair);
        let texts = [rung.fault, rung.breaks, &repair].map(|text| wrapped(text, CELL_COLUMNS));
        let [fault, breaks, repair] = texts;
        let name = format!("{} {}", rung.number(), rung.slug);
        table.add_row([name, wrapped(&rung.broken.lock(), 22), fault, breaks, repair]);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    let how = "Show one with `loadtest learn RUNG`, and all with `loadtest learn --all`.";
    format!("{}\n\n{how}", lines.join("\n"))
}

/// What will happen, in words.
pub fn prologue(rung: &Rung) -> String {
    let (number, total) = (rung.number(), RUNGS.len());
    let lines = [
        format!("Rung {number} of {total}, {}: {}", rung.slug, rung.lesson),
        line("fault", rung.fault),
        line("will break", &format!("{}: {}", rung.broken.lock(), rung.breaks)),
        line("will hold", &format!("{}, under the same fault", rung.repaired.lock())),
    ];
    lines.join("\n")
}

/// What was seen of one side.
pub fn seen(rung: &Rung, side: RungSide, cell: &CellReport) -> String {
    // A breach of the repair counts, whatever else the run lacks.
    let is_wrong = side == RungSide::Repaired && !cell.broken_rules.is_empty();
    let verdict = match (cell.valid || is_wrong, cell.as_predicted, side) {
        (false, ..) => "INVALID: it shows nothing",
        (true, true, RungSide::Broken) => "BROKE, as it should",
        (true, true, RungSide::Repaired) => "HELD, as it should",
        (true, false, RungSide::Broken) => "NOT SHOWN: it did not break as it should",
        (true, false, RungSide::Repaired) => "FAILED: the repair did not withstand",
    };
    let tries = if cell.tries > 1 { format!(", {} tries", cell.tries) } else { String::new() };
    let trial = cell.trial();
    let what = rung.side(side).lock();
    let mut lines = vec![format!("\n{what} ({trial}): {verdict} ({:.1} s{tries})", cell.took_s)];
    lines.extend(rung.evidence(cell).iter().map(|text| format!("  {text}")));
    if !cell.ok() {
        lines.extend(problems(cell).iter().map(|problem| format!("  ✗ {problem}")));
    }
    lines.join("\n")
}

/// Why, what repairs it, and the next command.
pub fn next_step(rung: &Rung) -> String {
    let next = rung.next().map_or_else(
        || "this was the last rung".to_owned(),
        |next| format!("{} ({})", next.command(), next.lesson),
    );
    let lines = [line("why", rung.because), line("repair", rung.repair), line("next", &next)];
    format!("\n{}\n", lines.join("\n"))
}

/// How many rungs broke and were repaired.
pub fn summary(cells: &[CellReport]) -> String {
    let rungs: Vec<&[CellReport]> = cells.chunks(2).collect();
    let good = rungs.iter().filter(|sides| sides.iter().all(CellReport::ok)).count();
    let bad = cells.iter().filter(|cell| !cell.ok()).map(|cell| format!("✗ {}", cell.title()));
    let mut lines: Vec<String> = bad.collect();
    lines.push(format!("{} rungs, {good} broke and were repaired as they should", rungs.len()));
    lines.join("\n")
}

/// A name and a text that goes on below itself.
fn line(name: &str, text: &str) -> String {
    const INDENT: usize = 12;
    let text = wrapped(text, COLUMNS - INDENT);
    let text = text.replace('\n', &format!("\n{:INDENT$}", ""));
    format!("{name:<INDENT$}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_rung_with_its_lock_and_what_repairs_it() {
        let table = ladder();
        for rung in RUNGS {
            let name = format!("{} {}", rung.number(), rung.slug);
            assert!(table.lines().any(|line| line.starts_with(&name)), "{name}: {table}");
        }
        let widest = table.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(160), "{widest:?}");
    }

    #[test]
    fn each_rung_says_beforehand_what_breaks_and_afterwards_where_to_go() {
        for (index, rung) in RUNGS.iter().enumerate() {
            let text = prologue(rung);
            assert!(text.starts_with(&format!("Rung {} of {}", index + 1, RUNGS.len())), "{text}");
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(COLUMNS), "{text}");
            let next = RUNGS.get(index + 1).map_or("the last rung", |next| next.slug);
            assert!(next_step(rung).contains(next), "{}", rung.slug);
        }
    }
}
