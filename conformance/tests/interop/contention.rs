//! Many tasks of four processes, two of each side, want the same few locks. What judges them is
//! shared with the contest of all languages.

use std::env;
use std::time::{Duration, Instant};

use conformance::counter::number_in;
use conformance::protocol::{Contest, ContestResult, SectionRecord};
use conformance::{Servers, overlaps};

use crate::Check;
use crate::scene::{LONG_WAIT, Scene, Side};

pub(crate) const CHECKS: &[Check] = &[(
    "two_processes_of_each_side_lose_no_increment_and_none_starves",
    two_processes_of_each_side_lose_no_increment_and_none_starves,
)];

/// How often the lock is taken, unless the environment says otherwise.
const REDISSON: u64 = 100_000;
const CURATOR: u64 = 5_000;
const CLIENT: u64 = 20_000;
/// Locks wanted at once, each beside a counter of its own. A contest spends its time on the way
/// from one process to the next, and these ways can be taken at the same time.
const LOCKS: usize = 8;
const PROCESSES: u64 = 4;
/// For each lock in each process.
const TASKS: u32 = 2;
/// How long it may take at most.
const LIMIT: Duration = Duration::from_mins(30);

fn two_processes_of_each_side_lose_no_increment_and_none_starves(scene: &Scene) {
    let [ours, theirs] = scene.more();
    let sides = [&scene.ours, &scene.theirs, &ours, &theirs];
    let rounds = acquisitions(scene).div_ceil(LOCKS as u64 * PROCESSES * u64::from(TASKS));
    let contests: Vec<Contest> = (0..LOCKS)
        .map(|_| {
            let want = scene.want_fresh().waiting(LONG_WAIT);
            Contest::new(want, TASKS, rounds, &Servers::shared().fresh_path("counter"))
        })
        .collect();

    let begun = Instant::now();
    let contend =
        |contest: &Contest| sides.map(|side| side.contender.contend(contest.clone(), LIMIT));
    let pending: Vec<_> = contests.iter().map(contend).collect();
    let brought: Vec<Vec<ContestResult>> = pending
        .into_iter()
        .map(|pending| pending.map(|pending| pending.wait().expect("a contest")).into())
        .collect();
    let took = begun.elapsed().as_secs_f64();

    let all = rounds * PROCESSES * u64::from(TASKS);
    println!("{}: {} acquisitions in {took:.1} s", scene.peer.name(), all * LOCKS as u64);
    for (contest, brought) in contests.iter().zip(&brought) {
        judge_sections(&sides, brought, all);
        assert_eq!(number_in(&contest.counter), all, "increments were lost");
    }
    judge_shares(&sides, &brought);
}

/// Every round was entered, and no two of them at the same time.
pub(crate) fn judge_sections(sides: &[&Side], brought: &[ContestResult], all: u64) {
    for (side, brought) in sides.iter().zip(brought) {
        assert!(brought.failures.is_empty(), "{side}: {:?}", brought.failures);
    }
    let records: Vec<SectionRecord> =
        brought.iter().flat_map(|each| &each.records).copied().collect();
    assert_eq!(records.len() as u64, all);
    assert!(records.iter().all(|record| record.wrote), "a lock was lost");
    assert_eq!(overlaps(&records), 0);
}

/// No process starves: while all of them were there each had a tenth of an equal share or more.
pub(crate) fn judge_shares(sides: &[&Side], brought: &[Vec<ContestResult>]) {
    let mut entered = vec![0; sides.len()];
    let mut longest = vec![Duration::ZERO; sides.len()];
    for brought in brought {
        for (process, (share, wait)) in shares(brought).into_iter().enumerate() {
            entered[process] += share;
            longest[process] = longest[process].max(wait);
        }
    }
    let equal = entered.iter().sum::<usize>() / sides.len();
    for (side, (entered, longest)) in sides.iter().zip(entered.iter().zip(longest)) {
        println!("  {side:<10}  {entered:>6} while all were there, longest wait {longest:?}");
    }
    for (side, entered) in sides.iter().zip(entered) {
        assert!(entered * 10 >= equal, "{side} entered {entered} times, {equal} would be equal");
    }
}

/// How often each process entered until the first of them had done all its rounds, and its longest
/// wait.
fn shares(brought: &[ContestResult]) -> Vec<(usize, Duration)> {
    let end =
        |brought: &ContestResult| brought.records.iter().map(|record| record.released_ns).max();
    let first_end = brought.iter().filter_map(end).min().expect("a task entered");
    let share = |brought: &ContestResult| {
        let wait =
            |record: &SectionRecord| Duration::from_nanos(record.acquired_ns - record.asked_ns);
        let longest = brought.records.iter().map(wait).max().unwrap_or_default();
        let entered = brought.records.iter().filter(|record| record.acquired_ns <= first_end);
        (entered.count(), longest)
    };
    brought.iter().map(share).collect()
}

fn acquisitions(scene: &Scene) -> u64 {
    let (variable, usual) = if scene.is_curator() {
        ("INTEROP_CURATOR", CURATOR)
    } else if scene.peer.is_client() {
        ("INTEROP_CLIENT", CLIENT)
    } else {
        ("INTEROP_REDISSON", REDISSON)
    };
    match env::var(variable) {
        Ok(told) => told.parse().unwrap_or_else(|error| panic!("{variable}: {error}")),
        Err(_) => usual,
    }
}
