//! The first line of a run that ends red: what happened, whether the product or the measurement is
//! in doubt, and the command that repeats that cell.

use loadtest_lab::cell::CellReport;
use loadtest_lab::injection_results::{Attempt, InjectionResults};
use loadtest_lab::runner::Flag;
use serde::Serialize;

use crate::table::problems;
use crate::text::Text;
use crate::{Report, names, repeat};

/// What a red run puts in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// The load was real and showed what must not be.
    Product,
    /// The run did not show what it should show.
    Measurement,
}

/// The first line of a red run, and what it is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Headline {
    /// The line without the command.
    pub text: String,
    /// What is in doubt.
    pub doubt: Doubt,
    /// The command that shows it again.
    pub repeat: String,
}

impl Headline {
    /// The headline of a report; `None` if it is not red. What puts the product in doubt comes
    /// first, then a cell that did not show what it should, then a bug that was not caught.
    pub fn of(report: &Report) -> Option<Self> {
        let cells = of_cells(&report.cells).map(|(text, doubt, cell)| {
            let rank = match doubt {
                Doubt::Product => 0,
                Doubt::Measurement if cell.valid => 2,
                Doubt::Measurement => 4,
            };
            let repeat = repeat::one(report, cell);
            (rank, Self { text: text.to_string(), doubt, repeat })
        });
        let bugs = report.injected_bugs.as_ref().and_then(of_injected_bugs);
        let bugs = bugs.map(|found| {
            let rank = match (found.doubt, found.bug) {
                (Doubt::Product, _) => 1,
                (Doubt::Measurement, Some(_)) => 3,
                (Doubt::Measurement, None) => 5,
            };
            (rank, found.headline(&report.chosen, || repeat::run(report)))
        });
        let first = cells.into_iter().chain(bugs).min_by_key(|(rank, _)| *rank);
        first.map(|(_, headline)| headline)
    }

    /// The headline of injected bugs alone; `None` if it is not red.
    pub fn of_bugs(results: &InjectionResults, chosen: &[Flag]) -> Option<Self> {
        let found = of_injected_bugs(results)?;
        Some(found.headline(chosen, || repeat::bugs(chosen, results.seeds)))
    }

    /// The headline in two lines. The command is one for the shell that began this program.
    pub fn lines(&self) -> String {
        let own = std::env::args().next().filter(|path| path.contains('/'));
        let own = own.map_or_else(|| "loadtest".to_owned(), |path| repeat::quoted(&path));
        format!("{}\nRepeat it with: {}", self.text, self.repeat.replacen("loadtest", &own, 1))
    }
}

/// What makes these cells red. The first is named that has found what must not be. Else it is one
/// that did not show what it should, or else one that shows nothing.
pub(super) fn of_cells(cells: &[CellReport]) -> Option<(Text, Doubt, &CellReport)> {
    let rank = |cell: &CellReport| (!cell.found_violation(), !cell.valid);
    let worst = cells.iter().filter(|cell| !cell.ok()).map(rank).min()?;
    let red: Vec<_> = cells.iter().filter(|cell| !cell.ok() && rank(cell) == worst).collect();
    let (&first, others) = red.split_first()?;
    let mut what = vec![names::title(first)];
    // A sentence ends where its point is.
    let one_sentence = |text: String| text.replace(". ", "; ").replace('\n', " ");
    what.extend(problems(first).into_iter().next().map(|why| why.map_english(one_sentence)));
    let what = Text::joined("colon", what);
    // A replica that dies, a broken rule and a broken promise speak against the product, however
    // the load was.
    let doubt = if first.found_violation() { Doubt::Product } else { Doubt::Measurement };
    let because = Text::of(match doubt {
        Doubt::Product if first.died => "doubt_died",
        Doubt::Product if first.valid => "doubt_product",
        Doubt::Product => "doubt_product_besides",
        Doubt::Measurement if first.valid => "doubt_not_shown",
        Doubt::Measurement if first.error.is_some() => "doubt_not_run",
        Doubt::Measurement => "doubt_no_load",
    });
    let text = match others.len() {
        0 => Text::of("red"),
        more => Text::of("red_more").with("cells", Text::counted("cells", more)),
    };
    Some((text.with("what", what).with("because", because), doubt, first))
}

/// What makes injected bugs red.
struct BugFinding {
    text: String,
    doubt: Doubt,
    /// An injected bug and a seed, if one shows it.
    bug: Option<(&'static str, u64)>,
}

impl BugFinding {
    fn headline(self, chosen: &[Flag], all: impl FnOnce() -> String) -> Headline {
        let Self { text, doubt, bug } = self;
        let repeat = bug.map_or_else(all, |(name, seed)| repeat::bug(chosen, name, seed));
        Headline { text, doubt, repeat }
    }
}

/// A run without a bug in which something was found, a bug that was not caught, or a run without
/// one that shows nothing.
fn of_injected_bugs(results: &InjectionResults) -> Option<BugFinding> {
    if results.ok {
        return None;
    }
    let find = |is_it: fn(&Attempt) -> bool| {
        let mut all =
            results.bugs.iter().flat_map(|bug| bug.attempts.iter().map(move |it| (bug, it)));
        all.find(|(_, attempt)| is_it(attempt)).map(|(bug, attempt)| (bug.name, attempt))
    };
    let finding = |text: String, doubt, name, attempt: &Attempt| BugFinding {
        text: format!("Red: {text}."),
        doubt,
        bug: Some((name, attempt.seed)),
    };
    if let Some((name, attempt)) = find(|it| !it.without.wrong.is_empty()) {
        let (seed, wrong) = (attempt.seed, attempt.without.wrong.join("; "));
        let why = "The product is in doubt: no bug was injected";
        let text = format!("without the bug {name}, seed {seed}: {wrong}. {why}");
        return Some(finding(text, Doubt::Product, name, attempt));
    }
    let why = "The measurement is in doubt";
    if let Some((name, attempt)) = find(|it| it.caught_by.is_empty()) {
        let seed = attempt.seed;
        let text = format!("the injected bug {name}, seed {seed}, was not caught. {why}");
        return Some(finding(text, Doubt::Measurement, name, attempt));
    }
    if let Some((name, attempt)) = find(|it| !it.clean) {
        let (seed, invalid) = (attempt.seed, attempt.without.invalid.join("; "));
        let why = "The measurement is in doubt, not the product: this was no real load";
        let text = format!("without the bug {name}, seed {seed}: {invalid}. {why}");
        return Some(finding(text, Doubt::Measurement, name, attempt));
    }
    let text = format!("Red: not every injected bug was run to its end. {why}.");
    Some(BugFinding { text, doubt: Doubt::Measurement, bug: None })
}

#[cfg(test)]
mod tests {
    use loadtest_judge::verdict::Rule;
    use loadtest_lab::fixtures::{injection_results, story};

    use super::*;
    use crate::tests::{matrix_report, report};

    fn line(cells: Vec<CellReport>) -> (Doubt, String) {
        let headline = Headline::of(&report(cells)).expect("it is red");
        (headline.doubt, headline.lines())
    }

    #[test]
    fn a_report_that_is_not_red_has_no_headline() {
        assert_eq!(Headline::of(&report(story())), None);
        assert!(!report(story()).text(crate::table::TableFormat::FILE).contains("Red:"));
    }

    #[test]
    fn a_broken_rule_puts_the_product_in_doubt_and_too_little_load_the_measurement() {
        let mut cells = story();
        cells[0].as_predicted = false;
        cells[0].broken_rules = vec![Rule::OneHolderAtATime];
        let (doubt, text) = line(cells.clone());
        assert_eq!(doubt, Doubt::Product);
        let first = "Red: local per user, guards off, replicas 3: rule broken: one at a time holds";
        assert!(text.starts_with(first), "{text}");
        assert!(text.contains("The product is in doubt: the load was real."), "{text}");
        // The program is this test.
        let own = std::env::args().next().expect("a program");
        let command = format!("\nRepeat it with: {own} compare --locks local ");
        assert!(text.contains(&command), "{text}");
        let whole = report(cells.clone()).text(crate::table::TableFormat::FILE);
        assert!(whole.starts_with(first), "{whole}");

        cells[0].valid = false;
        cells[0].invalid_because = vec!["too little".to_owned()];
        let (doubt, text) = line(cells.clone());
        assert_eq!(doubt, Doubt::Product, "what was broken stays broken");
        assert!(text.contains("the load was not what it should be"), "{text}");
        cells[0].broken_rules.clear();
        let (doubt, text) = line(cells.clone());
        assert_eq!(doubt, Doubt::Measurement);
        assert!(text.contains("not the product: this was no real load"), "{text}");
        cells[0].error = Some("no server".to_owned());
        assert!(line(cells.clone()).1.contains("the cell could not be run"));
        cells[0].died = true;
        assert_eq!(line(cells.clone()).0, Doubt::Product);
        // A cell before it that only shows nothing does not hide it.
        (cells[2].died, cells[2].valid) = (true, false);
        (cells[0].died, cells[2].error) = (false, Some("r2 died".to_owned()));
        let (doubt, text) = line(cells);
        assert_eq!(doubt, Doubt::Product);
        assert!(text.contains("r2 died"), "{text}");
    }

    /// All cells are as predicted, and a bug was not caught.
    fn with_a_missed_bug() -> Report {
        let mut report = matrix_report();
        report.cells.iter_mut().for_each(|cell| (cell.valid, cell.as_predicted) = (true, true));
        let mut results = injection_results(&["lying-audit"], 1);
        results.ok = false;
        results.bugs[0].attempts[0].caught_by.clear();
        report.injected_bugs = Some(results);
        report
    }

    #[test]
    fn an_injected_bug_that_was_not_caught_is_named_before_an_invalid_cell() {
        let mut report = with_a_missed_bug();
        report.cells[0].valid = false;
        assert!(Headline::of(&report).expect("red").text.contains("lying-audit"));
        report.cells[0].died = true;
        assert!(Headline::of(&report).expect("red").text.contains("a replica died"));
        report.cells[0].died = false;
        (report.cells[0].valid, report.cells[0].as_predicted) = (true, false);
        assert!(Headline::of(&report).expect("red").text.contains("did not show"));
    }

    #[test]
    fn a_bug_that_was_not_caught_puts_the_measurement_in_doubt() {
        let report = with_a_missed_bug();
        let headline = Headline::of(&report).expect("it is red");
        assert_eq!(headline.doubt, Doubt::Measurement);
        let command = "loadtest inject-bugs --only lying-audit --seeds 1";
        assert!(headline.repeat.starts_with(command), "{}", headline.repeat);
    }
}
