//! Slices in turn: the cells of a round stand side by side, and one of them at a time is measured
//! for a slice, then the next. So what else the machine does falls on all of them alike.

use loadtest_measure::bars::median;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::figure::Sample;

/// Seconds of a slice, or a little more.
const SLICE_S: u64 = 2;

/// Gives the machine to one cell at a time, in the order of asking.
#[derive(Debug)]
pub struct Turns(Semaphore);

/// The right to use the machine.
#[derive(Debug)]
pub struct Turn<'a> {
    turns: &'a Turns,
    /// Empty only while it waits for its next turn.
    held: Option<SemaphorePermit<'a>>,
}

impl Default for Turns {
    fn default() -> Self {
        Self(Semaphore::new(1))
    }
}

impl Turns {
    /// Waits until the machine is free.
    pub async fn take(&self) -> Turn<'_> {
        Turn { turns: self, held: self.0.acquire().await.ok() }
    }
}

impl Turn<'_> {
    /// Lets all others have theirs first.
    pub async fn pass(&mut self) {
        self.held = None;
        self.held = self.turns.0.acquire().await.ok();
    }
}

/// The whole seconds of each slice of a round of `seconds` seconds, as sysbench wants them.
pub fn slices(seconds: u64) -> Vec<u64> {
    let count = (seconds / SLICE_S).max(1);
    (0..count).map(|slice| seconds * (slice + 1) / count - seconds * slice / count).collect()
}

/// A round's sample of its slices: rates and times of all together, the median of percentiles.
pub fn together(slices: Vec<Sample>) -> Sample {
    let seconds: f64 = slices.iter().map(|slice| slice.seconds).sum();
    let of_all: f64 = slices.iter().map(|slice| slice.per_s * slice.seconds).sum();
    let middle = |of: fn(&Sample) -> f64| {
        median(&slices.iter().map(of).collect::<Vec<_>>()).unwrap_or_default()
    };
    let mut all = Sample {
        per_s: of_all / seconds.max(f64::MIN_POSITIVE),
        seconds,
        p50_ms: middle(|slice| slice.p50_ms),
        p99_ms: middle(|slice| slice.p99_ms),
        ..Sample::default()
    };
    for slice in slices {
        let part = slice.per_s * slice.seconds / of_all.max(f64::MIN_POSITIVE);
        all.generator_share += slice.generator_share * slice.seconds / seconds;
        for (name, us) in slice.cpu_us {
            *all.cpu_us.entry(name).or_default() += us * part;
        }
        for (name, ms) in slice.parts_ms {
            *all.parts_ms.entry(name).or_default() += ms * part;
        }
        all.invalid.extend(slice.invalid);
        all.remarks.extend(slice.remarks);
    }
    for texts in [&mut all.invalid, &mut all.remarks] {
        texts.sort();
        texts.dedup();
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn a_turn_that_is_passed_is_queued_behind_all_waiters() {
        let (turns, said) = (Turns::default(), Mutex::new(String::new()));
        let speak = async |name: char| {
            let mut turn = turns.take().await;
            for _ in 0..3 {
                said.lock().expect("not poisoned").push(name);
                tokio::task::yield_now().await;
                turn.pass().await;
            }
        };
        tokio::join!(speak('a'), speak('b'), speak('c'));
        assert_eq!(*said.lock().expect("not poisoned"), "abcabcabc");
    }

    #[test]
    fn slices_last_as_long_as_the_round() {
        assert_eq!(slices(10), [2; 5]);
        assert_eq!(slices(1), [1]);
        assert_eq!(slices(5).iter().sum::<u64>(), 5);
    }

    #[test]
    fn a_slice_counts_by_what_was_done_in_it() {
        let slice = |per_s, seconds, us| Sample {
            per_s,
            seconds,
            cpu_us: BTreeMap::from([("database", us)]),
            invalid: vec!["late".to_owned()],
            ..Sample::default()
        };
        let all = together(vec![slice(100.0, 1.0, 8.0), slice(300.0, 3.0, 28.0)]);
        assert!((all.per_s - 250.0).abs() < 1e-9 && (all.seconds - 4.0).abs() < 1e-9, "{all:?}");
        assert!((all.cpu_us["database"] - 26.0).abs() < 1e-9, "{all:?}");
        assert_eq!(all.invalid, ["late"]);
    }
}
