//! What is measured, and what it has to reach.

use std::fmt;

use distlock::LockKind;
use loadtest_measure::bars::Bar;
use serde::Serialize;

use crate::cell::Sample;
use crate::contended;
use crate::contest::{HAND_OFF, HELD, WAITED};
use crate::groups::{BARE, BENCHMARK, BOUNDED, BY_SCRIPT, Group, JVM, OURS, USUAL};
use crate::jvm::Api;

/// How many tasks the bare pair and the locks beside it are asked for by.
const TASKS: [usize; 4] = [1, 8, 64, 256];

/// Which figure of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Figure {
    /// How often a second.
    PerSecond,
    /// What was used for each, of what is called so.
    Each(&'static str),
    /// The median of the times that are called so.
    P50(&'static str),
    /// What 99 % of them do not exceed.
    P99(&'static str),
    /// What 99 % of the contenders wait at most. It is compared with a service in turn, at the
    /// usual hold and hand-off.
    WaitedBesideIdeal(u32),
}

impl Figure {
    pub(crate) fn of(self, sample: &Sample) -> Option<f64> {
        match self {
            Self::PerSecond => Some(sample.per_s),
            Self::Each(what) => sample.each.get(what).copied(),
            Self::P50(what) => sample.p50_ms.get(what).copied(),
            Self::P99(what) => sample.p99_ms.get(what).copied(),
            Self::WaitedBesideIdeal(contenders) => {
                let turn = sample.p50_ms.get(HELD)? + sample.p50_ms.get(HAND_OFF)?;
                let waited = sample.p99_ms.get(WAITED)?;
                (turn > 0.0).then(|| waited / (f64::from(contenders) * turn))
            }
        }
    }
}

/// One line of the table.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// What `--rows` calls it.
    pub(crate) name: String,
    /// What it says.
    pub(crate) what: String,
    pub(crate) group: Group,
    pub(crate) cell: &'static str,
    /// The cell whose figure its own is divided by; none if it stands for itself.
    pub(crate) beside: Option<&'static str>,
    pub(crate) figure: Figure,
    pub(crate) bar: Option<Bar>,
}

impl Row {
    /// How often a second, beside another cell if there is one.
    fn rate(
        (name, what): (String, String),
        (group, cell): (Group, &'static str),
        beside: Option<&'static str>,
        at_least: Option<f64>,
    ) -> Self {
        let bar = at_least.map(Bar::AtLeast);
        Self { name, what, group, cell, beside, figure: Figure::PerSecond, bar }
    }

    /// The cells that it needs.
    pub(crate) fn cells(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.cell).chain(self.beside)
    }
}

/// Every row.
pub(crate) fn all() -> Vec<Row> {
    let pairs = TASKS.into_iter().flat_map(pairs);
    let local = [(1, false), (64, false), (64, true)].map(|(tasks, same)| local(tasks, same));
    let kinds = [1, 64].into_iter().flat_map(|tasks| LockKind::ALL.map(|kind| cost(kind, tasks)));
    pairs
        .chain([by_server()])
        .chain(peers())
        .chain(local)
        .chain([bounded()])
        .chain(kinds)
        .chain(contended::rows())
        .collect()
}

fn keys(tasks: usize) -> String {
    if tasks == 1 { "one task".to_owned() } else { format!("{tasks} tasks with a key each") }
}

fn pairs(tasks: usize) -> [Row; 4] {
    let row = |cell: &'static str, what: &dyn fmt::Display, at_least| {
        let what = format!("{what}, {}, beside the bare pair", keys(tasks));
        let name = (format!("{cell}-{tasks}"), what);
        Row::rate(name, (Group::Pair(tasks), cell), Some(BARE), at_least)
    };
    let redisson = if tasks < 64 { 0.85 } else { 0.45 };
    [
        row(LockKind::LuaRelease.as_str(), &"lock and unlock", Some(0.9)),
        row(LockKind::Redisson.as_str(), &"lock and unlock, renewed", Some(redisson)),
        row(BENCHMARK, &"SET NX PX alone", None),
        by_command(tasks),
    ]
}

/// What a server's own command for the release is worth; about 1 where the server has none.
fn by_command(tasks: usize) -> Row {
    let cell = LockKind::LuaRelease.as_str();
    let what = format!("lock and unlock, {}, `DELIFEQ` beside the script", keys(tasks));
    let name = (format!("delifeq-{tasks}"), what);
    Row::rate(name, (Group::Pair(tasks), cell), Some(BY_SCRIPT), None)
}

/// What that command is worth where the client costs nothing that counts.
fn by_server() -> Row {
    let what = "`SET NX PX` and release, 64 pairs in a packet, `DELIFEQ` beside the script";
    let name = ("delifeq-server".to_owned(), what.to_owned());
    Row::rate(name, (Group::Packets, OURS), Some(BY_SCRIPT), None)
}

fn peers() -> [Row; 2] {
    let row = |api, tasks, how, at_least| {
        let what = format!("`redisson`, {}, beside the real Redisson, {how}", keys(tasks));
        let name = (format!("peer-{tasks}"), what);
        Row::rate(name, (Group::Peer(api, tasks), OURS), Some(JVM), Some(at_least))
    };
    [
        row(Api::Blocking, 64, "a thread for each", 4.0),
        row(Api::Async, 256, "its asynchronous calls", 3.0),
    ]
}

fn local(tasks: usize, same: bool) -> Row {
    let (how, keys) =
        if same { ("same", format!("{tasks} tasks, one key")) } else { ("own", keys(tasks)) };
    let what = format!("`local`, {keys}, beside a sharded map of mutexes");
    let name = (format!("local-{how}-{tasks}"), what);
    Row::rate(name, (Group::Local { tasks, same }, OURS), Some(USUAL), Some(0.8))
}

/// The code for waits that must not last for ever, as none of this library does.
fn bounded() -> Row {
    let what = "`local`, 64 tasks, one key, beside such a map with a bound on each wait";
    let name = ("local-bounded-64".to_owned(), what.to_owned());
    Row::rate(name, (Group::Local { tasks: 64, same: true }, OURS), Some(BOUNDED), None)
}

fn cost(kind: LockKind, tasks: usize) -> Row {
    let what = format!("`{kind}`, {}: how many a second", keys(tasks));
    Row::rate(
        (format!("{kind}-cost-{tasks}"), what),
        (Group::Kinds(tasks), kind.as_str()),
        None,
        None,
    )
}
