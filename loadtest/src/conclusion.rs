//! The comparison in prose, built from what was observed: it changes if the figures do.

use crate::cell::CellReport;
use crate::predict::{Guards, Lock, Scope};

/// The conclusion; its first sentence is the pair that the comparison is for.
pub fn conclusion(cells: &[CellReport]) -> String {
    let mut sentences = vec![pair_sentence(cells)];
    sentences.extend(stock_sentence(cells));
    sentences.extend(voucher_sentence(cells));
    sentences.extend(guards_sentence(cells));
    sentences.push(count_sentence(cells));
    sentences.join(" ")
}

/// The two cells with the most replicas that differ only in the lock: local, then distributed; per
/// user, unguarded.
fn pair(cells: &[CellReport]) -> Option<(&CellReport, &CellReport)> {
    let unguarded = |lock: Lock, replicas: Option<u16>| {
        cells
            .iter()
            .filter(move |cell| {
                let place = cell.place;
                place.lock == lock
                    && place.scope == Scope::User
                    && place.guards == Guards::Off
                    && replicas.map_or(place.replicas > 1, |count| place.replicas == count)
            })
            .max_by_key(|cell| cell.place.replicas)
    };
    let local = unguarded(Lock::Local, None)?;
    let distributed = unguarded(Lock::LuaRelease, Some(local.place.replicas))?;
    Some((local, distributed))
}

fn pair_sentence(cells: &[CellReport]) -> String {
    let Some((local, distributed)) = pair(cells) else {
        return "This run does not hold the pair that the comparison is for (a local and a \
                distributed lock per user, several replicas, guards off), so it does not show \
                what a distributed lock is good for."
            .to_owned();
    };
    if let Some(cell) = [local, distributed].into_iter().find(|cell| !cell.valid) {
        return format!(
            "The pair that the comparison is for shows nothing, because the cell \"{}\" is not \
             valid: {}.",
            cell.place,
            cell.invalid_because.join("; ")
        );
    }
    let replicas = in_words(local.place.replicas);
    let (twice, still) = (local.duplicate_users, distributed.duplicate_users);
    match (twice > 0, still > 0) {
        (true, false) => format!(
            "With JVM-style local locks {replicas} replicas sell twice to one user (it happened \
             to {}), with the distributed lock they do not (it happened to nobody).",
            people(twice)
        ),
        (true, true) => format!(
            "Not as predicted: with JVM-style local locks {replicas} replicas sell twice to {}, \
             but with the distributed lock they still do so to {}.",
            people(twice),
            people(still)
        ),
        (false, _) => format!(
            "Not as predicted: with JVM-style local locks {replicas} replicas sell twice to \
             nobody, so this run does not show what the distributed lock is good for ({} bought \
             twice under it).",
            people(still)
        ),
    }
}

/// That a lock per user cannot keep to the stock.
fn stock_sentence(cells: &[CellReport]) -> Option<String> {
    let (local, distributed) = pair(cells)?;
    let both_oversold = local.oversold > 0 && distributed.oversold > 0;
    (both_oversold && local.valid && distributed.valid).then(|| {
        format!(
            "Neither kept to the stock ({} and {} orders too many for {} units), since a lock per \
             user does not keep two users apart.",
            local.oversold, distributed.oversold, local.stock
        )
    })
}

/// What the distributed lock per voucher does about it.
fn voucher_sentence(cells: &[CellReport]) -> Option<String> {
    let cell = cells.iter().filter(|cell| cell.valid).find(|cell| {
        let place = cell.place;
        place.lock == Lock::LuaRelease
            && place.scope == Scope::Voucher
            && place.guards == Guards::Off
            && place.replicas > 1
    })?;
    let replicas = in_words(cell.place.replicas);
    Some(if cell.observed.holds() {
        format!(
            "One distributed lock per voucher kept both promises with {replicas} replicas and the \
             database unguarded, at {:.0} orders/s.",
            cell.orders_per_s
        )
    } else {
        format!(
            "Even one distributed lock per voucher did not hold with {replicas} replicas: {} \
             oversold, {} twice.",
            cell.oversold,
            people(cell.duplicate_users)
        )
    })
}

/// What the database's guards do, whatever the lock.
fn guards_sentence(cells: &[CellReport]) -> Option<String> {
    let guarded: Vec<&CellReport> =
        cells.iter().filter(|cell| cell.valid && cell.place.guards == Guards::On).collect();
    let broke = guarded.iter().filter(|cell| !cell.observed.holds()).count();
    match (guarded.len(), broke) {
        (0, _) => None,
        (1, 0) => Some("With the database's guards on the cell held.".to_owned()),
        (count, 0) => Some(format!(
            "With the database's guards on (unique key and stock condition) all {count} cells \
             held, whatever the lock."
        )),
        (count, broke) => {
            Some(format!("With the database's guards on {broke} of {count} cells broke."))
        }
    }
}

fn count_sentence(cells: &[CellReport]) -> String {
    let good = cells.iter().filter(|cell| cell.ok()).count();
    if good == cells.len() && good > 0 {
        return format!("All {good} cells are valid and as predicted.");
    }
    format!("{good} of {} cells are valid and as predicted, so this comparison fails.", cells.len())
}

fn people(count: u64) -> String {
    match count {
        0 => "nobody".to_owned(),
        1 => "1 user".to_owned(),
        more => format!("{more} users"),
    }
}

fn in_words(count: u16) -> String {
    match count {
        1 => "one".to_owned(),
        2 => "two".to_owned(),
        3 => "three".to_owned(),
        4 => "four".to_owned(),
        5 => "five".to_owned(),
        more => more.to_string(),
    }
}
