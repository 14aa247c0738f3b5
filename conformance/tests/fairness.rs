//! How long anybody waits under saturation, and who is overtaken. One test, so that nothing else
//! runs. What is asserted is counted in turns, not in time: a machine that does other things as
//! well stretches all of them.

use std::fmt;
use std::time::Duration;

use conformance::clock::{between, now_ns};
use conformance::protocol::{Contest, Stay, Want};
use conformance::{
    Contender, Servers, Spread, busy_until_queued, fresh_name, overlaps, overtaken, promise, row,
};
use distlock::{Guarantees, LockKind, WakeKind};

const PROCESSES: usize = 3;
const WAITERS: u32 = 16;
const ALL: usize = PROCESSES * WAITERS as usize;
const HOLD: Duration = Duration::from_millis(2);
const SATURATED_FOR: Duration = Duration::from_secs(3);
/// Where waiters poll: processes take turns of about 50 ms there, and chance says who is next, so
/// that shares even out more slowly.
const POLLED_FOR: Duration = Duration::from_secs(6);
const LEASE: Duration = Duration::from_secs(20);
const LIMIT: Duration = Duration::from_mins(1);

#[test]
fn nobody_waits_for_long_under_saturation_and_where_it_is_fair_nobody_is_overtaken() {
    let (mut unfair, mut hand_offs, mut turns) = (Vec::new(), Vec::new(), Vec::new());
    for kind in LockKind::ALL {
        let promised = promise(kind);
        if !promised.is_on_a_server() {
            continue;
        }
        let (is_shared, measured) = is_shared(kind, &promised, &mut unfair);
        if !is_shared {
            unfair.push(format!("{kind}: a process or a waiter is left out again"));
        }
        hand_offs.push((kind, measured.hand_offs.in_short(1)));
        turns.push((kind, measured.turns_p99.to_string()));
    }
    println!("{}", row("hand-off p50, p99", &hand_offs));
    println!("{}", row(&format!("p99 wait of {ALL} waiters, in turns"), &turns));
    assert!(unfair.is_empty(), "{}", unfair.join("\n"));
}

/// Whether each has its share, and the last round. The machine may keep one process from its work for much of a round,
/// which says nothing of the lock: then each of two more rounds has to be even.
fn is_shared(kind: LockKind, promised: &Guarantees, unfair: &mut Vec<String>) -> (bool, Measured) {
    let mut round = || {
        let measured = measure(kind, promised);
        println!("{kind}:\n{measured}");
        // Whatever the machine does.
        if promised.fair.is_yes() && measured.overtaken > 0 {
            unfair.push(format!("{kind}: some are overtaken\n{measured}"));
        }
        let waits = promised.wake == WakeKind::Poll || measured.turns_p99 <= 2 * ALL;
        (waits && measured.is_shared(), measured)
    };
    match round() {
        (true, measured) => (true, measured),
        _ => match round() {
            (true, _) => round(),
            again => again,
        },
    }
}

fn measure(kind: LockKind, promised: &Guarantees) -> Measured {
    let polls = promised.wake == WakeKind::Poll;
    let stays = saturate(kind, if polls { POLLED_FOR } else { SATURATED_FOR });
    assert_eq!(overlaps(&stays.concat()), 0, "{kind} lets two in");
    Measured::of(&stays, busy_until_queued(promised))
}

/// The stays of each process.
fn saturate(kind: LockKind, time: Duration) -> Vec<Vec<Stay>> {
    let servers = Servers::shared();
    let contenders: Vec<_> = (0..PROCESSES).map(|_| Contender::start(servers, kind)).collect();
    let want = Want::new(&fresh_name(), LEASE).waiting(LIMIT);
    let contest = Contest::new(want, WAITERS, u64::MAX, &servers.fresh_path("counter"));
    let end_ns = now_ns() + u64::try_from(time.as_nanos()).unwrap_or(0);
    let contest = Contest { until_ns: Some(end_ns), ..contest.holding(HOLD) };
    let begun: Vec<_> =
        contenders.iter().map(|process| process.contend(contest.clone(), LIMIT)).collect();
    let brought = begun.into_iter().map(|contest| {
        let brought = contest.wait().expect("a report");
        assert!(brought.failures.is_empty(), "{kind}: {:?}", brought.failures);
        // Afterwards there are fewer and fewer who want it.
        let is_in_time = |stay: &Stay| stay.acquired_ns < end_ns;
        brought.stays.into_iter().filter(is_in_time).collect()
    });
    brought.collect()
}

struct Measured {
    waits: Spread,
    /// From the end of one's work to the beginning of the next one's.
    hand_offs: Spread,
    /// How many entered while one waited: the 99th percentile. If all have their turn in turn, it
    /// is as many as want it.
    turns_p99: usize,
    /// Stays before which somebody entered who had not even asked when this one was in the queue.
    overtaken: usize,
    /// Stays of each process.
    shares: Vec<usize>,
    /// How often the lock went from one process to another.
    crossings: usize,
}

impl Measured {
    fn of(stays: &[Vec<Stay>], busy_until_queued: u64) -> Self {
        let of_process = |(process, stays): (usize, &Vec<Stay>)| {
            stays.iter().map(|stay| (process, *stay)).collect::<Vec<_>>()
        };
        let mut all: Vec<(usize, Stay)> = stays.iter().enumerate().flat_map(of_process).collect();
        all.sort_by_key(|(_, stay)| stay.acquired_ns);
        let hand_off =
            |pair: &[(usize, Stay)]| between(pair[0].1.believed_until_ns, pair[1].1.acquired_ns);
        let hand_offs = Spread::of(all.windows(2).map(hand_off));
        let turns = |(at, (_, stay)): (usize, &(usize, Stay))| {
            at - all[..at].partition_point(|(_, before)| before.acquired_ns < stay.asked_ns)
        };
        let mut turns: Vec<usize> = all.iter().enumerate().map(turns).collect();
        turns.sort_unstable();
        Self {
            waits: Spread::of(all.iter().map(|(_, stay)| between(stay.asked_ns, stay.acquired_ns))),
            hand_offs,
            turns_p99: turns[turns.len() * 99 / 100],
            overtaken: overtaken(all.iter().map(|(_, stay)| stay), busy_until_queued),
            shares: stays.iter().map(Vec::len).collect(),
            crossings: all.windows(2).filter(|pair| pair[0].0 != pair[1].0).count(),
        }
    }

    /// Whether no process has more than twice another's share.
    fn is_shared(&self) -> bool {
        let (least, most) = (self.shares.iter().min(), self.shares.iter().max());
        least.zip(most).is_some_and(|(least, most)| *most <= 2 * least)
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  wait:     {}; p99 {} turns of {ALL} waiters", self.waits, self.turns_p99)?;
        writeln!(f, "  hand-off: {}", self.hand_offs)?;
        let Self { shares, crossings, overtaken, .. } = self;
        write!(f, "  stays of each process: {shares:?}; changes of process: {crossings}; ")?;
        write!(f, "overtaken: {overtaken}")
    }
}
