//! Requests as bars on one axis of time: who asked, who answered, when who held the lock, and while
//! what was done to the cell.
//!
//! A bar is a whole request as its client saw it. The hold within it is what the replica reported
//! with its answer: from the grant of the lock to its release, whether or not the lock was still
//! its own. It is drawn later than it was, by the answer's time on the network. Where no answer
//! reported one, no hold is drawn. That two such requests overlap shows that both may have held the
//! lock; what they wrote shows that nothing kept them apart.

use loadtest_judge::proof::{Proof, ProofRequest};
use loadtest_judge::setting::Scope;
use loadtest_judge::verdict::{Rule, RuleFinding};
use loadtest_lab::cell_axes::CellAxes;
use loadtest_lab::detail::Detail;
use loadtest_lab::lock::Lock;
use loadtest_lab::oversell_moment::{DoubleSale, OversellMoment};
use loadtest_lab::round::FaultRecord;
use loadtest_load::history::record::LockHold;
use serde::Serialize;

use crate::names;
use crate::text::Text;

/// Most proofs of one rule that are drawn.
const MAX_DRAWN: usize = 3;

/// A proof as it is drawn.
#[derive(Debug, Serialize)]
pub struct Timeline {
    /// What happened.
    pub what: Text,
    /// The rule that it broke.
    pub rule: Text,
    /// The bars, in the order in which the requests were sent.
    pub bars: Vec<Bar>,
    /// Where the axis begins and ends, in words.
    pub axis: [String; 2],
    /// The time in which most held one lock at once; if none did, the time that all deciding
    /// requests have in common.
    pub overlap: Option<Overlap>,
    /// While what was done to the cell, as far as that is on the axis.
    pub struck: Option<FaultSpan>,
    /// Requests that are not drawn.
    pub left_out: usize,
}

/// The time in which something was done to the cell.
#[derive(Debug, Serialize)]
pub struct FaultSpan {
    /// Where it stands.
    pub stretch: AxisSpan,
    /// What was done, and from when until when, in words.
    pub words: Text,
}

/// A stretch of the axis, in percent of its length.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AxisSpan {
    /// Where it begins.
    pub from: f64,
    /// How long it is.
    pub length: f64,
}

/// A time in which several requests held a lock, or were in flight, at once.
#[derive(Debug, Serialize)]
pub struct Overlap {
    /// Where it stands.
    pub stretch: AxisSpan,
    /// How many they are, and for how long, in words.
    pub words: Text,
}

/// One request.
#[derive(Debug, Serialize)]
pub struct Bar {
    /// The user who sent it.
    pub user: String,
    /// The replica that answered.
    pub replica: Text,
    /// The name of the bar's colour.
    pub colour: &'static str,
    /// Status and code.
    pub answer: String,
    /// The order's id.
    pub order: Option<String>,
    /// From when.
    pub from: String,
    /// Until when, if it ended.
    pub until: Option<String>,
    /// Where it stands.
    pub stretch: AxisSpan,
    /// Where the hold of its lock stands, if that is known.
    pub hold: Option<AxisSpan>,
    /// From when until when that was.
    pub held: Option<[String; 2]>,
    /// Why that is unknown.
    pub no_hold: Option<Text>,
    /// Whether it is the one that the others are shown for.
    pub marked: bool,
}

/// The time lines of a broken rule.
///
/// Each proof that names requests has one. An oversold stock has one of the two requests that sold
/// one unit, or else of the moment at which the stock was exceeded. Each marks the time of the
/// fault.
pub fn timelines(
    finding: &RuleFinding,
    axes: CellAxes,
    detail: Option<&Detail>,
    faults: &[FaultRecord],
) -> Vec<Timeline> {
    let drawn = match detail {
        Some(Detail { double_sale: Some(double_sale), .. })
            if finding.rule == Rule::OrdersWithinStock =>
        {
            vec![TimelineSource::of_double_sale(double_sale)]
        }
        Some(Detail { oversell_moment: Some(oversell_moment), .. })
            if finding.rule == Rule::OrdersWithinStock =>
        {
            vec![TimelineSource::of_oversell_moment(oversell_moment)]
        }
        _ => {
            let proofs = finding.proofs.iter().filter(|proof| !proof.requests.is_empty());
            proofs.take(MAX_DRAWN).map(TimelineSource::of_proof).collect()
        }
    };
    drawn.into_iter().map(|drawn| drawn.timeline(finding.rule, axes, faults)).collect()
}

/// What a time line is drawn from.
struct TimelineSource<'a> {
    what: Text,
    requests: &'a [ProofRequest],
    /// The request that the others are shown for; without it all of them decide.
    first: Option<u32>,
    left_out: usize,
}

impl<'a> TimelineSource<'a> {
    fn of_proof(proof: &'a Proof) -> Self {
        let what = Text::english(&proof.why);
        Self { what, requests: &proof.requests, first: None, left_out: 0 }
    }

    fn of_double_sale(double_sale: &'a DoubleSale) -> Self {
        let what = Text::of("double_sale").with("replica", &double_sale.victim);
        Self { what, requests: &double_sale.requests, first: None, left_out: 0 }
    }

    fn of_oversell_moment(oversell_moment: &'a OversellMoment) -> Self {
        let OversellMoment { units, first, requests, left_out } = oversell_moment;
        let others = requests.len().saturating_sub(1) + left_out;
        let what = Text::of("oversell_moment")
            .with("n", units + 1)
            .with("units", *units)
            .with("others", others);
        Self { what, requests, first: Some(*first), left_out: *left_out }
    }

    fn timeline(self, rule: Rule, cell: CellAxes, faults: &[FaultRecord]) -> Timeline {
        let Self { what, requests, first, left_out } = self;
        let from_ns = requests.iter().map(|one| one.start_ns).min().unwrap_or(0);
        let ends = requests.iter().map(|one| one.end_ns.unwrap_or(one.start_ns));
        let axis = Axis { from_ns, until_ns: ends.max().unwrap_or(0) };
        let under_way = || first.is_none().then(|| axis.under_way(requests, cell.scope)).flatten();
        let bar = |one: &ProofRequest| axis.bar(one, cell.lock, first == Some(one.n));
        Timeline {
            what,
            rule: names::rule(rule),
            bars: requests.iter().map(bar).collect(),
            axis: [milliseconds(axis.from_ns), milliseconds(axis.until_ns)],
            overlap: axis.held_at_once(requests, cell.scope).or_else(under_way),
            struck: faults.iter().find_map(|fault| axis.struck(fault)),
            left_out,
        }
    }
}

struct Axis {
    from_ns: u64,
    until_ns: u64,
}

impl Axis {
    fn bar(&self, request: &ProofRequest, lock: Lock, marked: bool) -> Bar {
        // A request without an end may be at work to the end of the axis.
        let until_ns = request.end_ns.unwrap_or(self.until_ns);
        let replica = request.replica.as_ref();
        Bar {
            user: request.user.clone(),
            replica: replica.map_or_else(|| Text::of("no_replica"), Text::from),
            colour: colour(&request.answer),
            answer: request.answer.clone(),
            order: request.order.clone(),
            from: milliseconds(request.start_ns),
            until: request.end_ns.map(milliseconds),
            stretch: self.stretch(request.start_ns, until_ns),
            hold: request.held_ns.map(|[from, until]| self.stretch(from, until)),
            held: request.held_ns.map(|held| held.map(milliseconds)),
            no_hold: no_hold(request, lock),
            marked,
        }
    }

    /// The time in which most of them held one lock, if that were several.
    fn held_at_once(&self, requests: &[ProofRequest], scope: Scope) -> Option<Overlap> {
        let at_once = |one: &ProofRequest| {
            let [begin, _] = one.held_ns?;
            let same = requests.iter().filter(|other| have_one_lock(one, other, scope));
            let holds = same.filter_map(ProofRequest::hold);
            let holds: Vec<LockHold> =
                holds.filter(|hold| (hold.from..hold.until).contains(&begin)).collect();
            let until = holds.iter().map(|hold| hold.until).min()?;
            (holds.len() > 1).then_some((holds, [begin, until]))
        };
        let most = |(holds, [from, until]): &(Vec<_>, [u64; 2])| (holds.len(), until - from);
        let (holds, stretch) = requests.iter().filter_map(at_once).max_by_key(most)?;
        // As the rule counts them: what late answers can explain is not certain.
        let are_sure = holds
            .iter()
            .enumerate()
            .all(|(index, one)| holds[index + 1..].iter().all(|other| one.surely_overlaps(*other)));
        let did = Text::of(if are_sure { "held_one_lock" } else { "seem_to_have_held" });
        Some(self.overlap(stretch, (holds.len(), requests.len()), did))
    }

    /// The time in which all of them were under way, if there is one, where no two held their lock
    /// at once as far as is known.
    fn under_way(&self, requests: &[ProofRequest], scope: Scope) -> Option<Overlap> {
        let first = requests.first()?;
        let from = requests.iter().map(|one| one.start_ns).max()?;
        let until = requests.iter().map(|one| one.end_ns.unwrap_or(self.until_ns)).min()?;
        let all = (requests.len(), requests.len());
        if requests.len() < 2 || from >= until {
            return None;
        }
        let mut overlap = self.overlap([from, until], all, Text::of("were_under_way"));
        let is_known =
            |one: &ProofRequest| one.held_ns.is_some() && have_one_lock(first, one, scope);
        if requests.iter().all(is_known) {
            overlap.words = Text::joined("semicolon", [overlap.words, Text::of("no_two_held")]);
        }
        Some(overlap)
    }

    fn overlap(&self, [from, until]: [u64; 2], (some, all): (usize, usize), did: Text) -> Overlap {
        let who = match (some, all) {
            (2, 2) => Text::of("both"),
            (some, all) if some == all => Text::of("all_of_them").with("count", all),
            _ => Text::of("some_of_these").with("some", some).with("count", all),
        };
        let words = Text::of("at_once_for")
            .with("who", who)
            .with("did", did)
            .with("time", milliseconds(until - from));
        Overlap { stretch: self.stretch(from, until), words }
    }

    /// Where a fault stands, if it is on the axis.
    fn struck(&self, fault: &FaultRecord) -> Option<FaultSpan> {
        let from_ns = fault.begin_ns.max(self.from_ns);
        let until_ns = fault.end_ns.min(self.until_ns);
        (from_ns < until_ns).then(|| FaultSpan {
            stretch: self.stretch(from_ns, until_ns),
            words: Text::of("named_from_to")
                .with("name", fault.name.name())
                .with("from", milliseconds(fault.begin_ns))
                .with("until", milliseconds(fault.end_ns)),
        })
    }

    /// Exact enough: a load has far fewer than 2^53 nanoseconds.
    #[allow(clippy::cast_precision_loss)]
    fn stretch(&self, from_ns: u64, until_ns: u64) -> AxisSpan {
        let whole = self.until_ns.saturating_sub(self.from_ns).max(1) as f64;
        let percent = |ns: u64| (ns as f64 / whole * 10_000.0).round() / 100.0;
        AxisSpan {
            from: percent(from_ns.saturating_sub(self.from_ns)),
            length: percent(until_ns.saturating_sub(from_ns)),
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn milliseconds(ns: u64) -> String {
    format!("{:.1} ms", ns as f64 / 1e6)
}

/// Whether these two need the same lock.
fn have_one_lock(one: &ProofRequest, other: &ProofRequest, scope: Scope) -> bool {
    scope == Scope::Voucher || one.user == other.user
}

/// Why it is unknown when it held its lock; `None` if that is known.
fn no_hold(request: &ProofRequest, lock: Lock) -> Option<Text> {
    let why = match (request.held_ns, &request.replica) {
        (Some(_), _) => return None,
        (None, _) if lock == Lock::None => "no_lock_to_hold",
        (None, Some(_)) => "no_hold_reported",
        (None, None) => "no_hold_known",
    };
    Some(Text::of(why))
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
#[path = "timeline_tests.rs"]
mod tests;
