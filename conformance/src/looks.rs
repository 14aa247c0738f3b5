//! What else a contender can be asked about a hold.

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
}
