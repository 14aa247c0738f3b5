//! How long this process has had one lock without a break, and when it lets others have it.
//!
//! Where waiters poll, the process that has just released a lock is the first to know, so its own
//! next task has it long before another process looks again: without a bound one process can keep
//! a lock for as long as it has tasks that want it. So a process that has had a lock for a
//! *quantum* without a break leaves it free for [`PAUSE`], which is longer than anybody who polls
//! sleeps: whoever else wants it has it then.
//!
//! A process that always wins is never told that others want the lock; only a pause shows. After
//! one in which nobody took the lock the quantum grows by a quarter, up to [`LONGEST`]: with no
//! other process about, pauses cost 2.4 % of the time at most, and nothing to whoever stops within
//! a second. Whoever finds the lock busy has [`SHORTEST`] from then on, so that under saturation
//! processes take turns of 50 ms, and the lock lies idle between them for as long as the quickest
//! of the others takes to look, 16 ms at most. The quantum grows slowly because on a busy machine
//! a waiter may be late.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::wait::Polling;

/// Longer than the longest sleep of a waiter that polls and the answer it then waits for.
const PAUSE: Duration = Polling::LONGEST.saturating_add(Duration::from_millis(4));
/// The quantum where others want the lock.
const SHORTEST: Duration = Duration::from_millis(50);
/// The quantum where nobody else is known to want it.
const LONGEST: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Streak {
    /// Since when the lock was this process's again and again.
    since: Option<Instant>,
    quantum: Duration,
    /// The lock was just left free for a while.
    paused: bool,
    /// When its last turn ended.
    ended: Option<Instant>,
}

impl Default for Streak {
    fn default() -> Self {
        Self { since: None, quantum: LONGEST, paused: false, ended: None }
    }
}

impl Streak {
    /// How long to leave the lock to others before this turn's first attempt; `None` for not at
    /// all.
    pub(crate) fn pause(&mut self) -> Option<Duration> {
        if self.ended.is_some_and(|ended| ended.elapsed() > PAUSE) {
            // It was free for that long anyway.
            *self = Self::default();
        }
        let is_over = self.since?.elapsed() >= self.quantum;
        is_over.then(|| {
            (self.since, self.paused) = (None, true);
            PAUSE + random_part_of(Duration::from_millis(4))
        })
    }

    /// Somebody else has the lock.
    pub(crate) fn found_busy(&mut self) {
        (self.since, self.paused, self.quantum) = (None, false, SHORTEST);
    }

    /// It is this process's.
    pub(crate) fn entered(&mut self) {
        if std::mem::take(&mut self.paused) {
            self.quantum = (self.quantum * 5 / 4).min(LONGEST);
        }
        self.since.get_or_insert_with(Instant::now);
    }

    /// The turn is over.
    pub(crate) fn ended(&mut self) {
        // Where nobody has said anything of a streak there is none.
        if *self != Self::default() {
            self.ended = Some(Instant::now());
        }
    }

    /// Whether the next turn would go on with it.
    pub(crate) fn goes_on(&self) -> bool {
        self.since.is_some()
    }
}

/// So that processes do not march in step; eight random bits are enough for that.
fn random_part_of(span: Duration) -> Duration {
    span * u32::from(Uuid::new_v4().as_bytes()[0]) / 256
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const TURN: Duration = Duration::from_millis(5);

    /// Turns of this process one after the other until it pauses.
    async fn turns_until_pause(streak: &mut Streak) -> u32 {
        let mut turns = 0;
        while streak.pause().is_none() {
            streak.entered();
            advance(TURN).await;
            streak.ended();
            turns += 1;
        }
        turns
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_nobody_disturbs_pauses_once_a_second() {
        let mut streak = Streak::default();
        for _ in 0..3 {
            assert_eq!(turns_until_pause(&mut streak).await, 200);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_found_the_lock_busy_pauses_soon_and_less_soon_when_that_is_of_no_use() {
        let mut streak = Streak::default();
        streak.found_busy();
        let mut before = 10;
        assert_eq!(turns_until_pause(&mut streak).await, before);
        for _ in 0..14 {
            let turns = turns_until_pause(&mut streak).await;
            assert!(turns > before && turns <= before * 4 / 3 + 1, "{turns} after {before}");
            before = turns;
        }
        assert_eq!(turns_until_pause(&mut streak).await, 200);
        streak.found_busy();
        assert_eq!(turns_until_pause(&mut streak).await, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn every_waiter_that_polls_looks_once_during_a_pause() {
        let mut streak = Streak::default();
        for _ in 0..1000 {
            streak.found_busy();
            streak.entered();
            advance(SHORTEST).await;
            streak.ended();
            let pause = streak.pause().expect("the quantum is over");
            assert!(pause >= Polling::LONGEST + Duration::from_millis(4) && pause < PAUSE * 3 / 2);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_was_left_alone_for_long_enough_is_not_left_alone_again() {
        let mut streak = Streak::default();
        streak.found_busy();
        streak.entered();
        advance(SHORTEST).await;
        streak.ended();
        advance(PAUSE + TURN).await;
        assert_eq!(streak.pause(), None);
        assert_eq!(turns_until_pause(&mut streak).await, 200);
    }
}
