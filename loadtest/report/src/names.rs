//! What the judge and the laboratory name, as texts.

use loadtest_judge::holds::HoldOverlaps;
use loadtest_judge::setting::{Guards, Scope};
use loadtest_judge::verdict::Rule;
use loadtest_lab::cell::CellReport;
use loadtest_lab::cell_axes::CellAxes;
use loadtest_lab::cell_spec::CellSpec;
use loadtest_lab::faults::FaultKind;
use loadtest_lab::predict::Prediction;
use loadtest_lab::round::Round;
use loadtest_load::outcome::Outcome;

use crate::text::Text;

/// The place of a cell.
pub fn axes(axes: CellAxes) -> Text {
    let CellAxes { lock, scope, guards, replicas } = axes;
    Text::of("cell")
        .with("lock", lock.name())
        .with(
            "scope",
            Text::of(match scope {
                Scope::User => "per_user",
                Scope::Voucher => "per_voucher",
            }),
        )
        .with(
            "guards",
            Text::of(match guards {
                Guards::Off => "guards_off",
                Guards::On => "guards_on",
            }),
        )
        .with("replicas", replicas)
}

/// A cell.
pub fn cell(spec: CellSpec) -> Text {
    let mut cell = axes(spec.axes);
    if let Some(what) = spec.scenario_or_fault() {
        cell = Text::of("cell_with").with("cell", cell).with("what", what);
    }
    if !spec.topology.is_single() {
        cell = Text::of("cell_on").with("cell", cell).with("topology", spec.topology.name());
    }
    cell
}

/// A cell of a report, with its rung if it is one of the ladder.
pub fn title(report: &CellReport) -> Text {
    let cell = cell(report.trial());
    match &report.rung {
        Some(rung) => Text::of("cell_of_rung").with("rung", rung).with("cell", cell),
        None => cell,
    }
}

/// Which promises are broken.
pub fn prediction(prediction: Prediction) -> Text {
    Text::of(match (prediction.oversells, prediction.duplicates) {
        (false, false) if prediction.loses => "loses",
        (false, false) => "holds",
        (true, false) => "oversells",
        (false, true) => "duplicates",
        (true, true) => "breaks",
    })
}

/// A rule.
pub fn rule(rule: Rule) -> Text {
    Text::english(rule.words())
}

/// An outcome.
pub fn outcome(outcome: Outcome) -> Text {
    Text::of(match outcome {
        Outcome::Bought => "bought",
        Outcome::SoldOut => "sold_out",
        Outcome::AlreadyOrdered => "already_ordered",
        Outcome::Refused => "refused",
        Outcome::Unknown => "unknown",
    })
}

/// Why a cell is predicted to show what it is predicted to show.
pub fn because(report: &CellReport) -> Text {
    let told = Text::english(&report.because);
    let Some(fault) = report.fault.filter(|_| report.rung.is_none()) else { return told };
    match report.because.strip_prefix(fault.description()).and_then(|it| it.strip_prefix("; ")) {
        Some(rest) => {
            let both = [Text::english(fault.description()), Text::english(rest)];
            Text::joined("semicolon", both)
        }
        None => told,
    }
}

/// What was planned for a round.
pub fn plan(round: &Round) -> Text {
    let schedule = &round.schedule;
    let due = Text::of("due").with("ms", schedule.strike_after_ms);
    let frozen = Text::of("plan_frozen").with("due", due.clone());
    let frozen = frozen.with("replica", schedule.victim_name());
    if frozen.to_string() == round.plan {
        return frozen;
    }
    let what = match round.faults.first().map(|fault| fault.name) {
        Some(FaultKind::TwoAtOnce) => {
            Text::joined("and", schedule.pair.map(|fault| fault.name().into()))
        }
        Some(fault) => fault.name().into(),
        None => Text::default(),
    };
    Text::of("plan")
        .with("what", what)
        .with("due", due)
        .with("ms", schedule.lasts_ms)
        .with("replica", schedule.victim_name())
        .if_it_says(&round.plan)
}

/// When throughput was back.
pub fn back(round: &Round) -> Text {
    match round.back_after_ms {
        Some(ms) => Text::of("back_after").with("ms", ms),
        None if round.before_per_s > 0.0 => Text::of("back_late"),
        None => Text::of("not_measured"),
    }
}

/// How many holds of one lock there were at once, and why it is not always known.
pub fn overlaps(overlaps: &HoldOverlaps) -> Text {
    let told = Text::english(overlaps.words());
    if overlaps.at_once == overlaps.certain {
        return told;
    }
    Text::of("holds_unsure").with("overlaps", told)
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
