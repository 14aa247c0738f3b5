//! Short ways to build lock requests and contests, and to judge section records.

use std::path::Path;
use std::time::Duration;

use uuid::Uuid;

use crate::counter::Counter;
use crate::protocol::{Contest, LockRequest, SectionRecord};

/// A lock name that no other test uses.
pub fn fresh_name() -> String {
    format!("lock:test:{}", Uuid::new_v4())
}

impl LockRequest {
    /// Asks for that lock without waiting, with a lease of that length, renewed where the kind
    /// renews.
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

    /// Waits at most that long.
    #[must_use]
    pub fn waiting(self, wait: Duration) -> Self {
        Self { wait_ms: ms(wait), ..self }
    }

    /// Forbids renewal of the lease.
    #[must_use]
    pub fn unrenewed(self) -> Self {
        Self { renewed: Some(false), ..self }
    }

    /// Limits the time for which the lock is held.
    #[must_use]
    pub fn held_at_most(self, most: Duration) -> Self {
        Self { max_hold_ms: Some(ms(most)), ..self }
    }

    /// Asks for a fencing token.
    #[must_use]
    pub fn fenced(self) -> Self {
        Self { fenced: true, ..self }
    }

    /// Re-enters as the owner of an existing hold.
    #[must_use]
    pub fn again_as(self, owner: &str) -> Self {
        Self { as_owner: Some(owner.to_owned()), ..self }
    }
}

impl Contest {
    /// A contest of `tasks` tasks that enter `rounds` times each and hold for a moment. Makes the
    /// counter.
    pub fn new(request: LockRequest, tasks: u32, rounds: u64, counter: &Path) -> Self {
        Counter::open(counter).expect("a file in a folder of one's own");
        let (until_ns, hold_us, ignore_loss) = (None, 0, false);
        let counter = counter.to_owned();
        Self { request, tasks, rounds, until_ns, hold_us, counter, ignore_loss }
    }

    /// Holds for that long in each round.
    #[must_use]
    pub fn holding(self, hold: Duration) -> Self {
        Self { hold_us: u64::try_from(hold.as_micros()).unwrap_or(u64::MAX), ..self }
    }
}

impl SectionRecord {
    /// When it was known to be in the queue, after that number of busy answers; none if it did not
    /// wait.
    pub fn queued_ns(&self, busy_until_queued: u64) -> Option<u64> {
        let (first_ns, next_ns) = self.busy_ns;
        let queued_ns = if busy_until_queued == 1 { first_ns } else { next_ns };
        (queued_ns > 0).then_some(queued_ns)
    }
}

/// How many sections began before the validity of an earlier one had ended, by the common clock.
pub fn overlaps(records: &[SectionRecord]) -> usize {
    let mut by_start: Vec<&SectionRecord> = records.iter().collect();
    by_start.sort_by_key(|record| record.acquired_ns);
    let mut valid_until_ns = 0;
    let mut overlaps = 0;
    for record in by_start {
        overlaps += usize::from(record.acquired_ns < valid_until_ns);
        valid_until_ns = valid_until_ns.max(record.valid_until_ns);
    }
    overlaps
}

/// How many of these sections, in the order of their entries, were overtaken. A later contender had
/// not asked yet when this one was in the queue, and entered before it.
pub fn overtaken<'a>(
    by_entry: impl IntoIterator<Item = &'a SectionRecord>,
    busy_until_queued: u64,
) -> usize {
    let mut latest_asked_ns = 0;
    let mut overtaken = 0;
    for record in by_entry {
        let queued_ns = record.queued_ns(busy_until_queued);
        overtaken += usize::from(queued_ns.is_some_and(|queued_ns| queued_ns < latest_asked_ns));
        latest_asked_ns = latest_asked_ns.max(record.asked_ns);
    }
    overtaken
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(acquired_ns: u64, valid_until_ns: u64) -> SectionRecord {
        SectionRecord {
            task: 0,
            asked_ns: 0,
            busy_ns: (0, 0),
            acquired_ns,
            valid_until_ns,
            released_ns: valid_until_ns,
            wrote: true,
            token: 0,
        }
    }

    #[test]
    fn sections_overlap_if_one_begins_before_the_validity_of_an_earlier_one_ends() {
        assert_eq!(overlaps(&[record(3, 4), record(1, 3), record(4, 9)]), 0);
        assert_eq!(overlaps(&[record(1, 10), record(2, 3), record(4, 5)]), 2);
    }

    #[test]
    fn a_queued_section_is_overtaken_by_one_that_asked_later_and_entered_before() {
        let queued = |asked_ns, busy_ns| SectionRecord { asked_ns, busy_ns, ..record(0, 0) };
        let (first, second) = (queued(1, (2, 5)), queued(4, (6, 7)));
        assert_eq!(overtaken(&[first, second], 1), 0);
        assert_eq!(overtaken(&[second, first], 1), 1);
        // It was not in the queue yet when the other asked.
        assert_eq!(overtaken(&[second, first], 2), 0);
        // It was never in the queue.
        assert_eq!(overtaken(&[second, queued(1, (0, 0))], 1), 0);
    }
}
