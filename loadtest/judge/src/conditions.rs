//! Conditions without which a load says nothing. Those that its requests show are judged here; the
//! others are recorded in its history.

use loadtest_load::client::HUNG_UP;
use loadtest_load::history::record::Record;
use loadtest_load::history::{Condition, FAULT, History, Offer};
use loadtest_load::outcome::Outcome;

use crate::validity::{MAX_UNKNOWN_SHARE, MAX_UNKNOWN_SHARE_OF_ROUND};

/// All conditions of a history, first those that were recorded.
pub fn of(history: &History) -> Vec<Condition> {
    let mut all = history.conditions.clone();
    all.extend(history.begin.vouchers.iter().map(had_units));
    all.extend([reached(history), few_unknown(history)]);
    all
}

fn had_units(offer: &Offer) -> Condition {
    let units = offer.offered.map_or("unknown".to_owned(), |units| format!("{units} units"));
    Condition {
        what: "it had units to sell".to_owned(),
        met: offer.offered.is_some_and(|units| units > 0),
        detail: format!("voucher {}: {units}", offer.id),
    }
}

fn reached(history: &History) -> Condition {
    let reached =
        |outcome| matches!(outcome, Outcome::Bought | Outcome::SoldOut | Outcome::AlreadyOrdered);
    let reached = history.records.iter().filter(|record| reached(record.outcome)).count();
    Condition {
        what: "requests reached the sale".to_owned(),
        met: reached > 0,
        detail: format!("{reached} bought, sold out or already ordered"),
    }
}

fn few_unknown(history: &History) -> Condition {
    let hung_up = history.names.codes.iter().position(|code| code == HUNG_UP);
    let is_unknown = |record: &&Record| {
        record.outcome == Outcome::Unknown && Some(usize::from(record.code)) != hung_up
    };
    let (unknown, all) = (history.records.iter().filter(is_unknown).count(), history.records.len());
    let share = share(unknown as u64, all as u64);
    let has_fault = history.marks.iter().any(|mark| mark.what == FAULT);
    let most = if has_fault { MAX_UNKNOWN_SHARE_OF_ROUND } else { MAX_UNKNOWN_SHARE };
    Condition {
        what: "few outcomes are unknown".to_owned(),
        met: share <= most,
        detail: format!(
            "{unknown} of {all} requests ({:.1} %) whose clients did not hang up, at most {:.0} %",
            share * 100.0,
            most * 100.0
        ),
    }
}

/// The part of a whole; none of nothing.
#[allow(clippy::cast_precision_loss)]
pub fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
