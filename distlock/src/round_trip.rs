//! How fast a server answers, to refuse a lease that its answers would eat up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The age at which a sample no longer counts. A refused request sends nothing, so without this
/// limit a server that was slow once would stay refused.
const SAMPLE_MAX_AGE: Duration = Duration::from_secs(1);
/// One answer says too little: the first one includes the connection and the loading of scripts,
/// and any may have been held up.
const MIN_SAMPLES: u32 = 2;

/// The shortest round trip of late. Shared by clones.
#[derive(Clone)]
pub(crate) struct RoundTripEstimator(Arc<RoundTripSamples>);

struct RoundTripSamples {
    since: Instant,
    answers: AtomicU32,
    /// In microseconds; 0 before the first.
    shortest_us: AtomicU64,
    /// When the last one ended, in microseconds since then.
    at_us: AtomicU64,
}

impl Default for RoundTripEstimator {
    fn default() -> Self {
        let (answers, shortest_us, at_us) = Default::default();
        Self(Arc::new(RoundTripSamples { since: Instant::now(), answers, shortest_us, at_us }))
    }
}

impl RoundTripEstimator {
    /// Records a round trip. A longer one raises the estimate by an eighth at most, so one delay
    /// does not make a server slow.
    pub(crate) fn observe(&self, round_trip: Duration) {
        let sample_us = microseconds(round_trip).max(1);
        let next_us = match self.0.shortest_us.load(Ordering::Relaxed) {
            0 => sample_us,
            known_us => sample_us.min(known_us + known_us / 8 + 1),
        };
        if self.0.answers.load(Ordering::Relaxed) < MIN_SAMPLES {
            self.0.answers.fetch_add(1, Ordering::Relaxed);
        }
        // Two that observe at once may lose one sample: the next one comes.
        self.0.shortest_us.store(next_us, Ordering::Relaxed);
        self.0.at_us.store(microseconds(self.0.since.elapsed()), Ordering::Relaxed);
    }

    /// The round trip that has to be reckoned with; zero if too few were seen, or none within a
    /// second.
    pub(crate) fn estimate(&self) -> Duration {
        // First, since a kind without servers never sees one, and has no time for the clock.
        if self.0.answers.load(Ordering::Relaxed) < MIN_SAMPLES {
            return Duration::ZERO;
        }
        let at = Duration::from_micros(self.0.at_us.load(Ordering::Relaxed));
        if self.0.since.elapsed().saturating_sub(at) > SAMPLE_MAX_AGE {
            return Duration::ZERO;
        }
        Duration::from_micros(self.0.shortest_us.load(Ordering::Relaxed))
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_slow_answer_makes_no_slow_server_but_many_do() {
        let (round_trips, ms) = (RoundTripEstimator::default(), Duration::from_millis);
        assert_eq!(round_trips.estimate(), Duration::ZERO);
        round_trips.observe(ms(800));
        assert_eq!(round_trips.estimate(), Duration::ZERO, "one may have been held up");
        round_trips.observe(ms(8));
        assert_eq!(round_trips.estimate(), ms(8));
        round_trips.observe(ms(800));
        assert!(round_trips.estimate() < ms(10));
        for _ in 0..100 {
            round_trips.observe(ms(800));
        }
        assert_eq!(round_trips.estimate(), ms(800));
        advance(SAMPLE_MAX_AGE).await;
        assert_eq!(round_trips.estimate(), ms(800));
        advance(ms(1)).await;
        assert_eq!(round_trips.estimate(), Duration::ZERO, "nobody has asked since");
        round_trips.observe(ms(1));
        assert_eq!(round_trips.estimate(), ms(1));
    }
}
