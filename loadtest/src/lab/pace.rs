//! The pace of a round's load: what it asks for, whether it was healthy before the fault, and when
//! as many answers decide something again after it. After it only requests count that were to leave
//! after it: the answers of those who waited it out come all at once, and would look quick.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::error::{Error, Result};
use crate::lab::place::Load;
use crate::lab::predict::Scope;
use crate::lab::trial::{FAULT_WORK_MS, Trial};
use crate::load::live::{Glance, Live};
use crate::load::outcome::Outcome;

/// Users who come per second: an open loop, so what a fault holds up is held up for all of them.
const USERS_PER_S: f64 = 50.0;
/// What a purchase takes besides its work where all follow one another, on a slow machine.
const APART_MS: u64 = 20;
/// Of what purchases that follow one another can be, so many are asked for.
const OF_CAPACITY: f64 = 0.5;
/// A load is healthy that is answered at this part of its pace.
const HEALTHY: f64 = 0.5;
/// Fewest answers and fewest purchases before a fault.
const MIN_ANSWERS: u64 = 30;
const MIN_BOUGHT: u64 = 5;
/// How long a load may take until it is healthy, and until something is in flight.
const STARTS_WITHIN: Duration = Duration::from_secs(10);
/// How long throughput may take until it is back; it is measured, not demanded.
const BACK_WITHIN: Duration = Duration::from_secs(5);
/// The least time that a load goes on after a fault.
pub(super) const AFTER: Duration = Duration::from_millis(1200);
/// Throughput counts as back at this part of what it was before: of as few answers as come in half a
/// second, one or two are now in this sample and now in the next.
const BACK: f64 = 0.9;
/// Over this many samples.
const WINDOW: usize = 5;
pub(super) const SAMPLE: Duration = Duration::from_millis(100);

/// What a round asks of its deployment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Users who come per second.
    pub(super) users_per_s: f64,
    /// Answers per second that must decide something before a fault.
    steady_per_s: Option<f64>,
}

impl Pace {
    /// Less than the deployment can do, so that it is the fault that holds anything up. But a load
    /// whose work is longer than that of the matrix is a crowd that waits on purpose, because what
    /// it is to show is in the waiting: of it only purchases are demanded.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn of(trial: Trial, load: &Load) -> Self {
        if load.work_ms > FAULT_WORK_MS {
            return Self { users_per_s: USERS_PER_S, steady_per_s: None };
        }
        let per_user = load.requests_per_user as f64;
        let users_per_s = match trial.place.scope {
            Scope::User => USERS_PER_S,
            Scope::Voucher => {
                let capacity_per_s = 1000.0 / (load.work_ms + APART_MS) as f64;
                USERS_PER_S.min(OF_CAPACITY * capacity_per_s / per_user)
            }
        };
        Self { users_per_s, steady_per_s: Some(HEALTHY * users_per_s * per_user) }
    }

    /// Why a load that was answered so, and whose last answers decided so much per second, is not
    /// healthy; `None` if it is.
    fn ails(&self, seen: &Glance, decided_per_s: f64) -> Option<String> {
        let (answers, bought) = (seen.total(), seen.count(Outcome::Bought));
        if answers < MIN_ANSWERS {
            return Some(format!("{answers} answers are fewer than {MIN_ANSWERS}"));
        }
        if bought < MIN_BOUGHT {
            return Some(format!("{bought} purchases are fewer than {MIN_BOUGHT}"));
        }
        let steady_per_s = self.steady_per_s?;
        if decided_per_s < steady_per_s {
            return Some(format!(
                "{decided_per_s:.0} answers a second decided something, not {steady_per_s:.0}"
            ));
        }
        let waiting = seen.waiting;
        (waiting > 0).then(|| format!("{waiting} arrivals found no connection free"))
    }
}

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
        self.taken.push((self.began.elapsed(), self.live.decided()));
        sleep(SAMPLE).await;
    }

    /// Until that moment, until the load is healthy, and until a request is in flight; an error if
    /// it does not get healthy.
    pub(super) async fn until_due(&mut self, after_ms: u64, pace: Pace) -> Result<()> {
        let due = Duration::from_millis(after_ms);
        loop {
            let ails = pace.ails(&self.live.glance(), self.rate());
            match ails {
                None if self.began.elapsed() >= due => break,
                Some(why) if self.began.elapsed() > STARTS_WITHIN => {
                    return Err(Error::Unhealthy(why));
                }
                _ => self.take().await,
            }
        }
        let healthy = Instant::now();
        while self.live.in_flight() == 0 && healthy.elapsed() < STARTS_WITHIN {
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

    /// Goes on until about as many are decided per second as before, of requests that were to leave
    /// from now on; milliseconds until then. Where nothing was decided before, there is nothing
    /// that could come back.
    pub(super) async fn until_back(&mut self, before_per_s: f64) -> Option<u64> {
        let healed = Instant::now();
        self.live.count_anew();
        self.taken.clear();
        let (had_pace, mut back_after_ms) = (before_per_s > 0.0, None);
        while healed.elapsed() < AFTER
            || (had_pace && back_after_ms.is_none() && healed.elapsed() < BACK_WITHIN)
        {
            self.take().await;
            let Some(first) = self.taken.len().checked_sub(WINDOW + 1) else { continue };
            if had_pace && back_after_ms.is_none() && self.rate() >= BACK * before_per_s {
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

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
