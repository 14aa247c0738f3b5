//! How fast a queue drains, and how long a ticket probably waits.
//!
//! Each read of a ticket's place also says how many tickets have ended. A replica keeps some of
//! these numbers, at most [`MAX_SAMPLES`] for a voucher, and asks no server for them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::domain::VoucherId;
use crate::store::{Progress, QueuePlace};

/// Older numbers say nothing of the rate.
const WINDOW: Duration = Duration::from_secs(15);
/// The shortest time of which a rate is told.
const MIN_MEASURED_TIME: Duration = Duration::from_secs(1);
/// The shortest time between two kept numbers.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);
/// The most kept numbers of a voucher.
const MAX_SAMPLES: usize = 32;
/// The most vouchers with kept numbers.
const MAX_VOUCHERS: usize = 1024;
/// A longer wait counts as unknown: the rate will have changed by then.
const MAX_WAIT_S: u64 = 3600;

/// The drain rates of all queues that this replica is asked about.
#[derive(Debug, Default)]
pub(super) struct DrainRates(Mutex<HashMap<VoucherId, Samples>>);

/// How many tickets had ended when, oldest first, since one opening of the queue.
#[derive(Debug)]
struct Samples {
    epoch: u64,
    ended: VecDeque<(Instant, u64)>,
}

impl DrainRates {
    /// How long the ticket at that place probably waits, in seconds; `None` if that is not known.
    pub(super) fn expected_wait_s(
        &self,
        voucher: VoucherId,
        place: &QueuePlace,
        now: Instant,
    ) -> Option<u64> {
        let mut rates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if rates.len() >= MAX_VOUCHERS && !rates.contains_key(&voucher) {
            rates.clear();
        }
        let new = || Samples { epoch: place.progress.epoch, ended: VecDeque::new() };
        let (ended, time) = rates.entry(voucher).or_insert_with(new).add(place.progress, now)?;
        // Rounded up to whole seconds.
        let millis = u128::from(place.ahead() + 1) * time.as_millis() / u128::from(ended);
        let wait_s = u64::try_from(millis.div_ceil(1000)).ok()?.max(1);
        (wait_s <= MAX_WAIT_S).then_some(wait_s)
    }
}

impl Samples {
    /// Keeps the number; how many tickets have ended in which time before it, if any.
    fn add(&mut self, progress: Progress, now: Instant) -> Option<(u64, Duration)> {
        let ended = progress.ended();
        if self.epoch != progress.epoch {
            (self.epoch, self.ended) = (progress.epoch, VecDeque::new());
        }
        let age = |at: Instant| now.saturating_duration_since(at);
        while self.ended.front().is_some_and(|(at, _)| age(*at) > WINDOW) {
            self.ended.pop_front();
        }
        if self.ended.back().is_none_or(|(at, _)| age(*at) >= SAMPLE_INTERVAL) {
            self.ended.push_back((now, ended));
        }
        if self.ended.len() > MAX_SAMPLES {
            self.ended.pop_front();
        }
        let (at, first) = *self.ended.front()?;
        let (time, more) = (age(at), ended.saturating_sub(first));
        (time >= MIN_MEASURED_TIME && more > 0).then_some((more, time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue that has admitted a thousand tickets, of which that many have ended; the last one's.
    fn last_of_a_thousand(ended: u64) -> QueuePlace {
        let progress = Progress { epoch: 1, seq: 1000, under_way: 1000 - ended };
        QueuePlace { number: 1000, progress }
    }

    fn wait_s(rates: &DrainRates, place: &QueuePlace, now: Instant) -> Option<u64> {
        rates.expected_wait_s(VoucherId(7), place, now)
    }

    #[test]
    fn the_wait_follows_from_what_has_ended_in_the_last_seconds() {
        let (rates, start) = (DrainRates::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(wait_s(&rates, &last_of_a_thousand(0), start), None, "nothing is known");
        assert_eq!(wait_s(&rates, &last_of_a_thousand(50), at(900)), None, "too short a time");
        assert_eq!(wait_s(&rates, &last_of_a_thousand(100), at(2000)), Some(18));
        assert_eq!(wait_s(&rates, &last_of_a_thousand(990), at(3000)), Some(1));
        // Numbers from before the last fifteen seconds do not count.
        assert_eq!(wait_s(&rates, &last_of_a_thousand(990), at(30_000)), None, "it stands still");
        assert_eq!(wait_s(&rates, &last_of_a_thousand(990), at(32_000)), None, "it stands still");
        assert_eq!(wait_s(&rates, &last_of_a_thousand(991), at(34_000)), Some(36));
    }

    #[test]
    fn a_wait_of_more_than_an_hour_is_unknown() {
        let (rates, start) = (DrainRates::default(), Instant::now());
        assert_eq!(wait_s(&rates, &last_of_a_thousand(0), start), None);
        let later = start + Duration::from_secs(10);
        assert_eq!(wait_s(&rates, &last_of_a_thousand(1), later), None);
        assert_eq!(wait_s(&rates, &last_of_a_thousand(3), later), Some(3324));
    }

    #[test]
    fn an_opening_begins_anew_and_memory_is_bounded() {
        let (rates, start) = (DrainRates::default(), Instant::now());
        for ms in 0..100 {
            let now = start + Duration::from_millis(ms * 100);
            wait_s(&rates, &last_of_a_thousand(ms), now);
        }
        let kept = |rates: &DrainRates| rates.0.lock().unwrap()[&VoucherId(7)].ended.len();
        assert!(kept(&rates) <= MAX_SAMPLES);
        let mut reopened = last_of_a_thousand(5);
        reopened.progress.epoch = 2;
        assert_eq!(wait_s(&rates, &reopened, start + Duration::from_secs(11)), None);
        assert_eq!(kept(&rates), 1);
        for voucher in 0..2 * MAX_VOUCHERS as u64 {
            rates.expected_wait_s(VoucherId(voucher), &reopened, start);
        }
        assert!(rates.0.lock().unwrap().len() <= MAX_VOUCHERS);
    }
}
