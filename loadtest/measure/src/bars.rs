//! Medians, spreads, and the bars that figures are held to.

use std::fmt;

use serde::Serialize;

/// Rounds without which no bar is met.
pub const ROUNDS: usize = 5;
/// Seconds of a round without which no bar is met, warm-up not counted.
pub const SECONDS: u64 = 10;
/// The largest distance between the rounds of a figure that still is one, as a part of its median.
pub const MAX_SPREAD: f64 = 0.2;

/// What a figure has to reach.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bar {
    /// It or more.
    AtLeast(f64),
    /// It or less.
    AtMost(f64),
}

impl Bar {
    fn is_met(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(bar) => figure >= bar,
            Self::AtMost(bar) => figure <= bar,
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, ">= {least}"),
            Self::AtMost(most) => write!(f, "<= {most}"),
        }
    }
}

/// The result of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The bar is met.
    Met,
    /// It is not.
    Missed,
    /// The figure is none.
    Invalid,
    /// Too few rounds, or too short ones, for any verdict.
    TooShort,
    /// It would be met, or has no bar, but the host was not steady.
    Unsteady,
    /// A figure without a bar.
    NoBar,
}

impl Verdict {
    /// Whether a run with it may be called green.
    pub fn is_green(self) -> bool {
        matches!(self, Self::Met | Self::NoBar)
    }

    /// The verdict in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "MISSED",
            Self::Invalid => "INVALID",
            Self::TooShort => "too short",
            Self::Unsteady => "host not steady",
            Self::NoBar => "-",
        }
    }

    /// Replaces a green verdict on a host that is not steady; a missed bar stays missed.
    #[must_use]
    pub fn on_host(self, steady: bool) -> Self {
        if self.is_green() && !steady { Self::Unsteady } else { self }
    }
}

/// A row's figure: of each round, and of all.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// The figure of each round.
    pub rounds: Vec<f64>,
    /// Their median.
    pub median: Option<f64>,
    /// Their largest distance, as a part of the median.
    pub spread: Option<f64>,
}

impl Outcome {
    /// The outcome of the rounds' figures.
    pub fn of_rounds(rounds: Vec<f64>) -> Self {
        let (median, spread) = (median(&rounds), spread(&rounds));
        Self { rounds, median, spread }
    }

    /// Whether it meets that bar; `sound` says whether all of its samples are measurements, and
    /// `long` whether there are enough of them.
    pub fn verdict(&self, bar: Option<Bar>, sound: bool, long: bool) -> Verdict {
        let Some(median) = self.median else { return Verdict::Invalid };
        let steady = self.spread.is_none_or(|spread| spread <= MAX_SPREAD);
        match bar {
            _ if !long => Verdict::TooShort,
            _ if !sound || !steady => Verdict::Invalid,
            None => Verdict::NoBar,
            Some(bar) if bar.is_met(median) => Verdict::Met,
            Some(_) => Verdict::Missed,
        }
    }
}

/// The middle one; of an even number the mean of both.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

/// The largest distance of two of them, as a part of the median; none of fewer than two.
pub fn spread(values: &[f64]) -> Option<f64> {
    let most = values.iter().copied().max_by(f64::total_cmp)?;
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    let median = median(values).filter(|median| *median > 0.0)?;
    (values.len() > 1).then(|| (most - least) / median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_met_by_a_sound_and_steady_figure_of_a_whole_run_only() {
        let bar = Some(Bar::AtLeast(2.5));
        let good = Outcome::of_rounds(vec![3.0, 3.1]);
        assert_eq!(good.verdict(bar, true, true), Verdict::Met);
        assert_eq!(good.verdict(bar, true, false), Verdict::TooShort);
        assert_eq!(good.verdict(bar, false, true), Verdict::Invalid);
        assert_eq!(good.verdict(None, true, true), Verdict::NoBar);
        let scattered = Outcome::of_rounds(vec![3.0, 4.0]);
        assert_eq!(scattered.verdict(bar, true, true), Verdict::Invalid);
        assert_eq!(scattered.verdict(None, true, true), Verdict::Invalid);
        let slow = Outcome::of_rounds(vec![2.4, 2.41]);
        assert_eq!(slow.verdict(bar, true, true), Verdict::Missed);
        assert_eq!(slow.verdict(Some(Bar::AtMost(2.5)), true, true), Verdict::Met);
        assert_eq!(Outcome::of_rounds(Vec::new()).verdict(None, true, true), Verdict::Invalid);
    }

    #[test]
    fn only_a_met_bar_and_a_figure_without_one_are_green() {
        use Verdict::{Invalid, Met, Missed, NoBar, TooShort, Unsteady};
        let all = [Met, Missed, Invalid, TooShort, NoBar, Unsteady];
        assert_eq!(all.map(Verdict::is_green), [true, false, false, false, true, false]);
        assert_eq!(all.map(|verdict| verdict.on_host(true)), all);
        let unsteady = [Unsteady, Missed, Invalid, TooShort, Unsteady, Unsteady];
        assert_eq!(all.map(|verdict| verdict.on_host(false)), unsteady);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_both_in_the_middle() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(spread(&[1.0]), None);
    }
}
