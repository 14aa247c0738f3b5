//! What else a contender can be asked: about one hold, or of the database's locks.

use std::time::Duration;

use crate::driver::Contender;
use crate::protocol::{Command, Response, ValidityReport};

impl Contender {
    /// How often it found a lock busy.
    pub fn busy(&self) -> u64 {
        let counted = self.send(Command::Count, Duration::ZERO, |response| match response {
            Response::Counted { busy, .. } => Some(busy),
            _ => None,
        });
        counted.wait().unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    /// How often a task in it got a lock after waiting, by the library's own account.
    pub fn hand_offs(&self) -> u64 {
        let counted = self.send(Command::Count, Duration::ZERO, |response| match response {
            Response::Counted { hand_offs, .. } => Some(hand_offs),
            _ => None,
        });
        counted.wait().unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    /// Until when a hold is valid, and a later instant at which that was known.
    pub fn validity(&self, handle: u64) -> ValidityReport {
        let validity =
            self.send(Command::Validity { handle }, Duration::ZERO, |response| match response {
                Response::Validity(validity) => Some(validity),
                _ => None,
            });
        validity.wait().unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    /// Has it take away rows of the database's locks that were free for so long; how many it took.
    pub fn reap(&self, unused: Duration) -> u64 {
        let unused_ms = u64::try_from(unused.as_millis()).unwrap_or(u64::MAX);
        let reaped =
            self.send(Command::Reap { unused_ms }, Duration::ZERO, |response| match response {
                Response::Reaped { rows } => Some(rows),
                _ => None,
            });
        reaped.wait().unwrap_or_else(|failure| panic!("{failure:?}"))
    }
}
