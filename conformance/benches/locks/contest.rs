//! Contests for one lock between processes: how soon the next one has it, how long one waits, and
//! what that costs.
//!
//! The processes are those of the conformance tests: this library's contender, and the one of the
//! JVM with the real Redisson, run as a service would run it. Both hold the lock for as long, and
//! say by the same clock when they asked, entered, and were about to release.

use std::collections::BTreeMap;
use std::time::Duration;

use conformance::clock::{between, now_ns};
use conformance::protocol::{Contest as Plan, LockRequest, SectionRecord, Setup};
use conformance::{Contender, Peer, Servers, fresh_name, overlaps};
use distlock::BoxFuture;
use loadtest_measure::error::{Error, Result};
use loadtest_measure::processes::{NamedProcess, ProcessTimes};

use crate::cell::{Cell, Slice};
use crate::commands::Commands;

/// What each holds the lock for.
pub(crate) const HOLD: Duration = Duration::from_millis(2);
/// Renewed: the default of Redisson.
const LEASE: Duration = Duration::from_secs(30);
/// A wait that ends only if a waiter starves.
const WAIT: Duration = Duration::from_secs(30);
/// More rounds than any contender gets.
const ROUNDS: u64 = 1_000_000_000;
/// Before the first round.
const WARM_UP: Duration = Duration::from_secs(5);
/// What the JVM's compilers need for work that comes 400 times a second, and twice as long where
/// two share it. In the half minute after 5 s its hand-offs took three times as long as later.
const JVM_WARM_UP: Duration = Duration::from_secs(40);

/// From the call of one holder's release to the entry of the next one. Counted if that one was
/// waiting and no later contender has asked since. (Where none waits: of any.)
pub(crate) const HAND_OFF: &str = "hand-off";
/// From asking to entering.
pub(crate) const WAITED: &str = "waited";
/// From entering to the end of the work.
pub(crate) const HELD: &str = "held";
/// Entries of contenders that were waiting when the one before released.
const WAITER_NEXT: &str = "a waiter next";
/// What clients have sent.
pub(crate) const COMMANDS: &str = "commands";

/// Processes that contend only with each other.
pub(crate) struct Contest {
    contenders: Vec<Contender>,
    plan: Plan,
    processes: Vec<NamedProcess>,
    commands: Option<Commands>,
    warm_up: Duration,
}

impl Contest {
    /// Between `processes` processes of this library, with `waiters` waiters each.
    pub(crate) fn ours(servers: &Servers, setup: &Setup, (processes, waiters): (u32, u32)) -> Self {
        let start = |_| Contender::start_as(servers, setup);
        Self::of(servers, (0..processes).map(start).collect(), waiters)
    }

    /// Between as many JVMs with locks of the real Redisson.
    pub(crate) fn redisson(
        servers: &Servers,
        setup: &Setup,
        (processes, waiters): (u32, u32),
    ) -> Self {
        let start = |_| Contender::start_usual_peer(servers, Peer::Redisson4, setup);
        let contest = Self::of(servers, (0..processes).map(start).collect(), waiters);
        Self { warm_up: JVM_WARM_UP * processes, ..contest }
    }

    fn of(servers: &Servers, contenders: Vec<Contender>, waiters: u32) -> Self {
        let want = LockRequest::new(&fresh_name(), LEASE).waiting(WAIT);
        let plan = Plan::new(want, waiters, ROUNDS, &servers.fresh_path("counter"));
        let processes = contenders.iter().map(|each| ("us of clients", each.pid())).collect();
        let (plan, commands, warm_up) = (plan.holding(HOLD), None, WARM_UP);
        Self { contenders, plan, processes, commands, warm_up }
    }

    /// Makes the contenders ask again at once instead of waiting.
    pub(crate) fn spinning(mut self) -> Self {
        self.plan.request.wait_ms = 0;
        self
    }

    /// Adds what these servers use.
    pub(crate) fn on(mut self, servers: &[NamedProcess]) -> Self {
        self.processes.extend(servers);
        self
    }

    /// Adds a count of what clients send.
    pub(crate) fn counting(self, commands: Commands) -> Self {
        Self { commands: Some(commands), ..self }
    }

    /// Lets all of them contend for that long. Contenders that wait then are still served, so that
    /// the longest waits are not left out.
    fn contend(&self, length: Duration) -> Result<Slice> {
        let end_ns = now_ns() + u64::try_from(length.as_nanos()).unwrap_or(0);
        let plan = Plan { until_ns: Some(end_ns), ..self.plan.clone() };
        let begin = |each: &Contender| each.contend(plan.clone(), length + WAIT);
        let pending: Vec<_> = self.contenders.iter().map(begin).collect();
        let mut records = Vec::new();
        for pending in pending {
            let brought = pending.wait().map_err(|failure| wrong(&format!("{failure:?}")))?;
            if plan.request.wait_ms > 0 && !brought.failures.is_empty() {
                return Err(wrong(&format!("{:?}", brought.failures)));
            }
            records.extend(brought.records);
        }
        match overlaps(&records) {
            0 => Ok(slice(records, (end_ns, length), plan.request.wait_ms > 0)),
            overlaps => Err(wrong(&format!("{overlaps} times two held the lock"))),
        }
    }
}

impl Cell for Contest {
    fn slice(&mut self, length: Duration) -> BoxFuture<'_, Result<Slice>> {
        Box::pin(async move {
            if let Some(commands) = &mut self.commands {
                commands.begin()?;
            }
            let before = ProcessTimes::of(&self.processes);
            let mut slice = self.contend(length)?;
            slice.used.extend(ProcessTimes::of(&self.processes).for_each(&before, 1.0));
            if let Some(commands) = &mut self.commands {
                slice.used.insert(COMMANDS, commands.end()?);
            }
            Ok(slice)
        })
    }

    fn warm_up(&self) -> Duration {
        self.warm_up
    }
}

fn slice(
    mut records: Vec<SectionRecord>,
    (end_ns, length): (u64, Duration),
    is_waited: bool,
) -> Slice {
    records.sort_unstable_by_key(|record| record.acquired_ns);
    // Afterwards there are fewer and fewer contenders.
    let crowded = records.partition_point(|record| record.acquired_ns < end_ns);
    let pairs = records[..crowded].windows(2).map(|pair| (&pair[0], &pair[1]));
    let handed_on =
        pairs.filter(|(before, next)| !is_waited || next.asked_ns < before.valid_until_ns);
    let hand_off = |(before, next): (&SectionRecord, &SectionRecord)| {
        ms(before.valid_until_ns, next.acquired_ns)
    };
    let hand_offs: Vec<_> = handed_on.map(hand_off).collect();
    #[allow(clippy::cast_precision_loss)]
    let used = BTreeMap::from([(WAITER_NEXT, hand_offs.len() as f64)]);
    let times_ms = BTreeMap::from([
        (HAND_OFF, hand_offs),
        (WAITED, records.iter().map(|record| ms(record.asked_ns, record.acquired_ns)).collect()),
        (
            HELD,
            records.iter().map(|record| ms(record.acquired_ns, record.valid_until_ns)).collect(),
        ),
    ]);
    #[allow(clippy::cast_precision_loss)]
    let count = records.len() as f64;
    // With those that were served afterwards.
    let last_ns = records.iter().map(|record| record.valid_until_ns).max().unwrap_or(end_ns);
    let seconds = (length + between(end_ns, last_ns.max(end_ns))).as_secs_f64();
    Slice { count, seconds, used, times_ms }
}

fn ms(from_ns: u64, to_ns: u64) -> f64 {
    between(from_ns, to_ns).as_secs_f64() * 1000.0
}

fn wrong(what: &str) -> Error {
    Error::Setup(format!("a contest: {what}"))
}
