//! What is measured side by side.

use std::fmt;
use std::time::Duration;

use conformance::Servers;
use distlock::LockKind;
use loadtest_measure::error::Result;
use tokio::runtime::Runtime;

use crate::bare::BareCommands;
use crate::benchmark::Benchmark;
use crate::cell::{Cell, broken};
use crate::contended::ContentionCell;
use crate::jvm::{Api, Redisson};
use crate::local::MutexMap;
use crate::releases::ReleasePackets;
use crate::throughput::{UncontendedLocks, WAIT, name};

/// The bare pair of commands.
pub(crate) const BARE: &str = "bare";
/// `lua-release` by the script where the server has a command.
pub(crate) const BY_SCRIPT: &str = "by-script";
/// redis-benchmark.
pub(crate) const BENCHMARK: &str = "redis-benchmark";
/// This library.
pub(crate) const OURS: &str = "ours";
/// The real Redisson.
pub(crate) const JVM: &str = "jvm";
/// A sharded map of mutexes.
pub(crate) const USUAL: &str = "usual";
/// The process's queue with a bound on each wait.
pub(crate) const BOUNDED: &str = "bounded";

/// A round of a group without a bar (`kinds`, `ways`) is shorter by this factor.
pub(crate) const LESS: u32 = 5;

/// Cells that are measured side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    /// Locks of this library and the bare pair, by the number of tasks, each with its own key.
    Pair(usize),
    /// `redisson` and the real one, the same.
    Peer(Api, usize),
    /// `local` and what others write.
    Local {
        /// How many.
        tasks: usize,
        /// Whether they want one key, or have one each.
        same: bool,
    },
    /// The pair of `lua-release`, many in a packet.
    Packets,
    /// Every kind, by the number of tasks, each with its own key.
    Kinds(usize),
    /// Locks with many contenders, or with many holds.
    Contended(ContentionCell),
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pair(tasks) => write!(f, "pair-{tasks}"),
            Self::Peer(_, tasks) => write!(f, "peer-{tasks}"),
            Self::Local { tasks, same: false } => write!(f, "local-own-{tasks}"),
            Self::Local { tasks, same: true } => write!(f, "local-same-{tasks}"),
            Self::Packets => f.write_str("packets"),
            Self::Kinds(tasks) => write!(f, "kinds-{tasks}"),
            Self::Contended(contended) => contended.fmt(f),
        }
    }
}

/// Where cells are made.
pub(crate) struct Stage {
    pub(crate) servers: Servers,
    pub(crate) runtime: Runtime,
    /// Whether nothing is measured, so that few will do where many are wanted.
    is_smoke: bool,
}

impl Stage {
    pub(crate) fn new(is_smoke: bool) -> Result<Self> {
        let runtime = Runtime::new().map_err(broken("a runtime"))?;
        Ok(Self { servers: Servers::start(), runtime, is_smoke })
    }

    /// Returns `count`, or a hundredth of it in a smoke run.
    pub(crate) fn many(&self, count: usize) -> usize {
        if self.is_smoke { count.div_ceil(100) } else { count }
    }

    /// Locks of that kind, a key for each task.
    fn taking(&self, kind: LockKind, tasks: usize) -> Result<Box<dyn Cell>> {
        let names = (0..tasks).map(|task| name(kind.as_str(), task)).collect();
        Ok(Box::new(UncontendedLocks::of(self, kind, names)?))
    }
}

impl Group {
    /// How long each of its cells works in a round: less where there is no bar to meet.
    pub(crate) fn seconds(self, of_a_bar: Duration) -> Duration {
        match self {
            Self::Kinds(_) | Self::Contended(ContentionCell::Ways) => of_a_bar / LESS,
            _ => of_a_bar,
        }
    }

    /// Whether cells of the real Redisson are among its own.
    pub(crate) fn is_beside_redisson(self) -> bool {
        matches!(self, Self::Peer(..) | Self::Contended(ContentionCell::Contest(_)))
    }

    /// The longest slice of a cell. At the end of a contest no task asks again, so the longest
    /// waiters are served earlier than they would be: it may not end often.
    pub(crate) fn slice(self) -> Duration {
        match self {
            Self::Contended(ContentionCell::Contest(_)) => Duration::from_secs(5),
            Self::Contended(ContentionCell::Ways) => Duration::from_secs(2),
            _ => Duration::from_millis(500),
        }
    }

    /// Makes one of its cells, and starts what it needs.
    pub(crate) fn cell(self, cell: &'static str, stage: &Stage) -> Result<Box<dyn Cell>> {
        let servers = &stage.servers;
        Ok(match (self, cell) {
            (Self::Pair(tasks), BARE) => {
                Box::new(stage.runtime.block_on(BareCommands::connect(servers, tasks))?)
            }
            (Self::Pair(tasks), BY_SCRIPT) => {
                let names = (0..tasks).map(|task| name(BY_SCRIPT, task)).collect();
                Box::new(UncontendedLocks::by_script(stage, names)?)
            }
            (Self::Packets, cell) => Box::new(ReleasePackets::connect(servers, cell != BY_SCRIPT)?),
            (Self::Pair(tasks), BENCHMARK) => Box::new(Benchmark::of(servers, tasks)),
            (Self::Peer(api, tasks), JVM) => Box::new(Redisson::start(servers, api, tasks)),
            (Self::Peer(_, tasks), _) => stage.taking(LockKind::Redisson, tasks)?,
            (Self::Local { tasks, same }, cell) => {
                let names = (0..tasks).map(|task| name("local", if same { 0 } else { task }));
                let names = names.collect();
                match cell {
                    USUAL => Box::new(MutexMap::of(names, None)),
                    BOUNDED => Box::new(MutexMap::of(names, Some(WAIT))),
                    _ => Box::new(UncontendedLocks::of(stage, LockKind::Local, names)?),
                }
            }
            (Self::Contended(contended), cell) => contended.cell(cell, stage)?,
            (Self::Pair(tasks) | Self::Kinds(tasks), kind) => {
                let kind = kind.parse().map_err(broken("a kind"))?;
                stage.taking(kind, tasks)?
            }
        })
    }
}
