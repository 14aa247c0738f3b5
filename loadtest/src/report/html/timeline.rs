//! Requests as bars on one axis of time: who asked, who answered, and what overlapped.

use serde::Serialize;

use crate::report::proofs::{Proof, Request};

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
    /// Requests that are not drawn.
    pub left_out: usize,
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
    /// What came of it: also the name of the bar's colour.
    pub outcome: &'static str,
    /// Status and code.
    pub code: String,
    /// The order's id.
    pub order: Option<String>,
    /// From when until when, in words.
    pub times: String,
    /// Where it stands.
    pub stretch: Stretch,
    /// Whether nothing would be broken without it.
    pub decides: bool,
}

impl Timeline {
    /// Lays out one proof.
    pub fn of(proof: &Proof) -> Self {
        let from_ns = proof.requests.iter().map(|one| one.sent_ns).min().unwrap_or(0);
        let until_ns = proof.requests.iter().map(|one| one.answered_ns).max().unwrap_or(0);
        let axis = Axis { from_ns, until_ns };
        Self {
            what: proof.what.clone(),
            rule: proof.rule.words(),
            bars: proof.requests.iter().map(|request| axis.bar(request)).collect(),
            axis: [milliseconds(from_ns), milliseconds(until_ns)],
            overlap: axis.overlap(&proof.requests),
            left_out: proof.left_out,
        }
    }
}

struct Axis {
    from_ns: u64,
    until_ns: u64,
}

impl Axis {
    fn bar(&self, request: &Request) -> Bar {
        Bar {
            user: request.user.clone(),
            replica: request.replica.clone().unwrap_or_else(|| "nobody".to_owned()),
            outcome: request.outcome.name(),
            code: request.code.clone(),
            order: request.order.clone(),
            times: format!(
                "{} to {}",
                milliseconds(request.sent_ns),
                milliseconds(request.answered_ns)
            ),
            stretch: self.stretch(request.sent_ns, request.answered_ns),
            decides: request.decides,
        }
    }

    fn overlap(&self, requests: &[Request]) -> Option<Overlap> {
        let deciding: Vec<&Request> = requests.iter().filter(|one| one.decides).collect();
        let from_ns = deciding.iter().map(|one| one.sent_ns).max()?;
        let until_ns = deciding.iter().map(|one| one.answered_ns).min()?;
        (deciding.len() > 1 && from_ns < until_ns).then(|| Overlap {
            stretch: self.stretch(from_ns, until_ns),
            words: format!(
                "{} of them were under way at once for {}",
                deciding.len(),
                milliseconds(until_ns - from_ns)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::verdict::Rule;
    use crate::load::outcome::Outcome;

    fn request(sent_ms: u64, answered_ms: u64, decides: bool) -> Request {
        Request {
            user: "7".to_owned(),
            replica: None,
            outcome: Outcome::Bought,
            code: "201".to_owned(),
            order: Some("1".to_owned()),
            sent_ns: sent_ms * 1_000_000,
            answered_ns: answered_ms * 1_000_000,
            decides,
        }
    }

    fn timeline(requests: Vec<Request>) -> Timeline {
        let (rule, what) = (Rule::OneOrderPerUser, "twice".to_owned());
        Timeline::of(&Proof { rule, what, requests, left_out: 0 })
    }

    #[test]
    fn bars_stand_where_their_requests_were_and_the_common_time_is_marked() {
        let drawn = timeline(vec![
            request(100, 180, true),
            request(120, 200, true),
            request(190, 195, false),
        ]);
        assert_eq!(drawn.bars[0].stretch, Stretch { from: 0.0, length: 80.0 });
        assert_eq!(drawn.bars[1].stretch, Stretch { from: 20.0, length: 80.0 });
        let overlap = drawn.overlap.expect("both were under way");
        assert_eq!(overlap.stretch, Stretch { from: 20.0, length: 60.0 });
        assert!(overlap.words.contains("2 of them") && overlap.words.contains("60.0 ms"));
        assert_eq!(drawn.axis, ["100.0 ms", "200.0 ms"]);
    }

    #[test]
    fn requests_one_after_the_other_have_no_common_time() {
        let drawn = timeline(vec![request(0, 10, true), request(20, 30, true)]);
        assert!(drawn.overlap.is_none());
        assert!(timeline(vec![request(0, 0, true)]).bars[0].stretch.length.abs() < 1e-9);
    }
}
