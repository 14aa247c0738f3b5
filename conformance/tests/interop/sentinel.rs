//! This library and Redisson find one Redis by its sentinels, and its master dies meanwhile.
//!
//! A number that nothing else guards is added up by both sides: before the failover, through it and
//! after it. Before and after no increment is lost. Redis replicates later than it answers, so the
//! failover may grant a lock that no replica has again, beside its holder. Redisson waits for the
//! replicas that it sees, unless it is told otherwise. This library does if it is asked for that.
//! Then nothing is lost at all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use conformance::clock::{between, now_ns};
use conformance::counter::number_in;
use conformance::protocol::{Contest, ContestResult, LockRequest, SectionRecord, Setup};
use conformance::{Addresses, Contender, Servers, overlaps};
use testbed::{RedisSentinel, SentinelOptions};

use crate::Check;
use crate::contention::judge_sections;
use crate::scene::{LONG_WAIT, Scene, Side, setup};

pub(crate) const CHECKS: &[Check] = &[
    (
        "a_failover_by_sentinels_loses_no_increment_before_it_and_after_it",
        a_failover_by_sentinels_loses_no_increment_before_it_and_after_it,
    ),
    (
        "a_failover_by_sentinels_loses_no_increment_of_locks_that_all_replicas_confirm",
        a_failover_by_sentinels_loses_no_increment_of_locks_that_all_replicas_confirm,
    ),
];

/// Longer than a process stands still.
const LEASE: Duration = Duration::from_secs(5);
/// How soon each side has to enter again. Each release that the failover undoes costs a lease, and
/// Redisson repeats a command after up to two seconds.
const GOES_ON_WITHIN: Duration = Duration::from_secs(45);
const REPLICAS: u32 = 2;
const TASKS: u32 = 3;
/// Of each task, before and after the failover.
const ROUNDS: u64 = 100;
/// Of each task in a part of the contest that goes on through the failover. A thread of Redisson
/// whose release was undone enters again as the holder, so threads are replaced.
const ROUNDS_OF_A_PART: u64 = 10;
/// How many sections are awaited before the master is killed.
const BEFORE_THE_KILL: usize = 60;
/// How often the sentinels may replace a master that stood still, against the plan.
const TRIES: usize = 3;

fn a_failover_by_sentinels_loses_no_increment_before_it_and_after_it(scene: &Scene) {
    judge(scene, Confirmation::ByNone);
}

fn a_failover_by_sentinels_loses_no_increment_of_locks_that_all_replicas_confirm(scene: &Scene) {
    judge(scene, Confirmation::ByAllReplicas);
}

/// Whether a lock counts only when the replicas have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Confirmation {
    ByNone,
    ByAllReplicas,
}

fn judge(scene: &Scene, confirmed: Confirmation) {
    let replaced = (0..TRIES).find_map(|_| Group::start(scene, confirmed).judge().ok());
    replaced.expect("the sentinels replaced a master that was well, again and again");
}

/// The sentinels replaced the master at another time than that of the test.
#[derive(Debug)]
struct ReplacedUnasked;

struct Group {
    sentinel: RedisSentinel,
    sides: [Side; 2],
    confirmed: Confirmation,
    want: LockRequest,
}

/// A contest that is under way: what each side has brought, and whether it is to end.
#[derive(Default)]
struct Progress {
    brought: [Mutex<ContestResult>; 2],
    ends: AtomicBool,
}

impl Group {
    fn start(scene: &Scene, confirmed: Confirmation) -> Self {
        let servers = Servers::shared();
        let sentinel = servers.bed().redis_sentinel(SentinelOptions::default());
        let sentinel = sentinel.expect("Redis is installed");
        // A master that stands still for a moment is not replaced.
        let set = ["SENTINEL", "SET", "shop", "down-after-milliseconds", "2500"];
        for watches in sentinel.sentinels() {
            watches.command(&set).expect("a setting");
        }
        let of = |replicas| {
            let redis = Some(sentinel.url());
            let addresses = Addresses { redis, redis_replicas: replicas, ..Addresses::default() };
            Setup { addresses, ..setup("redisson") }
        };
        let asked = (confirmed == Confirmation::ByAllReplicas).then_some(REPLICAS);
        let (ours, theirs) = (of(asked), of(Some(asked.unwrap_or_default())));
        let ours = Contender::start_as(servers, &ours);
        let theirs = Contender::start_peer(servers, scene.peer, &theirs, LEASE);
        let sides = [
            Side { name: "distlock", contender: ours },
            Side { name: scene.peer.name(), contender: theirs },
        ];
        let want = LockRequest::new(&scene.fresh_name(), LEASE).waiting(LONG_WAIT);
        Self { sentinel, sides, confirmed, want }
    }

    fn judge(&self) -> Result<(), ReplacedUnasked> {
        self.lose_nothing_while_master_is(0)?;
        let master = self.go_on_through_a_failover()?;
        self.lose_nothing_while_master_is(master)
    }

    /// Each side takes the lock that often.
    fn lose_nothing_while_master_is(&self, master: usize) -> Result<(), ReplacedUnasked> {
        let contest = self.contest(ROUNDS);
        let begin = |side: &Side| side.contender.contend(contest.clone(), LONG_WAIT * 2);
        let pending = self.sides.each_ref().map(begin);
        let brought = pending.map(|pending| pending.wait().expect("a contest"));
        self.expect_master(master)?;
        let all = 2 * u64::from(TASKS) * ROUNDS;
        judge_sections(&self.sides.each_ref(), &brought, all);
        assert_eq!(number_in(&contest.counter), all, "increments were lost");
        Ok(())
    }

    /// Both sides take the lock again and again while its master dies, a replica takes over, and
    /// the old master comes back. Returns the new master.
    fn go_on_through_a_failover(&self) -> Result<usize, ReplacedUnasked> {
        let (contest, progress) = (self.contest(ROUNDS_OF_A_PART), Progress::default());
        let (killed_ns, master) = scope(|scope| {
            for (side, brought) in self.sides.iter().zip(&progress.brought) {
                let (contest, ends) = (&contest, &progress.ends);
                scope.spawn(move || contend(side, contest, brought, ends));
            }
            let _ended = EndsAtDrop(&progress.ends);
            self.fail_over(&progress)
        })?;
        let brought = progress.brought.map(|each| each.into_inner().expect("no panic"));
        self.judge_failover(&brought, number_in(&contest.counter), killed_ns);
        Ok(master)
    }

    /// When the master was killed, and which replica took over.
    fn fail_over(&self, progress: &Progress) -> Result<(u64, usize), ReplacedUnasked> {
        let nodes = self.sentinel.nodes();
        progress.each_enters(&self.sides, 0, BEFORE_THE_KILL);
        self.expect_master(0)?;
        let killed_ns = now_ns();
        nodes[0].kill().expect("it can be killed");
        let (master, _) = self.sentinel.await_promotion(0).expect("a failover");
        // Those that wait for every replica have to wait for the old master too.
        let alone = if self.confirmed == Confirmation::ByNone { &self.sides[..] } else { &[] };
        progress.each_enters(alone, now_ns(), 1);
        nodes[0].restart().expect("it can be restarted");
        self.sentinel.await_demotion(0).expect("it is a replica");
        progress.each_enters(&self.sides, now_ns(), 1);
        self.expect_master(master)?;
        Ok((killed_ns, master))
    }

    fn judge_failover(&self, brought: &[ContestResult; 2], counted: u64, killed_ns: u64) {
        let written = |each: &&SectionRecord| each.wrote;
        let records: Vec<SectionRecord> =
            brought.iter().flat_map(|each| &each.records).filter(written).copied().collect();
        let before: Vec<SectionRecord> =
            records.iter().filter(|each| each.released_ns < killed_ns).copied().collect();
        let lost = (records.len() as u64).saturating_sub(counted);
        let overlapping = overlaps(&records);
        println!(
            "{} and {}, confirmed {:?}: {} sections through a failover, {overlapping} at the same \
             time, {lost} increments lost",
            self.sides[0],
            self.sides[1],
            self.confirmed,
            records.len()
        );
        for (side, brought) in self.sides.iter().zip(brought) {
            println!("  {side:<10}  longest pause {:?}, {:?}", pause(brought), brought.failures);
        }
        assert_eq!(overlaps(&before), 0, "before the failover");
        assert!(lost <= overlapping as u64, "{lost} lost increments of {overlapping} overlaps");
        if self.confirmed == Confirmation::ByAllReplicas {
            assert_eq!((overlapping, lost), (0, 0), "all replicas had the locks");
        }
    }

    fn contest(&self, rounds: u64) -> Contest {
        let counter = Servers::shared().fresh_path("counter");
        Contest::new(self.want.clone(), TASKS, rounds, &counter)
    }

    fn expect_master(&self, node: usize) -> Result<(), ReplacedUnasked> {
        if self.sentinel.master() == Some(node) { Ok(()) } else { Err(ReplacedUnasked) }
    }
}

impl Progress {
    /// Waits until each of these sides has begun that many sections since then.
    fn each_enters(&self, sides: &[Side], since_ns: u64, sections: usize) {
        let begun = Instant::now();
        for (side, brought) in sides.iter().zip(&self.brought) {
            let has_entered = || {
                let brought = brought.lock().unwrap_or_else(PoisonError::into_inner);
                let entered = brought.records.iter().filter(|each| each.acquired_ns > since_ns);
                entered.count() >= sections
            };
            while !has_entered() {
                let waited = begun.elapsed();
                assert!(waited < GOES_ON_WITHIN, "{side} does not enter within {waited:?}");
                sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Ends a contest, also when the test fails meanwhile.
struct EndsAtDrop<'a>(&'a AtomicBool);

impl Drop for EndsAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Contends part by part, until it is to end.
fn contend(side: &Side, contest: &Contest, brought: &Mutex<ContestResult>, ends: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        let part = side.contender.contend(contest.clone(), LONG_WAIT * 2).wait();
        let part = part.expect("a contest");
        if part.records.is_empty() {
            sleep(Duration::from_millis(20));
        }
        let mut all = brought.lock().unwrap_or_else(PoisonError::into_inner);
        all.records.extend(part.records);
        for (code, count) in part.failures {
            *all.failures.entry(code).or_default() += count;
        }
    }
}

/// The longest time between two sections of a side.
fn pause(brought: &ContestResult) -> Duration {
    let mut starts: Vec<u64> = brought.records.iter().map(|each| each.acquired_ns).collect();
    starts.sort_unstable();
    starts.windows(2).map(|two| between(two[0], two[1])).max().unwrap_or_default()
}
