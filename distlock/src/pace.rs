//! How fast a server answers, to refuse a lease that its answers would eat up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// An answer says nothing any more after so long: whoever is refused because of it asks nobody, so
/// without an end a server that was slow for a moment would stay slow for ever.
const FRESH: Duration = Duration::from_secs(1);
/// One answer says too little: the first one includes the connection and the loading of scripts,
/// and any may have been held up.
const ENOUGH: u32 = 2;

/// The shortest round trip of late. Shared by clones.
#[derive(Clone)]
pub(crate) struct Pace(Arc<Seen>);

struct Seen {
    since: Instant,
    answers: AtomicU32,
    /// In microseconds; 0 before the first.
    shortest_us: AtomicU64,
    /// When the last one ended, in microseconds since then.
    at_us: AtomicU64,
}

impl Default for Pace {
    fn default() -> Self {
        let (answers, shortest_us, at_us) = Default::default();
        Self(Arc::new(Seen { since: Instant::now(), answers, shortest_us, at_us }))
    }
}

impl Pace {
    /// A round trip took so long. A longer one counts by an eighth only, so that a server that was
    /// held up once is not called slow.
    pub(crate) fn observe(&self, round_trip: Duration) {
        let sample_us = microseconds(round_trip).max(1);
        let next_us = match self.0.shortest_us.load(Ordering::Relaxed) {
            0 => sample_us,
            known_us => sample_us.min(known_us + known_us / 8 + 1),
        };
        if self.0.answers.load(Ordering::Relaxed) < ENOUGH {
            self.0.answers.fetch_add(1, Ordering::Relaxed);
        }
        // Two that observe at once may lose one sample: the next one comes.
        self.0.shortest_us.store(next_us, Ordering::Relaxed);
        self.0.at_us.store(microseconds(self.0.since.elapsed()), Ordering::Relaxed);
    }

    /// The round trip that has to be reckoned with; zero if too few were seen, or none within a
    /// second.
    pub(crate) fn round_trip(&self) -> Duration {
        // First, since a kind without servers never sees one, and has no time for the clock.
        if self.0.answers.load(Ordering::Relaxed) < ENOUGH {
            return Duration::ZERO;
        }
        let at = Duration::from_micros(self.0.at_us.load(Ordering::Relaxed));
        if self.0.since.elapsed().saturating_sub(at) > FRESH {
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
    async fn one_slow_answer_makes_no_slow_server_but_many_do_for_a_while() {
        let (pace, ms) = (Pace::default(), Duration::from_millis);
        assert_eq!(pace.round_trip(), Duration::ZERO);
        pace.observe(ms(800));
        assert_eq!(pace.round_trip(), Duration::ZERO, "one may have been held up");
        pace.observe(ms(8));
        assert_eq!(pace.round_trip(), ms(8));
        pace.observe(ms(800));
        assert!(pace.round_trip() < ms(10));
        for _ in 0..100 {
            pace.observe(ms(800));
        }
        assert_eq!(pace.round_trip(), ms(800));
        advance(FRESH).await;
        assert_eq!(pace.round_trip(), ms(800));
        advance(ms(1)).await;
        assert_eq!(pace.round_trip(), Duration::ZERO, "nobody has asked since");
        pace.observe(ms(1));
        assert_eq!(pace.round_trip(), ms(1));
    }
}
