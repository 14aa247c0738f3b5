//! Locks that many want or that many hold: what is measured side by side, and what it has to reach.

use std::fmt;
use std::time::Duration;

use conformance::protocol::Setup;
use conformance::{promise, setup};
use distlock::LockKind;
use loadtest_measure::bars::Bar;
use loadtest_measure::error::Result;

use crate::cell::{Cell, broken};
use crate::commands::Commands;
use crate::contest::{COMMANDS, Contest, HAND_OFF, WAITED};
use crate::crowd::{COST, TIME, Waiters};
use crate::groups::{BARE, Group, OURS, Stage};
use crate::held::HeldLocks;
use crate::list_time::{self, LockLister};
use crate::rows::{Figure, Row};
use crate::throughput::servers_of;
use crate::trip::Trip;

/// Contenders, in any number of processes.
const CONTENDERS: u32 = 16;
const PLAIN: &str = "redisson-plain";
const FAIR: &str = "redisson-fair";
/// What no hand-off by the server can take less than.
const TRIP: &str = "trip";
/// A contender that does not get the lock asks again at once.
const SPIN: &str = "spin";
const FEW: &str = "few";
const MANY: &str = "many";

/// Cells that are measured side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ContentionCell {
    /// The contenders in that number of processes, of this library and of Redisson.
    Contest(u32),
    /// What clients send, by the number of processes and of waiters in each.
    Commands(u32, u32),
    /// Every way to wait: the contenders in two processes, those of `local` in one.
    Ways,
    /// A hundred waiters, and ten thousand.
    Waiters,
    /// A thousand and a hundred thousand locks that are renewed.
    Held,
    /// Ten thousand locks that are listed.
    Listing,
}

impl fmt::Display for ContentionCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contest(processes) => write!(f, "contest-{processes}"),
            Self::Commands(processes, waiters) => write!(f, "commands-{processes}x{waiters}"),
            Self::Ways => f.write_str("ways"),
            Self::Waiters => f.write_str("waiters"),
            Self::Held => f.write_str("held"),
            Self::Listing => f.write_str("listing"),
        }
    }
}

impl ContentionCell {
    /// Makes one of its cells, and starts what it needs.
    pub(crate) fn cell(self, cell: &'static str, stage: &Stage) -> Result<Box<dyn Cell>> {
        let servers = &stage.servers;
        let ours = || setup(servers, LockKind::Redisson);
        Ok(match self {
            Self::Contest(_) if cell == TRIP => Box::new(Trip::connect(servers)?),
            Self::Contest(processes) => {
                let size = (processes, CONTENDERS / processes);
                let contest = match cell {
                    OURS => Contest::ours(servers, &ours(), size),
                    FAIR => {
                        Contest::redisson(servers, &Setup { kind: "fair".into(), ..ours() }, size)
                    }
                    _ => Contest::redisson(servers, &ours(), size),
                };
                Box::new(contest.on(&servers_of(servers, LockKind::Redisson)))
            }
            Self::Commands(processes, waiters) => {
                let contest = Contest::ours(servers, &ours(), (processes, waiters));
                Box::new(contest.counting(Commands::of_redis(servers.redis())?))
            }
            Self::Ways => Box::new(way(cell, stage)?),
            Self::Waiters => {
                let tasks = stage.many(if cell == FEW { 100 } else { 10_000 });
                Box::new(stage.runtime.block_on(Waiters::start(servers, tasks))?)
            }
            Self::Held => {
                let (locks, lease_s) = if cell == FEW { (1_000, 1) } else { (100_000, 10) };
                let lease = Duration::from_secs(lease_s);
                Box::new(HeldLocks::take(servers, stage.many(locks), lease)?)
            }
            Self::Listing => {
                let lister = LockLister::of(servers, stage.many(10_000), cell == BARE);
                Box::new(stage.runtime.block_on(lister)?)
            }
        })
    }
}

fn way(cell: &str, stage: &Stage) -> Result<Contest> {
    let servers = &stage.servers;
    let (kind, is_spin) = match cell {
        SPIN => (LockKind::LuaRelease, true),
        kind => (kind.parse().map_err(broken("a kind"))?, false),
    };
    let processes = processes_of(kind);
    let size = (processes, CONTENDERS / processes);
    let usual = setup(servers, kind);
    let contest = if is_spin {
        Contest::ours(servers, &Setup { local_queue: false, ..usual }, size).spinning()
    } else {
        Contest::ours(servers, &usual, size)
    };
    let contest = contest.on(&servers_of(servers, kind));
    Ok(match conformance::home(kind) {
        conformance::Home::Redis => contest.counting(Commands::of_redis(servers.redis())?),
        conformance::Home::ZooKeeper => {
            let address = servers.zookeeper().connect_string();
            contest.counting(Commands::of_zookeeper(address))
        }
        _ => contest,
    })
}

/// Two, for a kind that keeps them apart.
fn processes_of(kind: LockKind) -> u32 {
    if promise(kind).is_on_a_server() { 2 } else { 1 }
}

/// Every row.
pub(crate) fn rows() -> Vec<Row> {
    let commands = [1, 2, 4]
        .into_iter()
        .flat_map(|processes| [16, 64].map(move |waiters| commands(processes, waiters)));
    let contests = [1, 2].into_iter().flat_map(contest);
    contests.chain(commands).chain(crowds()).chain(listings()).chain(ways()).collect()
}

fn contest(processes: u32) -> [Row; 6] {
    let group = Group::Contended(ContentionCell::Contest(processes));
    let row = |name: &str, what: &str, figure, beside, most| Row {
        name: format!("{name}-{processes}"),
        what: format!("{what}, {CONTENDERS} contenders in {processes} processes"),
        group,
        cell: OURS,
        beside,
        figure,
        bar: Some(Bar::AtMost(most)),
    };
    let (p50, p99) = (Figure::P50(HAND_OFF), Figure::P99(HAND_OFF));
    let (waited, ideal) = (Figure::P99(WAITED), Figure::WaitedBesideIdeal(CONTENDERS));
    [
        row(
            "hand-off-p50",
            "hand-off, median, beside Redisson's plain lock",
            p50,
            Some(PLAIN),
            0.7,
        ),
        row("hand-off-p99", "hand-off, 99 %, beside Redisson's plain lock", p99, Some(PLAIN), 0.35),
        row(
            "waited-plain",
            "waited, 99 %, beside Redisson's plain lock",
            waited,
            Some(PLAIN),
            0.15,
        ),
        row("waited-fair", "waited, 99 %, beside Redisson's fair lock", waited, Some(FAIR), 1.0),
        row("waited-ideal", "waited, 99 %, beside turns in turn", ideal, None, 1.5),
        Row {
            what: "one script after a rest, 99 %, beside the hand-off of Redisson's plain lock"
                .to_owned(),
            cell: TRIP,
            bar: None,
            ..row("trip-p99", "", p99, Some(PLAIN), 1.0)
        },
    ]
}

fn commands(processes: u32, waiters: u32) -> Row {
    Row {
        name: format!("commands-{processes}x{waiters}"),
        what: format!(
            "sent by clients for each hand-off, {waiters} waiters in each of {processes}"
        ),
        group: Group::Contended(ContentionCell::Commands(processes, waiters)),
        cell: OURS,
        beside: None,
        figure: Figure::Each(COMMANDS),
        bar: Some(Bar::AtMost(f64::from(3 + processes))),
    }
}

fn crowds() -> [Row; 3] {
    let row = |name: &str, what: &str, group, figure, most| Row {
        name: name.to_owned(),
        what: what.to_owned(),
        group: Group::Contended(group),
        cell: MANY,
        beside: Some(FEW),
        figure,
        bar: Some(Bar::AtMost(most)),
    };
    let (waiters, held) = (ContentionCell::Waiters, ContentionCell::Held);
    let of_10_000 = "of a hand-off with 10,000 waiters beside 100";
    let renewal = "processor time of a renewal with 100,000 locks beside 1,000";
    [
        row("waiters-cost", &format!("processor time {of_10_000}"), waiters, COST, 1.5),
        row("waiters-time", &format!("time {of_10_000}"), waiters, TIME, 1.5),
        row("held-cost", renewal, held, COST, 1.2),
    ]
}

fn listings() -> [Row; 2] {
    let row = |name: &str, what: &str, beside, bar| Row {
        name: name.to_owned(),
        what: what.to_owned(),
        group: Group::Contended(ContentionCell::Listing),
        cell: OURS,
        beside,
        figure: list_time::TIME,
        bar,
    };
    let beside = "time to list 10,000 locks by page, beside bare commands";
    [
        row("list-ms", "ms to list 10,000 locks by page", None, Some(Bar::AtMost(50.0))),
        row("list-bare", beside, Some(BARE), None),
    ]
}

/// Without a bar. The table of the cells has what each uses and sends.
fn ways() -> Vec<Row> {
    let row = |cell: &'static str, processes: u32| Row {
        name: format!("way-{cell}"),
        what: format!(
            "`{cell}`: ms of a hand-off, 99 %, {CONTENDERS} contenders, processes: {processes}"
        ),
        group: Group::Contended(ContentionCell::Ways),
        cell,
        beside: None,
        figure: Figure::P99(HAND_OFF),
        bar: None,
    };
    let waits = LockKind::ALL.into_iter().filter(|kind| *kind != LockKind::None);
    let waits = waits.map(|kind| row(kind.as_str(), processes_of(kind)));
    std::iter::once(row(SPIN, 2)).chain(waits).collect()
}
