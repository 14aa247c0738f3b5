//! The first line of a run that ends red: what happened, whether the product or the measurement is
//! in doubt, and the command that repeats that cell.

use loadtest_lab::cell::CellReport;
use loadtest_lab::injection_results::InjectionResults;
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
    /// The headline of a report; `None` if it is not red.
    pub fn of(report: &Report) -> Option<Self> {
        if let Some((text, doubt, cell)) = of_cells(&report.cells) {
            let repeat = repeat::one(report, cell);
            return Some(Self { text: text.to_string(), doubt, repeat });
        }
        let (text, doubt, bug) = of_injected_bugs(report.injected_bugs.as_ref()?)?;
        let one = |(name, seed)| repeat::bug(report, name, seed);
        Some(Self { text, doubt, repeat: bug.map_or_else(|| repeat::run(report), one) })
    }

    /// The headline in two lines. The command is one for the shell that began this program.
    pub fn lines(&self) -> String {
        let own = std::env::args().next().filter(|path| path.contains('/'));
        let own = own.map_or_else(|| "loadtest".to_owned(), |path| repeat::quoted(&path));
        format!("{}\nRepeat it with: {}", self.text, self.repeat.replacen("loadtest", &own, 1))
    }
}

/// What makes these cells red, of which the first is named: a cell that came out otherwise than
/// predicted, or else one that shows nothing.
pub(super) fn of_cells(cells: &[CellReport]) -> Option<(Text, Doubt, &CellReport)> {
    let surprises: Vec<_> = cells.iter().filter(|one| one.valid && !one.as_predicted).collect();
    let red = if surprises.is_empty() {
        cells.iter().filter(|one| !one.valid).collect()
    } else {
        surprises
    };
    let (&first, others) = red.split_first()?;
    let mut what = vec![names::title(first)];
    // A sentence ends where its point is.
    let one_sentence = |text: String| text.replace(". ", "; ").replace('\n', " ");
    what.extend(problems(first).into_iter().next().map(|why| why.map_english(one_sentence)));
    let what = Text::joined("colon", what);
    let doubt = doubt(first);
    let because = Text::of(match doubt {
        Doubt::Product if first.died => "doubt_died",
        Doubt::Product => "doubt_product",
        Doubt::Measurement if first.valid => "doubt_not_shown",
        Doubt::Measurement => "doubt_no_load",
    });
    let text = match others.len() {
        0 => Text::of("red"),
        more => Text::of("red_more").with("cells", Text::counted("cells", more)),
    };
    Some((text.with("what", what).with("because", because), doubt, first))
}

/// What a red cell casts doubt on. A replica that dies, a broken rule and a broken promise speak
/// against the product. Too little load and a hazard that did not show speak against the
/// measurement.
fn doubt(cell: &CellReport) -> Doubt {
    let breaks_more = cell.observed.breaks_more_than(cell.predicted);
    let found = breaks_more || !cell.broken_rules.is_empty();
    if cell.died || cell.valid && found { Doubt::Product } else { Doubt::Measurement }
}

/// An injected bug and a seed.
type BugAndSeed = (&'static str, u64);

/// Bugs that were not caught, or a run without them in which something was found; and one of these.
fn of_injected_bugs(results: &InjectionResults) -> Option<(String, Doubt, Option<BugAndSeed>)> {
    if results.ok {
        return None;
    }
    let bugs =
        || results.bugs.iter().flat_map(|bug| bug.attempts.iter().map(move |one| (bug, one)));
    let missed = bugs().find(|(_, attempt)| attempt.caught_by.is_empty());
    let found = bugs().find(|(_, attempt)| !attempt.without.wrong.is_empty());
    Some(match (found, missed) {
        (Some((bug, attempt)), _) => {
            let (name, seed, wrong) = (bug.name, attempt.seed, attempt.without.wrong.join("; "));
            let what = format!("without the bug {name}, seed {seed}: {wrong}");
            let text = format!("Red: {what}. The product is in doubt: no bug was injected.");
            (text, Doubt::Product, Some((name, seed)))
        }
        (None, Some((bug, attempt))) => {
            let (name, seed) = (bug.name, attempt.seed);
            let what = format!("the injected bug {name}, seed {seed}, was not caught");
            let text = format!("Red: {what}. The measurement is in doubt.");
            (text, Doubt::Measurement, Some((name, seed)))
        }
        (None, None) => {
            let what = "not every injected bug was run to its end";
            (format!("Red: {what}. The measurement is in doubt."), Doubt::Measurement, None)
        }
    })
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
        assert_eq!(doubt, Doubt::Measurement);
        assert!(text.contains("not the product: this was no real load"), "{text}");
        cells[0].died = true;
        assert_eq!(line(cells).0, Doubt::Product);
    }

    #[test]
    fn a_bug_that_was_not_caught_puts_the_measurement_in_doubt() {
        let mut report = matrix_report();
        report.cells.iter_mut().for_each(|cell| (cell.valid, cell.as_predicted) = (true, true));
        let mut results = injection_results(&["lying-audit"], 1);
        results.ok = false;
        results.bugs[0].attempts[0].caught_by.clear();
        report.injected_bugs = Some(results);
        let headline = Headline::of(&report).expect("it is red");
        assert_eq!(headline.doubt, Doubt::Measurement);
        let command = "loadtest inject-bugs --only lying-audit --seeds 1";
        assert!(headline.repeat.starts_with(command), "{}", headline.repeat);
    }
}
