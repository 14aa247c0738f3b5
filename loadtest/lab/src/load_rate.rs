//! The rate of a round's load: how many users it sends, whether it was healthy before the fault,
//! and when it has recovered after it. After the fault only requests that were due after it
//! count. The answers of those that waited it out come all at once, and would look quick.

use std::time::{Duration, Instant};

use loadtest_judge::setting::Scope;
use loadtest_load::live::{LiveFigures, LiveSnapshot};
use loadtest_load::outcome::Outcome;
use loadtest_measure::error::{Error, Result};
use tokio::time::sleep;

use crate::cell_axes::Load;
use crate::cell_spec::{CellSpec, FAULT_WORK_MS};
use crate::lock::Lock;

/// Users who come per second: an open loop, so what a fault holds up is held up for all of them.
const USERS_PER_S: f64 = 50.0;
/// Users who come per second where purchases are locked in `ZooKeeper`. A purchase is up to seven
/// round trips to a JVM that has just started. At 50 users a second they saturate two processors.
const ZOOKEEPER_USERS_PER_S: f64 = 20.0;
/// Users who come per second where JVMs are among the replicas. They share two processors with the
/// servers and the load.
const JVM_USERS_PER_S: f64 = 20.0;
/// What a purchase takes besides its work where all follow one another, on a slow machine.
const PURCHASE_OVERHEAD_MS: u64 = 20;
/// Share of the deployment's capacity that a load uses where purchases follow one another.
const CAPACITY_SHARE: f64 = 0.5;
/// A load is healthy if at least this share of its rate is decided.
const MIN_ANSWERED_SHARE: f64 = 0.5;
/// Fewest answers and fewest purchases before a fault.
const MIN_ANSWERS: u64 = 30;
const MIN_BOUGHT: u64 = 5;
/// How long a load may take until it is healthy, and until something is in flight.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long throughput may take until it is back; it is measured, not demanded.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(5);
/// The least time that a load continues after a fault.
pub(super) const MIN_LOAD_AFTER_FAULT: Duration = Duration::from_millis(1200);
/// Throughput counts as recovered at this share of what it was before. Half a second has few
/// answers, and one or two of them may fall into the next sample.
const RECOVERED_SHARE: f64 = 0.9;
/// The rate is taken over this many samples.
const RATE_WINDOW_SAMPLES: usize = 5;
pub(super) const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// What a round asks of its deployment.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadRate {
    /// Users who come per second.
    pub(super) users_per_s: f64,
    /// Answers per second that must decide something before a fault.
    min_decided_per_s: Option<f64>,
}

impl LoadRate {
    /// A rate below the deployment's capacity, so that only the fault delays requests. A load with
    /// longer work than the matrix's exceeds the capacity, because its bug shows only where
    /// requests wait. Such a load needs purchases only, no rate of answers.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn of(trial: CellSpec, load: &Load) -> Self {
        if load.work_ms > FAULT_WORK_MS {
            return Self { users_per_s: USERS_PER_S, min_decided_per_s: None };
        }
        let per_user = load.requests_per_user as f64;
        let users_per_s = match trial.axes.scope {
            Scope::User if trial.axes.lock == Lock::Zookeeper => ZOOKEEPER_USERS_PER_S,
            Scope::User if load.fleet.has_jvms() => JVM_USERS_PER_S,
            Scope::User => USERS_PER_S,
            Scope::Voucher => {
                let capacity_per_s = 1000.0 / (load.work_ms + PURCHASE_OVERHEAD_MS) as f64;
                USERS_PER_S.min(CAPACITY_SHARE * capacity_per_s / per_user)
            }
        };
        Self { users_per_s, min_decided_per_s: Some(MIN_ANSWERED_SHARE * users_per_s * per_user) }
    }

    /// Why a load with these answers, and with that many decided per second lately, is not
    /// healthy; `None` if it is.
    fn why_unhealthy(&self, seen: &LiveSnapshot, decided_per_s: f64) -> Option<String> {
        let (answers, bought) = (seen.total(), seen.count(Outcome::Bought));
        if answers < MIN_ANSWERS {
            return Some(format!("{answers} answers are fewer than {MIN_ANSWERS}"));
        }
        if bought < MIN_BOUGHT {
            return Some(format!("{bought} purchases are fewer than {MIN_BOUGHT}"));
        }
        let min_decided_per_s = self.min_decided_per_s?;
        if decided_per_s < min_decided_per_s {
            return Some(format!(
                "{decided_per_s:.0} answers a second decided something, not {min_decided_per_s:.0}"
            ));
        }
        let waiting = seen.waiting;
        (waiting > 0).then(|| format!("{waiting} arrivals found no connection free"))
    }
}

/// Answers that decided something so far, looked at ten times a second.
pub(super) struct Samples<'a> {
    live: &'a LiveFigures,
    began: Instant,
    taken: Vec<(Duration, u64)>,
}

impl<'a> Samples<'a> {
    /// Begins to measure now, without a sample.
    pub(super) fn of(live: &'a LiveFigures) -> Self {
        Self { live, began: Instant::now(), taken: Vec::new() }
    }

    async fn take(&mut self) {
        self.taken.push((self.began.elapsed(), self.live.decided()));
        sleep(SAMPLE_INTERVAL).await;
    }

    /// Waits until that moment, until the load is healthy, and until a request is in flight; an
    /// error if the load does not get healthy.
    pub(super) async fn wait_until_due(
        &mut self,
        after_ms: u64,
        load_rate: LoadRate,
    ) -> Result<()> {
        let due = Duration::from_millis(after_ms);
        loop {
            let why_unhealthy = load_rate.why_unhealthy(&self.live.snapshot(), self.rate());
            match why_unhealthy {
                None if self.began.elapsed() >= due => break,
                Some(why) if self.began.elapsed() > START_TIMEOUT => {
                    return Err(Error::Unhealthy(why));
                }
                _ => self.take().await,
            }
        }
        let healthy = Instant::now();
        while self.live.in_flight() == 0 && healthy.elapsed() < START_TIMEOUT {
            sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Decided answers per second over the last samples.
    pub(super) fn rate(&self) -> f64 {
        let first = self.taken.len().checked_sub(RATE_WINDOW_SAMPLES + 1);
        match (first.and_then(|first| self.taken.get(first)), self.taken.last()) {
            (Some(first), Some(last)) => per_s(first, last),
            _ => 0.0,
        }
    }

    /// Waits until requests that are due from now on are decided at about the rate before the
    /// fault. Returns the milliseconds until then; `None` if it took too long, or if nothing was
    /// decided before.
    pub(super) async fn wait_until_recovered(&mut self, before_per_s: f64) -> Option<u64> {
        let healed = Instant::now();
        self.live.restart_counting();
        self.taken.clear();
        let (had_rate, mut recovered_after_ms) = (before_per_s > 0.0, None);
        while healed.elapsed() < MIN_LOAD_AFTER_FAULT
            || (had_rate && recovered_after_ms.is_none() && healed.elapsed() < RECOVERY_TIMEOUT)
        {
            self.take().await;
            let Some(first) = self.taken.len().checked_sub(RATE_WINDOW_SAMPLES + 1) else {
                continue;
            };
            if had_rate
                && recovered_after_ms.is_none()
                && self.rate() >= RECOVERED_SHARE * before_per_s
            {
                let began = self.taken[first].0.saturating_sub(healed.duration_since(self.began));
                recovered_after_ms = u64::try_from(began.as_millis()).ok();
            }
        }
        recovered_after_ms
    }
}

#[allow(clippy::cast_precision_loss)]
fn per_s((from, before): &(Duration, u64), (to, after): &(Duration, u64)) -> f64 {
    let seconds = to.saturating_sub(*from).as_secs_f64();
    if seconds > 0.0 { after.saturating_sub(*before) as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
#[path = "load_rate_tests.rs"]
mod tests;
