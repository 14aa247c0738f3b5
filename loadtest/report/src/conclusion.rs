//! The comparison in prose, built from what was observed: it changes if the figures do.

use std::fmt;

use loadtest_judge::setting::{Guards, Scope};
use loadtest_lab::cell::CellReport;
use loadtest_lab::lock::Lock;
use loadtest_lab::predict::Scenario;
use serde::{Serialize, Serializer};

use crate::text::Text;
use crate::{headline, names};

/// The comparison in prose. As text and in JSON it is all of it, one sentence after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conclusion {
    /// What was unusual about the whole run: its path, its writer.
    pub setting: Text,
    /// A bug that every replica had.
    pub injected_bug: Text,
    /// The answer to what was asked, which is read first.
    pub answer: Text,
    /// What it rests on.
    pub more: Text,
}

impl fmt::Display for Conclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, injected_bug, answer, more } = self.clone();
        let parts = [setting, injected_bug, answer, more].into_iter();
        Text::sentences(parts.filter(|part| !part.is_empty())).fmt(f)
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
    let mut answer: Vec<Text> = red_sentence(cells).into_iter().collect();
    answer.push(pair_sentence(cells).unwrap_or_else(|| Text::of("no_pair")));
    answer.extend(way_out_sentence(cells));
    let mut more: Vec<Text> = stock_sentence(cells).into_iter().collect();
    more.extend(voucher_sentence(cells));
    more.extend(guards_sentence(cells));
    more.push(count_sentence(cells, "comparison"));
    of_sentences(answer, more)
}

/// The conclusion of a matrix, which need not hold that pair. Without it the answer is the first of
/// these: what else it shows of locks, the frozen holder, the sales with other faults, the count.
pub fn of_matrix(cells: &[CellReport]) -> Conclusion {
    let count = count_sentence(cells, "run");
    let mut answer: Vec<Text> = red_sentence(cells).into_iter().collect();
    answer.extend(pair_sentence(cells));
    answer.extend(way_out_sentence(cells));
    let mut more: Vec<Text> = stock_sentence(cells).into_iter().collect();
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
    of_sentences(answer, more)
}

fn of_sentences(answer: Vec<Text>, more: Vec<Text>) -> Conclusion {
    let (answer, more) = (Text::sentences(answer), Text::sentences(more));
    Conclusion { answer, more, ..Conclusion::default() }
}

/// What makes the run red, if it is.
fn red_sentence(cells: &[CellReport]) -> Option<Text> {
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

fn pair_sentence(cells: &[CellReport]) -> Option<Text> {
    let (weak, distributed) = pair(cells)?;
    let all = std::iter::once(weak).chain(distributed.iter().copied());
    if let Some(cell) = all.into_iter().find(|cell| !cell.valid) {
        let why = cell.invalid_because.iter().map(Text::english);
        return Some(
            Text::of("pair_invalid")
                .with("cell", names::axes(cell.axes))
                .with("why", Text::joined("semicolon", why)),
        );
    }
    let worst = distributed.iter().max_by_key(|cell| cell.duplicate_users);
    let (twice, still) = (weak.duplicate_users, worst.map_or(0, |cell| cell.duplicate_users));
    let the_lock = match (&distributed[..], worst) {
        ([_, _, ..], Some(worst)) if still > 0 => {
            Text::of("the_lock").with("lock", worst.axes.lock.name())
        }
        ([_, _, ..], _) => Text::of("distributed_locks").with("count", distributed.len()),
        _ => Text::of("distributed_lock"),
    };
    let sentence = match (twice > 0, still > 0) {
        (true, false) => {
            Text::of("pair_repaired").with("twice", people(twice)).with("lock", the_lock)
        }
        (true, true) => Text::of("pair_not_repaired")
            .with("twice", people(twice))
            .with("lock", the_lock)
            .with("still", people(still)),
        (false, _) => Text::of("pair_not_shown").with("still", people(still)),
    };
    let weakly = match weak.axes.lock {
        Lock::Local => "with_local",
        _ => "without_lock",
    };
    let replicas = in_words(weak.axes.replicas);
    Some(sentence.with("weakly", Text::of(weakly)).with("replicas", replicas))
}

/// A sentence that a lock per user cannot keep to the stock.
fn stock_sentence(cells: &[CellReport]) -> Option<Text> {
    let (weak, distributed) = pair(cells)?;
    let least = distributed.iter().min_by_key(|cell| cell.oversold)?;
    let all_oversold = weak.oversold > 0 && least.oversold > 0;
    let all_valid = weak.valid && distributed.iter().all(|cell| cell.valid);
    let one = distributed.len() == 1;
    let neither = match (weak.axes.lock, one) {
        (Lock::Local, true) => "neither_lock",
        (Lock::Local, false) => "none_of_locks",
        (_, true) => "neither_sale",
        (_, false) => "none_of_sales",
    };
    let at_least = Text::of(if one { "exactly" } else { "at_least" });
    (all_oversold && all_valid).then(|| {
        Text::of("stock_exceeded")
            .with("neither", Text::of(neither))
            .with("weak", weak.oversold)
            .with("least", at_least.with("count", least.oversold))
            .with("stock", weak.stock)
    })
}

/// Where locks per user do not keep to the stock: what does.
fn way_out_sentence(cells: &[CellReport]) -> Option<Text> {
    let mut per_user = unguarded(cells, Scope::User).filter(|cell| cell.axes.lock != Lock::None);
    let first = per_user.next()?;
    if first.oversold == 0 || per_user.any(|cell| cell.oversold == 0) {
        return None;
    }
    let per_voucher = distributed_per_voucher(cells);
    let all_kept = per_voucher.iter().all(|cell| cell.oversold == 0);
    let lock = rates(&per_voucher).map(|[slowest, fastest]| {
        let least = format!("{:.0}", slowest.orders_per_s);
        match (all_kept, per_voucher.len()) {
            (false, _) => Text::of("lock_fails"),
            (true, 1) => Text::of("lock_keeps").with("least", least),
            (true, _) => {
                let most = format!("{:.0}", fastest.orders_per_s);
                Text::of("locks_keep").with("least", least).with("most", most)
            }
        }
    });
    let guarded: Vec<_> = guarded(cells).collect();
    let guards_keep = !guarded.is_empty() && guarded.iter().all(|cell| cell.oversold == 0);
    let guards = guards_keep.then_some(match (&lock, all_kept) {
        (Some(_), true) => "guards_keep_too",
        (Some(_), false) => "but_guards_keep",
        (None, _) => "guards_keep",
    });
    if lock.is_none() && guards.is_none() {
        return Some(Text::of("no_lock_keeps"));
    }
    let any = guards.map(|_| whatever_the_lock(&guarded));
    Some(
        Text::of("what_keeps")
            .with("lock", lock.unwrap_or_default())
            .with("guards", guards.map(Text::of).unwrap_or_default())
            .with("any", any.unwrap_or_default()),
    )
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
fn voucher_sentence(cells: &[CellReport]) -> Option<Text> {
    let unguarded = distributed_per_voucher(cells);
    if let Some(broken) = unguarded.iter().find(|cell| !cell.observed.holds()) {
        return Some(
            Text::of("voucher_broke")
                .with("cell", names::axes(broken.axes))
                .with("oversold", broken.oversold)
                .with("twice", people(broken.duplicate_users)),
        );
    }
    let [slowest, fastest] = rates(&unguarded)?;
    let rate = |cell: &CellReport| format!("{:.0}", cell.orders_per_s);
    Some(if unguarded.len() == 1 {
        Text::of("voucher_kept")
            .with("replicas", in_words(slowest.axes.replicas))
            .with("rate", rate(slowest))
    } else {
        Text::of("vouchers_kept")
            .with("count", unguarded.len())
            .with("least", rate(slowest))
            .with("slow", slowest.axes.lock.name())
            .with("most", rate(fastest))
            .with("fast", fastest.axes.lock.name())
    })
}

/// What a frozen holder sold too much, without fencing and with it.
fn frozen_sentence(cells: &[CellReport]) -> Option<Text> {
    let side = |scenario: Scenario, how: &'static str| {
        let of_it = |cell: &&CellReport| cell.valid && cell.scenario == scenario;
        let of_it: Vec<&CellReport> = cells.iter().filter(of_it).collect();
        let too_many: u64 = of_it.iter().map(|cell| cell.oversold).sum();
        let orders = match too_many {
            0 => Text::of("too_many_0"),
            1 => Text::of("too_many_1"),
            more => Text::of("too_many_n").with("count", more),
        };
        let cells = Text::counted("cells", of_it.len());
        (!of_it.is_empty()).then(|| Text::of(how).with("orders", orders).with("cells", cells))
    };
    let unfenced = side(Scenario::FrozenUnfenced, "without_fencing");
    let fenced = side(Scenario::FrozenFenced, "with_fencing");
    let sides: Vec<Text> = unfenced.into_iter().chain(fenced).collect();
    (!sides.is_empty()).then(|| Text::of("frozen").with("sides", Text::joined("and_sides", sides)))
}

/// Said only of several locks.
fn whatever_the_lock(cells: &[&CellReport]) -> Text {
    let several = cells.windows(2).any(|pair| pair[0].axes.lock != pair[1].axes.lock);
    if several { Text::of("whatever_lock") } else { Text::default() }
}

/// The outcome of sales in which something went wrong, besides frozen holders.
fn struck_sentence(cells: &[CellReport]) -> Option<Text> {
    let is_struck =
        |cell: &&CellReport| cell.valid && cell.fault.is_some() && !cell.scenario.is_frozen();
    let struck: Vec<&CellReport> = cells.iter().filter(is_struck).collect();
    let broke = struck.iter().filter(|cell| !cell.observed.holds()).count();
    let count = struck.len();
    match (count, broke) {
        (0, _) => None,
        (1, 0) => Some(Text::of("struck_held")),
        (1, _) => Some(Text::of("struck_broke")),
        (_, 0) => {
            let any = whatever_the_lock(&struck);
            Some(Text::of("struck_all_held").with("count", count).with("any", any))
        }
        _ => Some(Text::of("struck_some_broke").with("broke", broke).with("count", count)),
    }
}

/// What the database's guards do, whatever the lock.
fn guards_sentence(cells: &[CellReport]) -> Option<Text> {
    let guarded: Vec<_> = guarded(cells).collect();
    let broke = guarded.iter().filter(|cell| !cell.observed.holds()).count();
    match (guarded.len(), broke) {
        (0, _) => None,
        (1, 0) => Some(Text::of("guarded_held")),
        (1, _) => Some(Text::of("guarded_broke")),
        (count, 0) => {
            let any = whatever_the_lock(&guarded);
            Some(Text::of("guarded_all_held").with("count", count).with("any", any))
        }
        (count, broke) => {
            Some(Text::of("guarded_some_broke").with("broke", broke).with("count", count))
        }
    }
}

/// `what` is the key of what fails if a cell does.
fn count_sentence(cells: &[CellReport], what: &'static str) -> Text {
    let good = cells.iter().filter(|cell| cell.ok()).count();
    match (good, cells.len()) {
        (1, 1) => Text::of("cell_good"),
        (0, 1) => Text::of("cell_bad").with("what", Text::of(what)),
        (good, all) if good == all && good > 0 => Text::of("cells_good").with("count", good),
        (good, all) => {
            let text = Text::of("cells_bad").with("good", good).with("count", all);
            text.with("what", Text::of(what))
        }
    }
}

fn people(count: u64) -> Text {
    match count {
        0 => Text::of("users_0"),
        1 => Text::of("users_1"),
        more => Text::of("users_n").with("count", more),
    }
}

fn in_words(count: u16) -> Text {
    match count {
        1..=5 => Text::of(format!("number_{count}")),
        more => more.into(),
    }
}

#[cfg(test)]
#[path = "conclusion_tests.rs"]
mod tests;
