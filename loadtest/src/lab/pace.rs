//! The pace of a round's load: when it has got going, how many answers a second decided something
//! before the fault, and when as many come again after it.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::error::{Error, Result};
use crate::lab::round::MIN_REQUESTS_BEFORE;
use crate::load::live::{Glance, Live};
use crate::load::outcome::Outcome;

/// How long a load may take until it sells, and until something is in flight.
const STARTS_WITHIN: Duration = Duration::from_secs(10);
/// How long throughput may take until it is back; it is measured, not demanded.
const BACK_WITHIN: Duration = Duration::from_secs(5);
/// The least time that a load goes on after a fault.
pub(super) const AFTER: Duration = Duration::from_millis(1200);
/// Throughput counts as back at this part of what it was before.
const BACK: f64 = 0.99;
/// Over this many samples.
const WINDOW: usize = 5;
pub(super) const SAMPLE: Duration = Duration::from_millis(100);
/// A load that answers as many per second has got going: half of what its pace asks for. One that
/// does not get there is struck anyway.
const STEADY_PER_S: f64 = 75.0;
const STEADY_WITHIN: Duration = Duration::from_millis(1500);

/// Answers that decided something so far, looked at ten times a second.
pub(super) struct Samples<'a> {
    live: &'a Live,
    began: Instant,
    taken: Vec<(Duration, u64)>,
}

impl<'a> Samples<'a> {
    /// From now on, none taken yet.
    pub(super) fn of(live: &'a Live) -> Self {
        Self { live, began: Instant::now(), taken: Vec::new() }
    }

    async fn take(&mut self) {
        self.taken.push((self.began.elapsed(), decided(&self.live.glance())));
        sleep(SAMPLE).await;
    }

    /// Until that moment, and until a request is in flight after something was sold.
    pub(super) async fn until_due(&mut self, after_ms: u64) -> Result<()> {
        let due = Duration::from_millis(after_ms);
        while self.began.elapsed() < due || self.live.glance().total() < MIN_REQUESTS_BEFORE {
            if self.began.elapsed() > STARTS_WITHIN {
                let total = self.live.glance().total();
                return Err(Error::Setup(format!("only {total} answers before the fault")));
            }
            self.take().await;
        }
        // A machine that is slow to get going would make little of much.
        while self.rate() < STEADY_PER_S && self.began.elapsed() < due + STEADY_WITHIN {
            self.take().await;
        }
        while self.live.in_flight() == 0 && self.began.elapsed() < due + STARTS_WITHIN {
            sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Per second over the last samples.
    pub(super) fn rate(&self) -> f64 {
        let first = self.taken.len().checked_sub(WINDOW + 1);
        match (first.and_then(|first| self.taken.get(first)), self.taken.last()) {
            (Some(first), Some(last)) => per_s(first, last),
            _ => 0.0,
        }
    }

    /// Goes on until as many are decided per second as before; milliseconds until then.
    pub(super) async fn until_back(&mut self, before_per_s: f64) -> Option<u64> {
        let healed = Instant::now();
        self.taken.clear();
        let mut back_after_ms = None;
        while healed.elapsed() < BACK_WITHIN
            && (healed.elapsed() < AFTER || back_after_ms.is_none())
        {
            self.take().await;
            let Some(first) = self.taken.len().checked_sub(WINDOW + 1) else { continue };
            if back_after_ms.is_none() && self.rate() >= BACK * before_per_s {
                let began = self.taken[first].0.saturating_sub(healed.duration_since(self.began));
                back_after_ms = u64::try_from(began.as_millis()).ok();
            }
        }
        back_after_ms
    }
}

#[allow(clippy::cast_precision_loss)]
fn per_s((from, before): &(Duration, u64), (to, after): &(Duration, u64)) -> f64 {
    let seconds = to.saturating_sub(*from).as_secs_f64();
    if seconds > 0.0 { after.saturating_sub(*before) as f64 / seconds } else { 0.0 }
}

/// Answers that decided something.
pub(super) fn decided(glance: &Glance) -> u64 {
    let outcomes = [Outcome::Bought, Outcome::SoldOut, Outcome::AlreadyOrdered];
    outcomes.iter().map(|outcome| glance.count(*outcome)).sum()
}
