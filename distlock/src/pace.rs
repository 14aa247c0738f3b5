//! How fast a server answers, to refuse a lease that its answers would eat up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The shortest round trip of late, in microseconds; 0 before the first. Shared by clones.
#[derive(Clone, Default)]
pub(crate) struct Pace(Arc<AtomicU64>);

impl Pace {
    /// A round trip took so long. A longer one counts by an eighth only, so that a server that was
    /// held up once is not called slow.
    pub(crate) fn observe(&self, round_trip: Duration) {
        let sample_us = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX).max(1);
        let shortest_us = self.0.load(Ordering::Relaxed);
        let next_us = match shortest_us {
            0 => sample_us,
            known_us => sample_us.min(known_us + known_us / 8 + 1),
        };
        // Two that observe at once may lose one sample: the next one comes.
        self.0.store(next_us, Ordering::Relaxed);
    }

    /// The round trip that has to be reckoned with; zero if none was seen.
    pub(crate) fn round_trip(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_answer_makes_no_slow_server_but_many_do() {
        let (pace, ms) = (Pace::default(), Duration::from_millis);
        assert_eq!(pace.round_trip(), Duration::ZERO);
        pace.observe(ms(8));
        pace.observe(ms(800));
        assert!(pace.round_trip() < ms(10));
        for _ in 0..100 {
            pace.observe(ms(800));
        }
        assert_eq!(pace.round_trip(), ms(800));
        pace.observe(ms(1));
        assert_eq!(pace.round_trip(), ms(1));
    }
}
