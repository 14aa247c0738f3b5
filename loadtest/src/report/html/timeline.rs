//! Requests as bars on one axis of time: who asked, who answered, what overlapped, and while what
//! was done to the cell.
//!
//! A bar is a whole request as its client saw it. Somewhere in it the request waited for its lock
//! and held it, but no answer tells when, so holds are not drawn. That two bars overlap shows that
//! two may have held at once; what they wrote shows that nothing kept them apart.

use serde::Serialize;

use crate::judge::proof::{Asked, Proof};
use crate::judge::verdict::{Finding, Rule};
use crate::lab::round::Strike;
use crate::report::capitalized;
use crate::report::crossing::{Crossing, Thaw};
use crate::report::detail::Detail;

/// Most proofs of one rule that are drawn.
const MAX_DRAWN: usize = 3;

/// A proof as it is drawn.
#[derive(Debug, Serialize)]
pub struct Timeline {
    /// What happened.
    pub what: String,
    /// The rule that it broke.
    pub rule: &'static str,
    /// The bars, in the order in which the requests were sent.
    pub bars: Vec<Bar>,
    /// Where the axis begins and ends, in words.
    pub axis: [String; 2],
    /// The time that all deciding requests have in common, if there is one.
    pub overlap: Option<Overlap>,
    /// While what was done to the cell, as far as that is on the axis.
    pub struck: Option<Struck>,
    /// Requests that are not drawn.
    pub left_out: usize,
}

/// The time in which something was done to the cell.
#[derive(Debug, Serialize)]
pub struct Struck {
    /// Where it stands.
    pub stretch: Stretch,
    /// What was done, and from when until when, in words.
    pub words: String,
}

/// A stretch of the axis, in percent of its length.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Stretch {
    /// Where it begins.
    pub from: f64,
    /// How long it is.
    pub length: f64,
}

/// A time in which all deciding requests were under way.
#[derive(Debug, Serialize)]
pub struct Overlap {
    /// Where it stands.
    pub stretch: Stretch,
    /// How many they are, and for how long, in words.
    pub words: String,
}

/// One request.
#[derive(Debug, Serialize)]
pub struct Bar {
    /// Who sent it.
    pub user: String,
    /// Who answered.
    pub replica: String,
    /// The name of the bar's colour.
    pub colour: &'static str,
    /// Status and code.
    pub answer: String,
    /// The order's id.
    pub order: Option<String>,
    /// From when until when, in words.
    pub times: String,
    /// Where it stands.
    pub stretch: Stretch,
    /// Whether nothing would be broken without it.
    pub decides: bool,
}

/// The time lines of a rule that was broken: each proof that names requests, and of the stock the
/// two who sold one unit, or else the moment at which it was exceeded. On each is marked while what
/// was done.
pub fn timelines(finding: &Finding, detail: Option<&Detail>, faults: &[Strike]) -> Vec<Timeline> {
    let with_fault = |(timeline, axis): (Timeline, Axis)| {
        let struck = faults.iter().find_map(|fault| axis.struck(fault));
        Timeline { struck, ..timeline }
    };
    bare(finding, detail).into_iter().map(with_fault).collect()
}

/// The same without it, and their axes.
fn bare(finding: &Finding, detail: Option<&Detail>) -> Vec<(Timeline, Axis)> {
    let rule = finding.rule.words();
    if finding.rule == Rule::OrdersWithinStock {
        if let Some(thaw) = detail.and_then(|detail| detail.thaw.as_ref()) {
            return vec![Timeline::of_thaw(rule, thaw)];
        }
        if let Some(crossing) = detail.and_then(|detail| detail.crossing.as_ref()) {
            return vec![Timeline::of_crossing(rule, crossing)];
        }
    }
    let drawn = finding.proofs.iter().filter(|proof| !proof.requests.is_empty());
    drawn.take(MAX_DRAWN).map(|proof| Timeline::of_proof(rule, proof)).collect()
}

impl Timeline {
    fn of_proof(rule: &'static str, proof: &Proof) -> (Self, Axis) {
        Self::of(rule, capitalized(&proof.why), &proof.requests, |_| true)
    }

    fn of_thaw(rule: &'static str, thaw: &Thaw) -> (Self, Axis) {
        let what = format!(
            "{} stood still and its lock lapsed; the next holder read the same stock, and both \
             sold the same unit",
            thaw.victim
        );
        Self::of(rule, what, &thaw.requests, |_| true)
    }

    fn of_crossing(rule: &'static str, crossing: &Crossing) -> (Self, Axis) {
        let Crossing { units, first, requests, left_out } = crossing;
        let others = requests.len().saturating_sub(1) + left_out;
        let what = format!(
            "Acknowledgement {} of {units} units (the filled bar); {others} other purchases that \
             succeeded were under way with it",
            units + 1
        );
        let (timeline, axis) = Self::of(rule, what, requests, |one| one.n == *first);
        (Self { left_out: *left_out, ..timeline }, axis)
    }

    fn of(
        rule: &'static str,
        what: String,
        requests: &[Asked],
        decides: impl Fn(&Asked) -> bool,
    ) -> (Self, Axis) {
        let from_ns = requests.iter().map(|one| one.start_ns).min().unwrap_or(0);
        let ends = requests.iter().map(|one| one.end_ns.unwrap_or(one.start_ns));
        let axis = Axis { from_ns, until_ns: ends.max().unwrap_or(0) };
        let deciding: Vec<&Asked> = requests.iter().filter(|one| decides(one)).collect();
        let timeline = Self {
            what,
            rule,
            bars: requests.iter().map(|one| axis.bar(one, decides(one))).collect(),
            axis: [milliseconds(axis.from_ns), milliseconds(axis.until_ns)],
            overlap: axis.overlap(&deciding),
            struck: None,
            left_out: 0,
        };
        (timeline, axis)
    }
}

struct Axis {
    from_ns: u64,
    until_ns: u64,
}

impl Axis {
    fn bar(&self, request: &Asked, decides: bool) -> Bar {
        // One without an end may be at work as long as anybody looks.
        let until_ns = request.end_ns.unwrap_or(self.until_ns);
        let end = request.end_ns.map_or("no end".to_owned(), milliseconds);
        Bar {
            user: request.user.clone(),
            replica: request.replica.clone().unwrap_or_else(|| "nobody".to_owned()),
            colour: colour(&request.answer),
            answer: request.answer.clone(),
            order: request.order.clone(),
            times: format!("{} to {end}", milliseconds(request.start_ns)),
            stretch: self.stretch(request.start_ns, until_ns),
            decides,
        }
    }

    fn overlap(&self, deciding: &[&Asked]) -> Option<Overlap> {
        let from_ns = deciding.iter().map(|one| one.start_ns).max()?;
        let until_ns = deciding.iter().map(|one| one.end_ns.unwrap_or(self.until_ns)).min()?;
        (deciding.len() > 1 && from_ns < until_ns).then(|| Overlap {
            stretch: self.stretch(from_ns, until_ns),
            words: format!(
                "{} were under way at once for {}",
                if deciding.len() == 2 {
                    "Both".to_owned()
                } else {
                    format!("All {}", deciding.len())
                },
                milliseconds(until_ns - from_ns)
            ),
        })
    }

    /// Where a fault stands, if it is on the axis.
    fn struck(&self, fault: &Strike) -> Option<Struck> {
        let from_ns = fault.begin_ns.max(self.from_ns);
        let until_ns = fault.end_ns.min(self.until_ns);
        (from_ns < until_ns).then(|| Struck {
            stretch: self.stretch(from_ns, until_ns),
            words: format!(
                "{} from {} to {}",
                fault.name.name(),
                milliseconds(fault.begin_ns),
                milliseconds(fault.end_ns)
            ),
        })
    }

    /// Exact enough: a load has far fewer than 2^53 nanoseconds.
    #[allow(clippy::cast_precision_loss)]
    fn stretch(&self, from_ns: u64, until_ns: u64) -> Stretch {
        let whole = self.until_ns.saturating_sub(self.from_ns).max(1) as f64;
        let percent = |ns: u64| (ns as f64 / whole * 10_000.0).round() / 100.0;
        Stretch {
            from: percent(from_ns.saturating_sub(self.from_ns)),
            length: percent(until_ns.saturating_sub(from_ns)),
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn milliseconds(ns: u64) -> String {
    format!("{:.1} ms", ns as f64 / 1e6)
}

/// What stands for an answer: the outcome that its status and code come to.
fn colour(answer: &str) -> &'static str {
    match answer.split_once(' ') {
        None if answer == "201" => "bought",
        Some((_, "sold_out")) => "sold_out",
        Some((_, "already_ordered")) => "already_ordered",
        Some((status, _)) if status.starts_with('4') => "refused",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::faults::FaultKind;

    fn request(start_ms: u64, end_ms: Option<u64>) -> Asked {
        Asked {
            n: 0,
            user: "7".to_owned(),
            replica: None,
            answer: "201".to_owned(),
            order: Some("1".to_owned()),
            start_ns: start_ms * 1_000_000,
            end_ns: end_ms.map(|ms| ms * 1_000_000),
        }
    }

    fn timeline(requests: Vec<Asked>) -> Timeline {
        let why = "user 7 bought twice".to_owned();
        Timeline::of_proof(Rule::OneOrderPerUser.words(), &Proof { why, requests }).0
    }

    #[test]
    fn bars_stand_where_their_requests_were_and_the_common_time_is_marked() {
        let drawn = timeline(vec![request(100, Some(180)), request(120, Some(200))]);
        assert_eq!(drawn.what, "User 7 bought twice");
        assert_eq!(drawn.bars[0].stretch, Stretch { from: 0.0, length: 80.0 });
        assert_eq!(drawn.bars[1].stretch, Stretch { from: 20.0, length: 80.0 });
        let overlap = drawn.overlap.expect("both were under way");
        assert_eq!(overlap.stretch, Stretch { from: 20.0, length: 60.0 });
        assert!(overlap.words.contains("Both") && overlap.words.contains("60.0 ms"));
        assert_eq!(drawn.axis, ["100.0 ms", "200.0 ms"]);
    }

    #[test]
    fn requests_one_after_the_other_have_no_common_time() {
        let drawn = timeline(vec![request(0, Some(10)), request(20, Some(30))]);
        assert!(drawn.overlap.is_none());
        assert!(timeline(vec![request(0, Some(0))]).bars[0].stretch.length.abs() < 1e-9);
    }

    #[test]
    fn a_request_without_an_end_reaches_to_the_end_of_the_axis() {
        let drawn = timeline(vec![request(0, Some(10)), request(5, None)]);
        assert_eq!(drawn.bars[1].stretch, Stretch { from: 50.0, length: 50.0 });
        assert_eq!(drawn.bars[1].times, "5.0 ms to no end");
    }

    #[test]
    fn of_the_stock_the_moment_at_which_it_was_exceeded_is_drawn() {
        let finding =
            Finding { held: Some(false), ..Finding::unjudged(Rule::OrdersWithinStock, "") };
        let (first, later) = (request(0, Some(9)), Asked { n: 3, ..request(4, Some(12)) });
        let requests = vec![first, later];
        let crossing = Crossing { units: 100, first: 3, requests, left_out: 5 };
        let mut detail = Detail { crossing: Some(crossing), ..Detail::default() };
        let [drawn] = &timelines(&finding, Some(&detail), &[])[..] else { panic!("one time line") };
        let decides: Vec<bool> = drawn.bars.iter().map(|bar| bar.decides).collect();
        assert_eq!((decides, drawn.left_out), (vec![false, true], 5));
        assert!(drawn.what.contains("101 of 100 units") && drawn.what.contains("6 other"));
        assert!(timelines(&finding, None, &[]).is_empty(), "no request, no line");
        let requests = [request(0, Some(9)), request(4, Some(12))];
        detail.thaw = Some(Thaw { victim: "r2".to_owned(), requests });
        let [drawn] = &timelines(&finding, Some(&detail), &[])[..] else { panic!("one time line") };
        assert!(drawn.what.starts_with("r2 stood still") && drawn.overlap.is_some(), "{drawn:?}");
    }

    #[test]
    fn the_time_of_a_fault_is_marked_as_far_as_it_is_on_the_axis() {
        let finding =
            Finding { held: Some(false), ..Finding::unjudged(Rule::OrdersWithinStock, "") };
        let requests = [request(100, Some(300)), request(150, Some(290))];
        let thaw = Some(Thaw { victim: "r2".to_owned(), requests });
        let detail = Detail { thaw, ..Detail::default() };
        let drawn = |begin_ms: u64, end_ms: u64| {
            let fault = Strike {
                name: FaultKind::FreezeReplica,
                begin_ns: begin_ms * 1_000_000,
                end_ns: end_ms * 1_000_000,
                witness: "r2 was in state T".to_owned(),
            };
            timelines(&finding, Some(&detail), &[fault]).swap_remove(0).struck
        };
        let struck = drawn(140, 400).expect("it is on the axis");
        assert_eq!(struck.stretch, Stretch { from: 20.0, length: 80.0 });
        assert_eq!(struck.words, "freeze from 140.0 ms to 400.0 ms");
        assert!(drawn(0, 90).is_none() && drawn(300, 310).is_none(), "it is elsewhere");
    }
}
