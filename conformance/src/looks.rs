//! What else a contender can be asked: about one hold, or of the database's locks.

use std::time::Duration;

use crate::driver::Contender;
use crate::protocol::{Believed, Order, Word};

impl Contender {
    /// Until when a hold is believed in, and a later instant at which that was known.
    pub fn belief(&self, handle: u64) -> Believed {
        let believed = self.send(Order::Belief { handle }, Duration::ZERO, |word| match word {
            Word::Believed(believed) => Some(believed),
            _ => None,
        });
        believed.wait().unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    /// Has it take away rows of the database's locks that were free for so long; how many it took.
    pub fn reap(&self, unused: Duration) -> u64 {
        let unused_ms = u64::try_from(unused.as_millis()).unwrap_or(u64::MAX);
        let reaped = self.send(Order::Reap { unused_ms }, Duration::ZERO, |word| match word {
            Word::Reaped { rows } => Some(rows),
            _ => None,
        });
        reaped.wait().unwrap_or_else(|failure| panic!("{failure:?}"))
    }
}
