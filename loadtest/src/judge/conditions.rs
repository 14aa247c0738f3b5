//! What must be so for a load to say anything. What its requests show is judged here, whoever asks;
//! the rest stands in its history.

use crate::history::{Condition, FAULT, Offer, Past};
use crate::judge::evidence::Record;
use crate::judge::validity::{MAX_UNKNOWN_SHARE, MAX_UNKNOWN_SHARE_OF_ROUND};
use crate::load::client::HUNG_UP;
use crate::load::outcome::Outcome;

/// All conditions of a history, first those that were recorded.
pub fn of(past: &Past) -> Vec<Condition> {
    let mut all = past.conditions.clone();
    all.extend(past.begin.vouchers.iter().map(had_units));
    all.extend([reached(past), few_unknown(past)]);
    all
}

fn had_units(offer: &Offer) -> Condition {
    let units = offer.offered.map_or("not told".to_owned(), |units| format!("{units} units"));
    Condition {
        what: "it had units to sell".to_owned(),
        met: offer.offered.is_some_and(|units| units > 0),
        detail: format!("voucher {}: {units}", offer.id),
    }
}

fn reached(past: &Past) -> Condition {
    let reached =
        |outcome| matches!(outcome, Outcome::Bought | Outcome::SoldOut | Outcome::AlreadyOrdered);
    let reached = past.records.iter().filter(|record| reached(record.outcome)).count();
    Condition {
        what: "requests reached the sale".to_owned(),
        met: reached > 0,
        detail: format!("{reached} bought, sold out or already ordered"),
    }
}

fn few_unknown(past: &Past) -> Condition {
    let hung_up = past.names.codes.iter().position(|code| code == HUNG_UP);
    let is_unknown = |record: &&Record| {
        record.outcome == Outcome::Unknown && Some(usize::from(record.code)) != hung_up
    };
    let (unknown, all) = (past.records.iter().filter(is_unknown).count(), past.records.len());
    let share = share(unknown as u64, all as u64);
    let has_fault = past.marks.iter().any(|mark| mark.what == FAULT);
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
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
