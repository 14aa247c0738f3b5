//! Shorthand for what tests want.

use std::path::Path;
use std::time::Duration;

use uuid::Uuid;

use crate::counter::Counter;
use crate::protocol::{Contest, Stay, Want};

/// A lock name that no other test uses.
pub fn fresh_name() -> String {
    format!("lock:test:{}", Uuid::new_v4())
}

impl Want {
    /// That lock at once or not at all, with a lease of that length, renewed where the kind renews.
    pub fn new(name: &str, lease: Duration) -> Self {
        Self {
            name: name.to_owned(),
            wait_ms: 0,
            lease_ms: ms(lease),
            renewed: None,
            max_hold_ms: None,
            fenced: false,
            as_owner: None,
        }
    }

    /// The same, waiting so long.
    #[must_use]
    pub fn waiting(self, wait: Duration) -> Self {
        Self { wait_ms: ms(wait), ..self }
    }

    /// The same with a lease that nobody renews.
    #[must_use]
    pub fn unrenewed(self) -> Self {
        Self { renewed: Some(false), ..self }
    }

    /// The same, held for no longer than that.
    #[must_use]
    pub fn held_at_most(self, most: Duration) -> Self {
        Self { max_hold_ms: Some(ms(most)), ..self }
    }

    /// The same with a fencing token.
    #[must_use]
    pub fn fenced(self) -> Self {
        Self { fenced: true, ..self }
    }

    /// The same for the owner of a hold there is.
    #[must_use]
    pub fn again_as(self, owner: &str) -> Self {
        Self { as_owner: Some(owner.to_owned()), ..self }
    }
}

impl Contest {
    /// So many tasks that enter so often each and hold for a moment. Makes the counter.
    pub fn new(want: Want, tasks: u32, rounds: u64, counter: &Path) -> Self {
        Counter::open(counter).expect("a file in a folder of one's own");
        let (until_ns, hold_us, ignore_loss) = (None, 0, false);
        let counter = counter.to_owned();
        Self { want, tasks, rounds, until_ns, hold_us, counter, ignore_loss }
    }

    /// The same, holding so long each time.
    #[must_use]
    pub fn holding(self, hold: Duration) -> Self {
        Self { hold_us: u64::try_from(hold.as_micros()).unwrap_or(u64::MAX), ..self }
    }
}

impl Stay {
    /// When it was known to be in the queue, after so many busy answers; none if it did not wait.
    pub fn queued_ns(&self, busy_until_queued: u64) -> Option<u64> {
        let (first_ns, next_ns) = self.busy_ns;
        let queued_ns = if busy_until_queued == 1 { first_ns } else { next_ns };
        (queued_ns > 0).then_some(queued_ns)
    }
}

/// How often a stay began before the belief in an earlier one had ended, by the common clock.
pub fn overlaps(stays: &[Stay]) -> usize {
    let mut by_start: Vec<&Stay> = stays.iter().collect();
    by_start.sort_by_key(|stay| stay.acquired_ns);
    let mut believed_until_ns = 0;
    let mut overlaps = 0;
    for stay in by_start {
        overlaps += usize::from(stay.acquired_ns < believed_until_ns);
        believed_until_ns = believed_until_ns.max(stay.believed_until_ns);
    }
    overlaps
}

/// Before how many of these stays, in the order of their entries, somebody entered who had not even
/// asked when this one was in the queue.
pub fn overtaken<'a>(
    by_entry: impl IntoIterator<Item = &'a Stay>,
    busy_until_queued: u64,
) -> usize {
    let mut latest_asked_ns = 0;
    let mut overtaken = 0;
    for stay in by_entry {
        let queued_ns = stay.queued_ns(busy_until_queued);
        overtaken += usize::from(queued_ns.is_some_and(|queued_ns| queued_ns < latest_asked_ns));
        latest_asked_ns = latest_asked_ns.max(stay.asked_ns);
    }
    overtaken
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stay(acquired_ns: u64, believed_until_ns: u64) -> Stay {
        Stay {
            task: 0,
            asked_ns: 0,
            busy_ns: (0, 0),
            acquired_ns,
            believed_until_ns,
            released_ns: believed_until_ns,
            wrote: true,
            token: 0,
        }
    }

    #[test]
    fn stays_overlap_if_one_begins_before_belief_in_any_earlier_one_ends() {
        assert_eq!(overlaps(&[stay(3, 4), stay(1, 3), stay(4, 9)]), 0);
        assert_eq!(overlaps(&[stay(1, 10), stay(2, 3), stay(4, 5)]), 2);
    }

    #[test]
    fn a_stay_is_overtaken_by_one_that_asked_after_it_was_in_the_queue_and_entered_before() {
        let queued = |asked_ns, busy_ns| Stay { asked_ns, busy_ns, ..stay(0, 0) };
        let (first, second) = (queued(1, (2, 5)), queued(4, (6, 7)));
        assert_eq!(overtaken(&[first, second], 1), 0);
        assert_eq!(overtaken(&[second, first], 1), 1);
        // It was not in the queue yet when the other asked.
        assert_eq!(overtaken(&[second, first], 2), 0);
        // It was never in the queue.
        assert_eq!(overtaken(&[second, queued(1, (0, 0))], 1), 0);
    }
}
