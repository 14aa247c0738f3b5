//! The waiters of one key, in the order of arrival.
//!
//! Bounds: no more places than twice as many as were wanted at the same time, and sixteen.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Instant;

/// Up to this number of vacant places are not removed.
const MIN_VACANT_PLACES: usize = 8;

pub(super) struct Waiter {
    pub(super) waker: Waker,
    /// The latest instant at which it can have come, set when it is woken early.
    pub(super) late_since: Option<Instant>,
}

impl Waiter {
    pub(super) fn new(waker: Waker) -> Self {
        Self { waker, late_since: None }
    }

    /// Records the latest instant of its arrival; returns the waker to call.
    pub(super) fn mark_late(&mut self, since: Instant) -> Waker {
        self.late_since = Some(since);
        self.waker.clone()
    }
}

/// Places are known by numbers that rise, from 1 on, so that one is found without a walk.
#[derive(Default)]
pub(super) struct WaiterQueue {
    /// In order of arrival; `None` where a waiter has left.
    places: VecDeque<(u64, Option<Waiter>)>,
    /// How many have left.
    left: usize,
    /// The number of the latest.
    last: u64,
}

impl WaiterQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.places.len() == self.left
    }

    /// The number of the latest waiter; 0 before the first.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// A place at the end.
    pub(super) fn push(&mut self, waiter: Waiter) -> u64 {
        self.last += 1;
        self.places.push_back((self.last, Some(waiter)));
        self.last
    }

    /// The waiter with that number, if it has not left.
    pub(super) fn waiter(&mut self, number: u64) -> Option<&mut Waiter> {
        let index = self.index(number)?;
        self.places[index].1.as_mut()
    }

    /// The first one and its number.
    pub(super) fn pop(&mut self) -> Option<(u64, Waiter)> {
        while let Some((number, waiter)) = self.places.pop_front() {
            match waiter {
                Some(waiter) => return Some((number, waiter)),
                None => self.left -= 1,
            }
        }
        None
    }

    /// Gives a place up.
    pub(super) fn leave(&mut self, number: u64) -> Option<Waiter> {
        let index = self.index(number)?;
        let waiter = self.places[index].1.take()?;
        self.left += 1;
        if self.left > self.places.len() / 2 + MIN_VACANT_PLACES {
            self.places.retain(|(_, waiter)| waiter.is_some());
            self.left = 0;
        }
        Some(waiter)
    }

    /// Those in the places after that number, up to the other one.
    pub(super) fn between(
        &mut self,
        after: u64,
        up_to: u64,
    ) -> impl Iterator<Item = (u64, &mut Waiter)> {
        let start = self.places.partition_point(|(number, _)| *number <= after);
        let some = self.places.range_mut(start..).take_while(move |(number, _)| *number <= up_to);
        some.filter_map(|(number, waiter)| Some((*number, waiter.as_mut()?)))
    }

    fn index(&self, number: u64) -> Option<usize> {
        self.places.binary_search_by_key(&number, |(number, _)| *number).ok()
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_that_stay_are_served_in_order_and_those_that_leave_free_their_places() {
        let mut queue = WaiterQueue::default();
        let waiter = || Waiter::new(Waker::noop().clone());
        let numbers: Vec<_> = (0..1_000).map(|_| queue.push(waiter())).collect();
        for number in &numbers {
            if number % 100 != 7 {
                assert!(queue.leave(*number).is_some() && queue.leave(*number).is_none());
            }
        }
        assert!(queue.places() <= 2 * (10 + MIN_VACANT_PLACES), "{}", queue.places());
        assert!(queue.waiter(8).is_none() && queue.waiter(107).is_some());
        assert_eq!(queue.between(7, 307).count(), 3);
        for number in (7..1_000).step_by(100) {
            assert!(!queue.is_empty());
            assert_eq!(queue.pop().map(|(first, _)| first), Some(number));
        }
        assert!(queue.is_empty() && queue.pop().is_none());
        assert_eq!((queue.last(), queue.push(waiter())), (1_000, 1_001));
    }
}
