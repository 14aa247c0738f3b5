//! Contests for one lock between processes: how soon the next one has it, how long one waits, and
//! what that costs.
//!
//! The processes are those of the conformance tests: this library's contender, and the one of the
//! JVM with the real Redisson, run as a service would run it. Both hold the lock for as long, and
//! say by the same clock when they asked, entered, and were about to release.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use conformance::clock::{between, now_ns};
use conformance::protocol::{Contest as Plan, Setup, Stay, Want};
use conformance::{Contender, Peer, Servers, fresh_name, overlaps};
use loadtest::bench::processes::{Named, Times};
use loadtest::error::{Error, Result};

use crate::cell::{Cell, Slice};
use crate::commands::Commands;

/// What each holds the lock for.
pub(crate) const HOLD: Duration = Duration::from_millis(2);
/// Renewed: what Redisson has if nobody says otherwise.
const LEASE: Duration = Duration::from_secs(30);
/// A wait that is over only if somebody starves.
const WAIT: Duration = Duration::from_secs(30);
/// More than anybody gets.
const ROUNDS: u64 = 1_000_000_000;
/// Before the first round.
const WARM_UP: Duration = Duration::from_secs(5);
/// What the JVM's compilers need for work that comes 400 times a second, and twice as long where
/// two share it: in the half minute after 5 s its hand-offs took three times as long as later.
const JVM_WARM_UP: Duration = Duration::from_secs(40);

/// From the end of one's work, when the release is called, to the entry of the next one, if that is
/// one who was waiting, and nobody who has asked since. (Where nobody waits: of any.)
pub(crate) const HAND_OFF: &str = "hand-off";
/// From asking to entering.
pub(crate) const WAITED: &str = "waited";
/// From entering to the end of the work.
pub(crate) const HELD: &str = "held";
/// How many entries were of one who was waiting when the one before released.
const WAITER_NEXT: &str = "a waiter next";
/// What clients have sent.
pub(crate) const COMMANDS: &str = "commands";

/// Processes that contend with each other, and with nobody else.
pub(crate) struct Contest {
    contenders: Vec<Contender>,
    plan: Plan,
    processes: Vec<Named>,
    commands: Option<Commands>,
    warm_up: Duration,
}

impl Contest {
    /// Between so many processes of this library, with so many waiters each.
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
        let want = Want::new(&fresh_name(), LEASE).waiting(WAIT);
        let plan = Plan::new(want, waiters, ROUNDS, &servers.fresh_path("counter"));
        let processes = contenders.iter().map(|each| ("us of clients", each.pid())).collect();
        let (plan, commands, warm_up) = (plan.holding(HOLD), None, WARM_UP);
        Self { contenders, plan, processes, commands, warm_up }
    }

    /// The same among contenders who do not wait: they ask again at once.
    pub(crate) fn spinning(mut self) -> Self {
        self.plan.want.wait_ms = 0;
        self
    }

    /// The same with what these servers use.
    pub(crate) fn on(mut self, servers: &[Named]) -> Self {
        self.processes.extend(servers);
        self
    }

    /// The same, counting what clients send.
    pub(crate) fn counting(self, commands: Commands) -> Self {
        Self { commands: Some(commands), ..self }
    }

    /// Lets all of them contend for that long. Whoever waits then is still served, so that the
    /// longest waits are not left out.
    fn contend(&self, length: Duration) -> Result<Slice> {
        let end_ns = now_ns() + u64::try_from(length.as_nanos()).unwrap_or(0);
        let plan = Plan { until_ns: Some(end_ns), ..self.plan.clone() };
        let begin = |each: &Contender| each.contend(plan.clone(), length + WAIT);
        let pending: Vec<_> = self.contenders.iter().map(begin).collect();
        let mut stays = Vec::new();
        for pending in pending {
            let brought = pending.wait().map_err(|failure| wrong(&format!("{failure:?}")))?;
            if plan.want.wait_ms > 0 && !brought.failures.is_empty() {
                return Err(wrong(&format!("{:?}", brought.failures)));
            }
            stays.extend(brought.stays);
        }
        match overlaps(&stays) {
            0 => Ok(slice(stays, (end_ns, length), plan.want.wait_ms > 0)),
            overlaps => Err(wrong(&format!("{overlaps} times two held the lock"))),
        }
    }
}

#[async_trait]
impl Cell for Contest {
    async fn slice(&mut self, length: Duration) -> Result<Slice> {
        if let Some(commands) = &mut self.commands {
            commands.begin()?;
        }
        let before = Times::of(&self.processes);
        let mut slice = self.contend(length)?;
        slice.used.extend(Times::of(&self.processes).for_each(&before, 1.0));
        if let Some(commands) = &mut self.commands {
            slice.used.insert(COMMANDS, commands.end()?);
        }
        Ok(slice)
    }

    fn warm_up(&self) -> Duration {
        self.warm_up
    }
}

fn slice(mut stays: Vec<Stay>, (end_ns, length): (u64, Duration), is_waited: bool) -> Slice {
    stays.sort_unstable_by_key(|stay| stay.acquired_ns);
    // Afterwards there are fewer and fewer who want it.
    let crowded = stays.partition_point(|stay| stay.acquired_ns < end_ns);
    let pairs = stays[..crowded].windows(2).map(|pair| (&pair[0], &pair[1]));
    let handed_on =
        pairs.filter(|(before, next)| !is_waited || next.asked_ns < before.believed_until_ns);
    let hand_off = |(before, next): (&Stay, &Stay)| ms(before.believed_until_ns, next.acquired_ns);
    let hand_offs: Vec<_> = handed_on.map(hand_off).collect();
    #[allow(clippy::cast_precision_loss)]
    let used = BTreeMap::from([(WAITER_NEXT, hand_offs.len() as f64)]);
    let times_ms = BTreeMap::from([
        (HAND_OFF, hand_offs),
        (WAITED, stays.iter().map(|stay| ms(stay.asked_ns, stay.acquired_ns)).collect()),
        (HELD, stays.iter().map(|stay| ms(stay.acquired_ns, stay.believed_until_ns)).collect()),
    ]);
    #[allow(clippy::cast_precision_loss)]
    let count = stays.len() as f64;
    // With those who were served afterwards.
    let last_ns = stays.iter().map(|stay| stay.believed_until_ns).max().unwrap_or(end_ns);
    let seconds = (length + between(end_ns, last_ns.max(end_ns))).as_secs_f64();
    Slice { count, seconds, used, times_ms }
}

fn ms(from_ns: u64, to_ns: u64) -> f64 {
    between(from_ns, to_ns).as_secs_f64() * 1000.0
}

fn wrong(what: &str) -> Error {
    Error::Setup(format!("a contest: {what}"))
}
