//! From when until when a purchase held its lock, as its replica knows it: the laboratory draws it.
//!
//! It begins when the lock is granted and ends before the lock is given back, so on the server the
//! purchase had the lock for all of it, unless it lost it. Whoever loses a lock without looking
//! goes on for as long as it takes itself for the holder, and that is told too. Nothing is told of
//! a lock that holds nothing, nor of one that is the transaction: it ends in the middle of COMMIT.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Shared by a purchase and whoever answers it. Of a lock that was taken anew it is the last time.
#[derive(Debug, Default)]
pub struct Held(Mutex<Option<Hold>>);

#[derive(Debug, Clone, Copy)]
struct Hold {
    acquired: Instant,
    released: Option<Instant>,
}

impl Held {
    fn hold(&self) -> MutexGuard<'_, Option<Hold>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock was granted.
    pub(super) fn begin(&self) {
        *self.hold() = Some(Hold { acquired: Instant::now(), released: None });
    }

    /// It is to be given back now, or left to its lease.
    pub(super) fn end(&self) {
        if let Some(hold) = &mut *self.hold() {
            hold.released.get_or_insert_with(Instant::now);
        }
    }

    /// How long ago it was granted, and given back; `None` if no lock was taken.
    pub fn ago(&self) -> Option<[Duration; 2]> {
        let Hold { acquired, released } = (*self.hold())?;
        let released = released.map_or(Duration::ZERO, |released| released.elapsed());
        Some([acquired.elapsed(), released])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_ends_once_and_a_lock_that_is_taken_anew_begins_another() {
        let held = Held::default();
        held.end();
        assert_eq!(held.ago(), None, "no lock was taken");
        held.begin();
        let [acquired, released] = held.ago().expect("it is held");
        assert!(acquired >= released && released.is_zero());
        held.end();
        let ended = held.hold().expect("it was held").released;
        held.end();
        assert_eq!(held.hold().expect("it was held").released, ended);
        held.begin();
        assert!(held.hold().expect("it is held").released.is_none());
    }
}
