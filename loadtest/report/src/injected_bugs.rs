//! The report on injected bugs: a line for each seed while they run, and a table.

use comfy_table::{Cell, ContentArrangement, Table};
use loadtest_lab::injection_results::{Attempt, BugResults, InjectionReport, InjectionResults};

use crate::table::TableFormat;
use crate::text::Text;
use crate::wrapped;

/// Columns of the table where its reader's terminal is not known.
const FILE_COLUMNS: u16 = 100;

/// What came of a bug and a seed, in a line.
pub fn line(name: &str, attempt: &Attempt) -> String {
    format!("{name:<26} {}", words(attempt))
}

/// What came of a seed.
pub fn words(attempt: &Attempt) -> Text {
    let Attempt { seed, rounds, caught_by, clean, without, .. } = attempt;
    let caught = match caught_by.first() {
        Some(sign) => Text::of("caught_in").with("round", *rounds).with("sign", finding(sign)),
        None => Text::of("not_caught_in").with("rounds", *rounds),
    };
    let sound = if *clean {
        Text::of("clean_without")
    } else {
        let all = without.wrong.iter().chain(&without.invalid).map(|it| finding(it));
        Text::of("not_clean_without").with("what", Text::joined("semicolon", all))
    };
    Text::of("of_seed").with("seed", *seed).with("caught", caught).with("sound", sound)
}

/// A rule with its figures, or whatever else was found.
fn finding(text: &str) -> Text {
    match text.split_once(": ") {
        Some((rule, figures)) => {
            Text::joined("colon", [Text::english(rule), Text::english(figures)])
        }
        None => Text::english(text),
    }
}

/// What they come to, in a sentence without an end.
pub fn sum(results: &InjectionResults) -> Text {
    let InjectionResults { injected, caught, median_rounds, .. } = results;
    Text::of("bugs_sum")
        .with("injected", *injected)
        .with("caught", *caught)
        .with("rounds", *median_rounds)
}

/// The table and what it comes to.
pub fn render_table(results: &InjectionResults, format: TableFormat) -> String {
    let mut table = Table::new();
    table.load_style(format.style());
    if let TableFormat::Plain { width, .. } = format {
        let width = width.unwrap_or(FILE_COLUMNS);
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    table.force_no_tty().set_header(["bug", "breaks", "where", "caught by", "rounds", "sound"]);
    for bug in &results.bugs {
        table.add_row(cells(bug).map(Cell::new));
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    let (clean, injected) = (results.clean, results.injected);
    let sound = format!("clean without the bug: {clean} of {injected}");
    format!("{}\n\n{}\n{sound}", lines.join("\n"), sum(results))
}

/// All that is printed.
pub fn render(report: &InjectionReport) -> String {
    let [loadtest, seckill] = report.versions.builds();
    let provenance = format!(
        "{} seeds of each; {:.0} s; loadtest {} ({loadtest}), seckill ({seckill}), \
         database {}, Redis {}, HAProxy {}; {} CPUs, Linux {}.",
        report.results.seeds,
        report.took_s,
        report.versions.loadtest,
        report.versions.database,
        report.versions.redis,
        report.versions.haproxy,
        report.machine.cpus,
        report.machine.kernel
    );
    format!(
        "{}\n\n{}",
        wrapped(&provenance, TableFormat::of_stdout().columns()),
        render_table(&report.results, TableFormat::of_stdout())
    )
}

/// The first sign of it that was seen, without its figures.
pub fn first_sign(bug: &BugResults) -> Text {
    let signs = bug.attempts.iter().find_map(|one| one.caught_by.first());
    signs.map_or_else(
        || Text::of("nothing"),
        |sign| Text::english(sign.split(':').next().unwrap_or(sign)),
    )
}

/// Rounds until it was caught, for each seed.
pub fn rounds_until_caught(bug: &BugResults) -> Text {
    let rounds = bug.attempts.iter().map(|one| match &one.caught_by[..] {
        [] => Text::of("never"),
        _ => one.rounds.into(),
    });
    Text::joined("comma", rounds)
}

/// Why it is not in order, for each seed with which it is not; empty if it is.
pub fn list_problems(bug: &BugResults) -> Vec<Text> {
    let is_wrong = |one: &&Attempt| one.caught_by.is_empty() || !one.clean;
    let mut problems: Vec<_> = bug.attempts.iter().filter(is_wrong).map(problem).collect();
    let (run, seeds) = (bug.attempts.len(), bug.seeds.max(1));
    if (run as u64) < seeds {
        problems.push(Text::of("seeds_missing").with("run", run).with("seeds", seeds));
    }
    problems
}

/// Whether something was found without it.
pub fn soundness(bug: &BugResults) -> &'static str {
    if bug.is_clean() { "clean" } else { "NOT CLEAN" }
}

/// What came of a seed, and what the last round was like that should have caught the bug.
fn problem(attempt: &Attempt) -> Text {
    let words = words(attempt);
    let Some(last) = attempt.missed.last().filter(|_| attempt.caught_by.is_empty()) else {
        return words;
    };
    let mut seen: Vec<Text> =
        last.invalid.iter().chain(&last.wrong).map(|it| finding(it)).collect();
    if seen.is_empty() {
        seen.push(Text::of("nothing_wrong"));
    }
    Text::of("of_last_round").with("what", words).with("seen", Text::joined("semicolon", seen))
}

fn cells(bug: &BugResults) -> [String; 6] {
    [
        bug.name.to_owned(),
        bug.breaks.to_owned(),
        bug.shown_by.clone(),
        first_sign(bug).to_string(),
        rounds_until_caught(bug).to_string(),
        soundness(bug).to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use loadtest_lab::fixtures::injection_results;
    use loadtest_lab::injected_bugs::BUG_CASES;

    use super::*;

    #[test]
    fn the_table_of_all_bugs_fits_a_terminal_and_a_file() {
        let mut results = injection_results(&BUG_CASES.map(|row| row.bug.name()), 3);
        for (bug, row) in results.bugs.iter_mut().zip(BUG_CASES) {
            (bug.breaks, bug.shown_by) = (row.breaks, row.trial.to_string());
        }
        for (width, most) in [(Some(80), 80), (Some(132), 132), (None, 100)] {
            let text = render_table(&results, TableFormat::Plain { colours: false, width });
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(most), "{widest:?} of {most}: {text}");
        }
        let markdown = render_table(&results, TableFormat::Markdown);
        let rows = markdown.lines().filter(|line| line.starts_with('|')).count();
        assert_eq!(rows, BUG_CASES.len() + 2, "a line each: {markdown}");
    }
}
