//! The report on planted bugs: a line for each seed while they run, and a table.

use comfy_table::{Cell, ContentArrangement, Table};

use crate::lab::planting::{Attempt, Planted, Plants, PlantsReport};
use crate::report::table::Look;
use crate::report::wrapped;

/// Columns of the table where its reader's terminal is not known.
const FILE_COLUMNS: u16 = 100;

/// What came of a bug and a seed, in a line.
pub fn line(name: &str, attempt: &Attempt) -> String {
    format!("{name:<26} {}", words(attempt))
}

/// What came of a seed.
pub fn words(attempt: &Attempt) -> String {
    let Attempt { seed, rounds, caught_by, clean, without, .. } = attempt;
    let caught = match caught_by.first() {
        Some(sign) => format!("caught in round {rounds} ({sign})"),
        None => format!("NOT CAUGHT in {rounds} rounds"),
    };
    let sound = if *clean {
        "clean without it".to_owned()
    } else {
        let all: Vec<&str> =
            without.wrong.iter().chain(&without.invalid).map(String::as_str).collect();
        format!("NOT CLEAN without it: {}", all.join("; "))
    };
    format!("seed {seed}: {caught}; {sound}")
}

impl Plants {
    /// What they come to, in a sentence without an end.
    pub fn sum(&self) -> String {
        let Self { planted, caught, median_rounds, .. } = self;
        format!("planted {planted}, caught {caught}, median rounds {median_rounds}")
    }

    /// The table and what it comes to.
    pub fn text(&self, look: Look) -> String {
        let mut table = Table::new();
        table.load_style(look.style());
        if let Look::Plain { width, .. } = look {
            let width = width.unwrap_or(FILE_COLUMNS);
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        table.force_no_tty().set_header(["bug", "breaks", "where", "caught by", "rounds", "sound"]);
        for bug in &self.bugs {
            table.add_row(cells(bug).map(Cell::new));
        }
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        let (clean, planted) = (self.clean, self.planted);
        let sound = format!("clean without the bug: {clean} of {planted}");
        format!("{}\n\n{}\n{sound}", lines.join("\n"), self.sum())
    }
}

impl PlantsReport {
    /// All that is printed.
    pub fn text(&self) -> String {
        let [loadtest, seckill] = self.versions.builds();
        let provenance = format!(
            "{} seeds of each; {:.0} s; loadtest {} ({loadtest}), seckill ({seckill}), \
             database {}, Redis {}, HAProxy {}; {} CPUs, Linux {}.",
            self.plants.seeds,
            self.took_s,
            self.versions.loadtest,
            self.versions.database,
            self.versions.redis,
            self.versions.haproxy,
            self.machine.cpus,
            self.machine.kernel
        );
        format!(
            "{}\n\n{}",
            wrapped(&provenance, Look::of_stdout().columns()),
            self.plants.text(Look::of_stdout())
        )
    }
}

impl Planted {
    /// The first sign of it that was seen, without its figures.
    pub fn sign(&self) -> &str {
        let signs = self.attempts.iter().find_map(|one| one.caught_by.first());
        signs.map_or("nothing", |sign| sign.split(':').next().unwrap_or(sign))
    }

    /// Rounds until it was caught, for each seed.
    pub fn rounds(&self) -> String {
        let rounds = self.attempts.iter().map(|one| match &one.caught_by[..] {
            [] => "never".to_owned(),
            _ => one.rounds.to_string(),
        });
        rounds.collect::<Vec<_>>().join(", ")
    }

    /// Why it is not in order, for each seed with which it is not; empty if it is.
    pub fn problems(&self) -> Vec<String> {
        let is_wrong = |one: &&Attempt| one.caught_by.is_empty() || !one.clean;
        let mut problems: Vec<_> = self.attempts.iter().filter(is_wrong).map(problem).collect();
        let (run, seeds) = (self.attempts.len() as u64, self.seeds.max(1));
        if run < seeds {
            problems.push(format!("it was run to its end with {run} of {seeds} seeds"));
        }
        problems
    }

    /// Whether something was found without it.
    pub fn sound(&self) -> &'static str {
        if self.is_clean() { "clean" } else { "NOT CLEAN" }
    }
}

/// What came of a seed, and what the last round was like that should have caught the bug.
fn problem(attempt: &Attempt) -> String {
    let words = words(attempt);
    let Some(last) = attempt.missed.last().filter(|_| attempt.caught_by.is_empty()) else {
        return words;
    };
    let seen: Vec<&str> = last.invalid.iter().chain(&last.wrong).map(String::as_str).collect();
    let seen =
        if seen.is_empty() { "nothing was out of order".to_owned() } else { seen.join("; ") };
    format!("{words}. In the last round: {seen}")
}

fn cells(bug: &Planted) -> [String; 6] {
    [
        bug.name.to_owned(),
        bug.breaks.to_owned(),
        bug.shown_by.clone(),
        bug.sign().to_owned(),
        bug.rounds(),
        bug.sound().to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::plants::ROWS;
    use crate::report::tests::planted;

    #[test]
    fn the_table_of_all_bugs_fits_a_terminal_and_a_file() {
        let mut plants = planted(&ROWS.map(|row| row.bug.name()), 3);
        for (bug, row) in plants.bugs.iter_mut().zip(ROWS) {
            (bug.breaks, bug.shown_by) = (row.breaks, row.trial.to_string());
        }
        for (width, most) in [(Some(80), 80), (Some(132), 132), (None, 100)] {
            let text = plants.text(Look::Plain { colours: false, width });
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(most), "{widest:?} of {most}: {text}");
        }
        let markdown = plants.text(Look::Markdown);
        let rows = markdown.lines().filter(|line| line.starts_with('|')).count();
        assert_eq!(rows, ROWS.len() + 2, "a line each: {markdown}");
    }
}
