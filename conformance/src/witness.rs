//! What a busy machine adds to measured times, and times that are judged without that.
//!
//! A bound of milliseconds says something of the library only if its process was run when it had
//! something to do. The kernel counts for each thread how long it was ready and was not run. It
//! also counts the page faults that waited for the disk. A [`Witness`] notes these counts of some
//! processes all the time; a [`Sample`] is a measured time with what was added to it. Where some
//! are late, [`judge`] leaves out those to which much was added, whatever they measured. If these
//! are most of them, nothing is judged, and that is a failure too. On a machine with processors and
//! memory to spare, or without the kernel's counts, all count.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::clock::{between, now_ns};
use crate::driver::Contender;
use crate::spread::Spread;

/// Between two snapshots.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(5);
/// A sample counts if no more than this part of the bound was added to it.
const MAX_DELAY_DIVISOR: u32 = 5;
/// The least part of the samples that has to count.
const MIN_COUNTED_DIVISOR: usize = 2;

/// A measured time.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// How long it was.
    pub took: Duration,
    /// What kept the process from running meanwhile, at most.
    pub kept: SchedulingDelay,
}

/// What kept the threads of a process from running.
#[derive(Debug, Clone, Copy, Default)]
pub struct SchedulingDelay {
    /// For how long they were ready and were not run.
    pub starved: Duration,
    /// How many pages they had to wait for.
    pub paged_in: u64,
}

impl SchedulingDelay {
    fn and(self, other: Self) -> Self {
        Self { starved: self.starved + other.starved, paged_in: self.paged_in + other.paged_in }
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            starved: self.starved.saturating_sub(earlier.starved),
            paged_in: self.paged_in.saturating_sub(earlier.paged_in),
        }
    }

    /// Whether what was measured within that bound says something of the process.
    pub fn is_little(self, bound: Duration) -> bool {
        self.starved <= bound / MAX_DELAY_DIVISOR && self.paged_in == 0
    }
}

/// Samples the scheduling delays of some processes until it is dropped.
pub struct Witness {
    seen: Arc<Mutex<Vec<DelaySnapshot>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What has kept each process so far.
struct DelaySnapshot {
    at_ns: u64,
    kept: BTreeMap<u32, SchedulingDelay>,
}

impl Witness {
    /// Begins to sample those.
    pub fn of<'a>(contenders: impl IntoIterator<Item = &'a Contender>) -> Self {
        let pids: Vec<u32> = contenders.into_iter().map(Contender::pid).collect();
        let seen = Arc::new(Mutex::new(vec![look(&pids)]));
        let stop = Arc::<AtomicBool>::default();
        let thread = thread::spawn({
            let (seen, stop) = (Arc::clone(&seen), Arc::clone(&stop));
            move || {
                while !stop.load(Ordering::Relaxed) {
                    thread::sleep(SAMPLE_INTERVAL);
                    lock(&seen).push(look(&pids));
                }
            }
        });
        Self { seen, stop, thread: Some(thread) }
    }

    /// The time from one instant to another, of that process.
    pub fn sample(&self, contender: &Contender, from_ns: u64, to_ns: u64) -> Sample {
        self.sample_of(|pid| pid == contender.pid(), from_ns, to_ns)
    }

    /// Measures something that all of the processes take part in: their delays are added up.
    pub fn sample_of_all(&self, from_ns: u64, to_ns: u64) -> Sample {
        self.sample_of(|_| true, from_ns, to_ns)
    }

    fn sample_of(&self, counts: impl Fn(u32) -> bool, from_ns: u64, to_ns: u64) -> Sample {
        // The last snapshot before and the first one after it.
        while lock(&self.seen).last().is_some_and(|look| look.at_ns <= to_ns) {
            thread::sleep(SAMPLE_INTERVAL);
        }
        let seen = lock(&self.seen);
        let before = seen.partition_point(|look| look.at_ns <= from_ns).saturating_sub(1);
        let after = seen.partition_point(|look| look.at_ns <= to_ns).min(seen.len() - 1);
        let kept = |at: usize| {
            let counted = seen[at].kept.iter().filter(|(pid, _)| counts(**pid));
            counted.fold(SchedulingDelay::default(), |sum, (_, kept)| sum.and(*kept))
        };
        Sample { took: between(from_ns, to_ns), kept: kept(after).since(kept(before)) }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has panicked, and said so.
            let _panicked = thread.join();
        }
    }
}

fn lock(seen: &Mutex<Vec<DelaySnapshot>>) -> MutexGuard<'_, Vec<DelaySnapshot>> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn look(pids: &[u32]) -> DelaySnapshot {
    DelaySnapshot { at_ns: now_ns(), kept: pids.iter().map(|pid| (*pid, kept(*pid))).collect() }
}

/// The sums of all threads; nothing of a process that has ended.
fn kept(pid: u32) -> SchedulingDelay {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return SchedulingDelay::default();
    };
    threads.flatten().fold(SchedulingDelay::default(), |sum, thread| {
        let starved = starved(&thread.path()).unwrap_or_default();
        sum.and(SchedulingDelay { starved, paged_in: paged_in(&thread.path()).unwrap_or_default() })
    })
}

/// The second number of `schedstat`.
fn starved(thread: &Path) -> Option<Duration> {
    let text = fs::read_to_string(thread.join("schedstat")).ok()?;
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// The major faults in `stat`, the tenth number after the name in brackets.
fn paged_in(thread: &Path) -> Option<u64> {
    let text = fs::read_to_string(thread.join("stat")).ok()?;
    text.rsplit_once(')')?.1.split_whitespace().nth(9)?.parse().ok()
}

/// Why times do not show what they should show; a sentence each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    /// Too few of them count. They may be measured again.
    #[error("{0}: the machine is too busy for a verdict")]
    TooBusy(String),
    /// What should be prompt is late.
    #[error("{0}")]
    Late(String),
}

/// The times that count, if their 99th percentile is within the bound. If that of all is, they all
/// count: what was in time was in time whatever else the machine did.
///
/// # Errors
/// Too few count, or they are late.
pub fn judge(samples: &[Sample], bound: Duration) -> Result<Spread, Unproven> {
    if !samples.is_empty() {
        let spread = Spread::of(samples.iter().map(|sample| sample.took));
        if spread.percentile(99) <= bound {
            return Ok(spread);
        }
    }
    let counts = |sample: &&Sample| sample.kept.is_little(bound);
    let counted: Vec<Duration> = samples.iter().filter(counts).map(|sample| sample.took).collect();
    let (counting, all) = (counted.len(), samples.len());
    if counting * MIN_COUNTED_DIVISOR < all || all == 0 {
        let few = format!("only {counting} of {all} times were measured in a process that ran");
        return Err(Unproven::TooBusy(few));
    }
    let spread = Spread::of(counted);
    if spread.percentile(99) > bound {
        return Err(Unproven::Late(format!("later than {bound:?}: {spread}, of {all} measured")));
    }
    Ok(spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(times: &[(u64, u64)]) -> Vec<Sample> {
        let ms = Duration::from_millis;
        let sample = |(took, starved): &(u64, u64)| {
            let kept = SchedulingDelay { starved: ms(*starved), paged_in: 0 };
            Sample { took: ms(*took), kept }
        };
        times.iter().map(sample).collect()
    }

    #[test]
    fn one_in_a_hundred_may_be_late_and_two_may_not() {
        let bound = Duration::from_millis(50);
        let mut times = vec![(1, 0); 99];
        times.push((900, 0));
        assert!(judge(&samples(&times), bound).is_ok());
        times.push((51, 10));
        let late = judge(&samples(&times), bound).unwrap_err();
        let Unproven::Late(late) = late else { panic!("{late}") };
        assert!(late.starts_with("later than 50ms: n=101"), "{late}");
    }

    #[test]
    fn times_of_a_process_that_was_not_run_do_not_count_whatever_they_are() {
        let bound = Duration::from_millis(50);
        let spread = judge(&samples(&[(1, 0), (2, 10), (900, 11), (3, 200)]), bound);
        assert_eq!(spread.unwrap().count(), 2);
        let few = judge(&samples(&[(1, 0), (51, 11), (51, 11)]), bound).unwrap_err();
        let Unproven::TooBusy(few) = few else { panic!("{few}") };
        assert!(few.contains("only 1 of 3"), "{few}");
        let in_time = judge(&samples(&[(1, 0), (50, 11), (50, 11)]), bound);
        assert_eq!(in_time.unwrap().count(), 3);
        assert!(judge(&[], bound).is_err());
        let mut paged = samples(&[(1, 0), (900, 0)]);
        paged[1].kept.paged_in = 1;
        assert_eq!(judge(&paged, bound).unwrap().count(), 1);
    }

    #[test]
    fn a_process_that_competes_for_a_processor_is_seen_to_wait_for_it() {
        let before = kept(std::process::id()).starved;
        let end = now_ns() + 200_000_000;
        let threads = 4 * thread::available_parallelism().map_or(1, Into::into);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| while now_ns() < end {});
            }
            thread::sleep(Duration::from_millis(150));
            let waited = kept(std::process::id()).starved.saturating_sub(before);
            assert!(waited > Duration::from_millis(100), "{waited:?}");
        });
    }
}
