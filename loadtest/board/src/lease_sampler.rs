//! The lease of a lane's lock as its server has it, read while the race runs.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use loadtest_judge::setting::Scope;
use loadtest_lab::cell_axes::CellAxes;
use loadtest_lab::deployment::Deployment;
use loadtest_lab::key_lease::{KeyLease, LeaseReader};
use loadtest_lab::lock::Lock;
use tokio::time::{sleep, timeout};

use crate::event_log::{EventLog, Priority};
use crate::lane::LaneDeployment;
use crate::wire::{self, LaneTap};

/// From one reading to the next, up to [`DENSE_SAMPLES`].
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
/// From one reading to the next after these: half the lease of a race.
const LATE_INTERVAL: Duration = Duration::from_millis(500);
/// A server without an answer for so long is silent.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// Samples at [`SAMPLE_INTERVAL`], 75 s of them: races of users have 48 s of load, those of rungs
/// more.
const DENSE_SAMPLES: usize = 1500;
/// Most samples of a race: those after [`DENSE_SAMPLES`] take 12 minutes.
const MAX_SAMPLES: usize = 3000;

/// What is known of a lane's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseState {
    /// What the server says.
    Known(KeyLease),
    /// The server does not answer.
    Silent,
    /// The lock has no lease in Redis or the database.
    None,
    /// It is not in the log: the bound is reached, or the log is full.
    NotRecorded,
}

/// Writes the lease of one lane to the log.
#[derive(Debug)]
pub(crate) struct LeaseSampler {
    lane: usize,
    race_start: Instant,
    log: Arc<EventLog>,
    last: Option<LeaseState>,
    count: usize,
}

impl LeaseSampler {
    /// A sampler of that lane, of a race that has begun then.
    pub(crate) fn new(lane: usize, race_start: Instant, log: Arc<EventLog>) -> Self {
        Self { lane, race_start, log, last: None, count: 0 }
    }

    /// Reads the lease of that voucher's lock. If each user has a lock, it is that of the user
    /// whose request is the oldest one without an answer. It does not end.
    pub(crate) async fn run(
        mut self,
        lane: &LaneDeployment,
        voucher: u64,
        tap: &LaneTap,
    ) -> Infallible {
        let CellAxes { lock, scope, .. } = lane.setup.axes;
        let now = || match scope {
            Scope::Voucher => Some((lock.lease_key(&format!("lock:voucher:{voucher}"))?, None)),
            Scope::User => {
                let (id, index) = tap.oldest_user()?;
                Some((lock.lease_key(&format!("lock:order:{id}"))?, Some(index)))
            }
        };
        if lock.lease_key("").is_some() {
            return self.follow(&lane.deployment, lock, now).await;
        }
        self.push(LeaseState::None, None);
        std::future::pending().await
    }

    /// Reads the lock of the moment, of that user, again and again.
    async fn follow(
        &mut self,
        deployment: &Deployment,
        lock: Lock,
        now: impl Fn() -> Option<(String, Option<usize>)>,
    ) -> Infallible {
        loop {
            let connected = timeout(ANSWER_TIMEOUT, LeaseReader::connect(deployment, lock)).await;
            if let Ok(Ok(mut reader)) = connected {
                while let Ok(Ok((lease, user))) = timeout(ANSWER_TIMEOUT, async {
                    let Some((key, user)) = now() else { return Ok((KeyLease::Free, None)) };
                    reader.read(&key).await.map(|lease| (lease, user))
                })
                .await
                {
                    self.push(LeaseState::Known(lease), user);
                    sleep(self.interval()).await;
                }
            }
            self.push(LeaseState::Silent, None);
            sleep(SAMPLE_INTERVAL).await;
        }
    }

    fn interval(&self) -> Duration {
        if self.count < DENSE_SAMPLES { SAMPLE_INTERVAL } else { LATE_INTERVAL }
    }

    /// Writes a state, unless it is that of before. A lease runs down, so each reading of it is
    /// news. Without room for it the page learns that nothing is known from here on.
    fn push(&mut self, state: LeaseState, user: Option<usize>) {
        let is_left = matches!(state, LeaseState::Known(KeyLease::Left(_)));
        if self.last == Some(state) && !is_left {
            return;
        }
        let event = |state| wire::lease(self.lane, self.race_start, (state, user));
        if self.count < MAX_SAMPLES && self.log.push(event(state), Priority::Lease) {
            (self.last, self.count) = (Some(state), self.count + 1);
        } else if self.last != Some(LeaseState::NotRecorded) {
            self.log.push(event(LeaseState::NotRecorded), Priority::Race);
            self.last = Some(LeaseState::NotRecorded);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_log::LogPosition;

    #[test]
    fn each_reading_of_a_lease_is_in_the_log_and_another_state_once_until_the_bound() {
        let log = Arc::new(EventLog::default());
        log.begin("{}".to_owned());
        let mut sampler = LeaseSampler::new(1, Instant::now(), log.clone());
        let count = || log.read(LogPosition::default(), usize::MAX).expect("a race").count;
        let [free, left] = [KeyLease::Free, KeyLease::Left(940)].map(LeaseState::Known);
        for (state, expected) in
            [(free, 1), (free, 1), (left, 2), (left, 3), (LeaseState::Silent, 4), (free, 5)]
        {
            sampler.push(state, None);
            assert_eq!(count(), expected, "{state:?}");
        }
        for _ in 0..=MAX_SAMPLES {
            sampler.push(left, Some(7));
        }
        assert_eq!(count(), MAX_SAMPLES + 1);
        let all = log.read(LogPosition::default(), usize::MAX).expect("a race");
        assert!(all.events.ends_with("\"not_recorded\",7]]"), "the page is told so, once");
    }

    #[test]
    fn readings_are_rarer_in_a_long_race_and_reach_its_end() {
        let log = Arc::new(EventLog::default());
        let mut sampler = LeaseSampler::new(0, Instant::now(), log);
        let mut covered = Duration::ZERO;
        for count in 0..MAX_SAMPLES {
            sampler.count = count;
            covered += sampler.interval();
        }
        assert_eq!(covered, Duration::from_secs(75 + 750));
    }

    #[test]
    fn what_does_not_fit_into_a_full_log_is_not_recorded_until_there_is_room() {
        let log = Arc::new(EventLog::default());
        log.begin("{}".to_owned());
        let mut open = 0;
        while log.push("1".repeat(1000), Priority::Begin) {
            open += 1;
        }
        let mut sampler = LeaseSampler::new(0, Instant::now(), log.clone());
        let left = LeaseState::Known(KeyLease::Left(940));
        let events = || log.read(LogPosition::default(), usize::MAX).expect("a race").events;
        // A reading is shorter than a request.
        for _ in 0..100 {
            sampler.push(left, None);
        }
        assert_eq!(events().matches("not_recorded").count(), 1);
        let before = events().matches("940").count();
        // The ends are shorter than the room kept for them.
        (0..open).for_each(|_| assert!(log.push("2".to_owned(), Priority::End)));
        sampler.push(left, None);
        assert_eq!(events().matches("940").count(), before + 1);
    }
}
