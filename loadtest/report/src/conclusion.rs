//! The comparison in prose, built from what was observed: it changes if the figures do.

use std::fmt;

use loadtest_judge::setting::{Guards, Scope};
use loadtest_lab::cell::CellReport;
use loadtest_lab::lock::Lock;
use loadtest_lab::predict::Scenario;
use serde::{Serialize, Serializer};

use crate::{capitalized, headline};

/// The comparison in prose. As text and in JSON it is all of it, one sentence after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conclusion {
    /// What was unusual about the whole run: its path, its writer.
    pub setting: String,
    /// A bug that every replica had.
    pub injected_bug: String,
    /// The answer to what was asked, which is read first.
    pub answer: String,
    /// What it rests on.
    pub more: String,
}

impl fmt::Display for Conclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, injected_bug, answer, more } = self;
        let parts = [setting, injected_bug, answer, more].map(|part| part.trim());
        f.write_str(
            &parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" "),
        )
    }
}

impl Serialize for Conclusion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The conclusion; its first sentence is what makes the run red, or else the pair that the
/// comparison is for.
pub fn conclusion(cells: &[CellReport]) -> Conclusion {
    let mut answer: Vec<String> = red_sentence(cells).into_iter().collect();
    answer.push(pair_sentence(cells).unwrap_or_else(|| NO_PAIR.to_owned()));
    answer.extend(way_out_sentence(cells));
    let mut more: Vec<String> = stock_sentence(cells).into_iter().collect();
    more.extend(voucher_sentence(cells));
    more.extend(guards_sentence(cells));
    more.push(count_sentence(cells, "comparison"));
    Conclusion { answer: answer.join(" "), more: more.join(" "), ..Conclusion::default() }
}

/// The conclusion of a matrix, which need not hold that pair. Without it the answer is the first of
/// these: what else it shows of locks, the frozen holder, the sales with other faults, the count.
pub fn of_matrix(cells: &[CellReport]) -> Conclusion {
    let count = count_sentence(cells, "run");
    let mut answer: Vec<String> = red_sentence(cells).into_iter().collect();
    answer.extend(pair_sentence(cells));
    answer.extend(way_out_sentence(cells));
    let mut more: Vec<String> = stock_sentence(cells).into_iter().collect();
    more.extend(voucher_sentence(cells));
    if let Some(frozen) = frozen_sentence(cells) {
        if answer.is_empty() { answer.push(frozen) } else { more.push(frozen) }
    }
    if let Some(struck) = struck_sentence(cells) {
        if answer.is_empty() { answer.push(struck) } else { more.push(struck) }
    }
    more.extend(guards_sentence(cells));
    if answer.is_empty() {
        answer.push(count);
    } else {
        more.push(count);
    }
    Conclusion { answer: answer.join(" "), more: more.join(" "), ..Conclusion::default() }
}

/// Where there is no pair.
const NO_PAIR: &str = "This run does not hold the pair that the comparison is for (a local lock \
                       or none, and a distributed lock, per user, several replicas, guards off), \
                       so it does not show what a distributed lock is good for.";

/// What makes the run red, if it is.
fn red_sentence(cells: &[CellReport]) -> Option<String> {
    headline::of_cells(cells).map(|(text, ..)| text)
}

/// The cell with the most replicas, per user and unguarded, that has a local lock, or else none,
/// and those that differ from it only in having a distributed lock.
fn pair(cells: &[CellReport]) -> Option<(&CellReport, Vec<&CellReport>)> {
    pair_with(Lock::Local, cells).or_else(|| pair_with(Lock::None, cells))
}

fn pair_with(lock: Lock, cells: &[CellReport]) -> Option<(&CellReport, Vec<&CellReport>)> {
    let unguarded = |cell: &&CellReport| {
        let axes = cell.axes;
        cell.trial().is_plain()
            && axes.scope == Scope::User
            && axes.guards == Guards::Off
            && axes.replicas > 1
    };
    let weak = cells.iter().filter(unguarded).filter(|cell| cell.axes.lock == lock);
    let weak = weak.max_by_key(|cell| cell.axes.replicas)?;
    let alike = |cell: &&CellReport| cell.axes.replicas == weak.axes.replicas;
    let distributed = cells.iter().filter(unguarded).filter(alike);
    let distributed: Vec<_> = distributed.filter(|cell| cell.axes.lock.is_distributed()).collect();
    (!distributed.is_empty()).then_some((weak, distributed))
}

fn pair_sentence(cells: &[CellReport]) -> Option<String> {
    let (weak, distributed) = pair(cells)?;
    let all = std::iter::once(weak).chain(distributed.iter().copied());
    if let Some(cell) = all.into_iter().find(|cell| !cell.valid) {
        return Some(format!(
            "The pair that the comparison is for shows nothing, because the cell \"{}\" is not \
             valid: {}.",
            cell.axes,
            cell.invalid_because.join("; ")
        ));
    }
    let replicas = in_words(weak.axes.replicas);
    let weakly = match weak.axes.lock {
        Lock::Local => "with JVM-style local locks",
        _ => "without a lock",
    };
    let worst = distributed.iter().max_by_key(|cell| cell.duplicate_users);
    let (twice, still) = (weak.duplicate_users, worst.map_or(0, |cell| cell.duplicate_users));
    let the_lock = match (&distributed[..], worst) {
        ([_, _, ..], Some(worst)) if still > 0 => format!("the lock {}", worst.axes.lock.name()),
        ([_, _, ..], _) => format!("each of {} distributed locks", distributed.len()),
        _ => "the distributed lock".to_owned(),
    };
    let sentence = match (twice > 0, still > 0) {
        (true, false) => format!(
            "{weakly} {replicas} replicas sell twice to one user (it happened to {}), with \
             {the_lock} they do not (it happened to no user).",
            people(twice)
        ),
        (true, true) => format!(
            "{weakly} {replicas} replicas sell twice to {}, but with {the_lock} they still do so \
             to {}.",
            people(twice),
            people(still)
        ),
        (false, _) => format!(
            "{weakly} {replicas} replicas sell twice to no user, so this run does not show what a \
             distributed lock is good for ({} bought twice under it).",
            people(still)
        ),
    };
    Some(capitalized(&sentence))
}

/// A sentence that a lock per user cannot keep to the stock.
fn stock_sentence(cells: &[CellReport]) -> Option<String> {
    let (weak, distributed) = pair(cells)?;
    let least = distributed.iter().min_by_key(|cell| cell.oversold)?;
    let all_oversold = weak.oversold > 0 && least.oversold > 0;
    let all_valid = weak.valid && distributed.iter().all(|cell| cell.valid);
    let one = distributed.len() == 1;
    let neither = match (weak.axes.lock, one) {
        (Lock::Local, true) => "Neither lock per user",
        (Lock::Local, false) => "None of these locks per user",
        (_, true) => "Neither the sale without a lock nor that with a lock per user",
        (_, false) => "Neither the sale without a lock nor any with a lock per user",
    };
    let at_least = if one { "" } else { "at least " };
    (all_oversold && all_valid).then(|| {
        format!(
            "{neither} kept to the stock ({} and {at_least}{} orders too many for {} units), \
             since a lock per user does not keep two users apart.",
            weak.oversold, least.oversold, weak.stock
        )
    })
}

/// Where locks per user do not keep to the stock: what does.
fn way_out_sentence(cells: &[CellReport]) -> Option<String> {
    let mut per_user = unguarded(cells, Scope::User).filter(|cell| cell.axes.lock != Lock::None);
    let first = per_user.next()?;
    if first.oversold == 0 || per_user.any(|cell| cell.oversold == 0) {
        return None;
    }
    let per_voucher = distributed_per_voucher(cells);
    let all_kept = per_voucher.iter().all(|cell| cell.oversold == 0);
    let lock = rates(&per_voucher).map(|[slowest, fastest]| {
        let (least, most) = (slowest.orders_per_s, fastest.orders_per_s);
        match (all_kept, per_voucher.len()) {
            (false, _) => "a distributed lock per voucher does not always".to_owned(),
            (true, 1) => format!("a distributed lock per voucher does ({least:.0} orders/s)"),
            (true, _) => {
                format!("a distributed lock per voucher does ({least:.0} to {most:.0} orders/s)")
            }
        }
    });
    let guarded: Vec<_> = guarded(cells).collect();
    let guards_keep = !guarded.is_empty() && guarded.iter().all(|cell| cell.oversold == 0);
    let guards = guards_keep.then_some(match (&lock, all_kept) {
        (Some(_), true) => ", and so do the database's guards",
        (Some(_), false) => ", but the database's guards do",
        (None, _) => "the database's guards do",
    });
    let any_lock = guards.map_or("", |_| whatever_the_lock(&guarded));
    let what_does = lock.unwrap_or_default() + guards.unwrap_or_default() + any_lock;
    let stop = if what_does.is_empty() { "" } else { "; " };
    Some(format!("No lock per user keeps to the stock{stop}{what_does}."))
}

/// Valid cells of that scope without guards in which nothing else happens.
fn unguarded(cells: &[CellReport], scope: Scope) -> impl Iterator<Item = &CellReport> {
    cells.iter().filter(move |cell| {
        let axes = cell.axes;
        let plain = cell.valid && cell.trial().is_plain();
        plain && axes.scope == scope && axes.guards == Guards::Off
    })
}

/// The cells of one distributed lock per voucher over several replicas.
fn distributed_per_voucher(cells: &[CellReport]) -> Vec<&CellReport> {
    let suits = |cell: &&CellReport| cell.axes.lock.is_distributed() && cell.axes.replicas > 1;
    unguarded(cells, Scope::Voucher).filter(suits).collect()
}

/// Valid cells with the database's guards on.
fn guarded(cells: &[CellReport]) -> impl Iterator<Item = &CellReport> {
    cells.iter().filter(|cell| cell.valid && cell.axes.guards == Guards::On)
}

/// The slowest and the fastest, if there is any.
fn rates<'a>(cells: &[&'a CellReport]) -> Option<[&'a CellReport; 2]> {
    let by_rate = |a: &&&CellReport, b: &&&CellReport| a.orders_per_s.total_cmp(&b.orders_per_s);
    Some([cells.iter().min_by(by_rate)?, cells.iter().max_by(by_rate)?])
}

/// What a distributed lock per voucher does about it.
fn voucher_sentence(cells: &[CellReport]) -> Option<String> {
    let unguarded = distributed_per_voucher(cells);
    if let Some(broken) = unguarded.iter().find(|cell| !cell.observed.holds()) {
        return Some(format!(
            "Even one distributed lock per voucher did not hold ({}): {} oversold, {} twice.",
            broken.axes,
            broken.oversold,
            people(broken.duplicate_users)
        ));
    }
    let [slowest, fastest] = rates(&unguarded)?;
    let replicas = in_words(slowest.axes.replicas);
    Some(if unguarded.len() == 1 {
        format!(
            "One distributed lock per voucher kept both promises with {replicas} replicas and the \
             database unguarded, at {:.0} orders/s.",
            slowest.orders_per_s
        )
    } else {
        format!(
            "One distributed lock per voucher kept both promises in all {} cells with several \
             replicas and the database unguarded, at {:.0} ({}) to {:.0} orders/s ({}).",
            unguarded.len(),
            slowest.orders_per_s,
            slowest.axes.lock.name(),
            fastest.orders_per_s,
            fastest.axes.lock.name()
        )
    })
}

/// What a frozen holder sold too much, without fencing and with it.
fn frozen_sentence(cells: &[CellReport]) -> Option<String> {
    let side = |scenario: Scenario, how: &str| {
        let of_it = |cell: &&CellReport| cell.valid && cell.scenario == scenario;
        let of_it: Vec<&CellReport> = cells.iter().filter(of_it).collect();
        let too_many: u64 = of_it.iter().map(|cell| cell.oversold).sum();
        let cells = if of_it.len() == 1 { "cell" } else { "cells" };
        let orders = match too_many {
            0 => "no unit was sold twice".to_owned(),
            1 => "1 order was too many".to_owned(),
            more => format!("{more} orders were too many"),
        };
        (!of_it.is_empty()).then(|| format!("{orders} {how} ({} {cells})", of_it.len()))
    };
    let unfenced = side(Scenario::FrozenUnfenced, "without fencing");
    let fenced = side(Scenario::FrozenFenced, "with fencing");
    let sides: Vec<String> = unfenced.into_iter().chain(fenced).collect();
    (!sides.is_empty())
        .then(|| format!("Where a holder was frozen past its lock, {}.", sides.join(" and ")))
}

/// Said only of several locks.
fn whatever_the_lock(cells: &[&CellReport]) -> &'static str {
    let several = cells.windows(2).any(|pair| pair[0].axes.lock != pair[1].axes.lock);
    if several { ", whatever the lock" } else { "" }
}

/// The outcome of sales in which something went wrong, besides frozen holders.
fn struck_sentence(cells: &[CellReport]) -> Option<String> {
    let is_struck =
        |cell: &&CellReport| cell.valid && cell.fault.is_some() && !cell.scenario.is_frozen();
    let struck: Vec<&CellReport> = cells.iter().filter(is_struck).collect();
    let broke = struck.iter().filter(|cell| !cell.observed.holds()).count();
    let count = struck.len();
    match (count, broke) {
        (0, _) => None,
        (1, 0) => Some("While something went wrong the sale kept both promises.".to_owned()),
        (1, _) => Some("While something went wrong the sale broke a promise.".to_owned()),
        (_, 0) => Some(format!(
            "While something went wrong all {count} sales kept both promises{}.",
            whatever_the_lock(&struck)
        )),
        _ => Some(format!("While something went wrong {broke} of {count} sales broke a promise.")),
    }
}

/// What the database's guards do, whatever the lock.
fn guards_sentence(cells: &[CellReport]) -> Option<String> {
    let guarded: Vec<_> = guarded(cells).collect();
    let broke = guarded.iter().filter(|cell| !cell.observed.holds()).count();
    match (guarded.len(), broke) {
        (0, _) => None,
        (1, 0) => Some("With the database's guards on the cell held.".to_owned()),
        (1, _) => Some("With the database's guards on the cell broke.".to_owned()),
        (count, 0) => Some(format!(
            "With the database's guards on (unique key and stock condition) all {count} cells \
             held{}.",
            whatever_the_lock(&guarded)
        )),
        (count, broke) => {
            Some(format!("With the database's guards on {broke} of {count} cells broke."))
        }
    }
}

fn count_sentence(cells: &[CellReport], what: &str) -> String {
    let good = cells.iter().filter(|cell| cell.ok()).count();
    match (good, cells.len()) {
        (1, 1) => "The cell is valid and as predicted.".to_owned(),
        (0, 1) => format!("The cell is invalid or not as predicted, so this {what} fails."),
        (good, all) if good == all && good > 0 => {
            format!("All {good} cells are valid and as predicted.")
        }
        (good, all) => {
            format!("{good} of {all} cells are valid and as predicted, so this {what} fails.")
        }
    }
}

fn people(count: u64) -> String {
    match count {
        0 => "no user".to_owned(),
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

#[cfg(test)]
#[path = "conclusion_tests.rs"]
mod tests;
