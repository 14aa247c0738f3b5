//! The attempts of one acquisition, and what they leave when their caller goes away.
//!
//! An attempt runs in the caller's task. If the caller is dropped during an attempt, a background
//! task finishes the attempt and releases the hold that it returns. An attempt without an answer is
//! abandoned in the background, and so is an acquisition that leaves a queue.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::background::BackgroundTasks;
use crate::lock_metrics::LockMetrics;
use crate::round_trip::RoundTripEstimator;
use crate::{Acquisition, Hold, LockError, WakeStrategy, failpoint};

/// How long a wait that is over may ask whether what was in its way has an expiry.
const EXPIRY_TIMEOUT: Duration = Duration::from_millis(100);

type AttemptResult = Result<Option<Box<dyn Hold>>, LockError>;

pub(crate) struct AcquireAttempts {
    /// Away while an attempt is under way, and when there is nothing left to give back.
    acquisition: Option<Box<dyn Acquisition>>,
    background: BackgroundTasks,
    metrics: LockMetrics,
    round_trips: RoundTripEstimator,
}

impl AcquireAttempts {
    pub(crate) fn new(
        acquisition: Box<dyn Acquisition>,
        background: BackgroundTasks,
        (metrics, round_trips): (LockMetrics, RoundTripEstimator),
    ) -> Self {
        Self { acquisition: Some(acquisition), background, metrics, round_trips }
    }

    /// One attempt.
    pub(crate) async fn attempt(&mut self) -> AttemptResult {
        let Some(mut acquisition) = self.acquisition.take() else {
            return Err(acquisition_ended());
        };
        self.metrics.record_attempt();
        let sent = Instant::now();
        let work = async move {
            failpoint::reach(failpoint::BEFORE_ACQUIRE);
            let outcome = acquisition.attempt().await;
            failpoint::reach(failpoint::ACQUIRE_ANSWERED);
            (acquisition, outcome)
        };
        let (acquisition, outcome) = self.background.finish(work, give_back).await;
        if outcome.is_ok() {
            self.round_trips.observe(sent.elapsed());
        }
        match &outcome {
            Ok(None) => {
                self.metrics.record_contention();
                self.acquisition = Some(acquisition);
            }
            Err(error) if error.is_unknown() || acquisition.is_queued() => {
                self.background.spawn(abandon(acquisition));
            }
            Ok(Some(_)) | Err(_) => {}
        }
        outcome
    }

    /// When to look again.
    pub(crate) fn wake_strategy(&mut self) -> Result<WakeStrategy<'_>, LockError> {
        self.acquisition
            .as_mut()
            .map(|acquisition| acquisition.wake_strategy())
            .ok_or_else(acquisition_ended)
    }

    /// Whether what the last attempt found in its way has no lease.
    pub(crate) async fn has_no_expiry(&mut self) -> bool {
        let Some(acquisition) = &mut self.acquisition else { return false };
        timeout(EXPIRY_TIMEOUT, acquisition.has_no_expiry()).await.unwrap_or(false)
    }

    /// A signal brought the lock: there is nothing left to give back.
    pub(crate) fn finish(mut self) {
        self.acquisition = None;
    }
}

impl Drop for AcquireAttempts {
    fn drop(&mut self) {
        if let Some(acquisition) = self.acquisition.take()
            && acquisition.is_queued()
        {
            self.background.spawn(abandon(acquisition));
        }
    }
}

/// Cannot happen: an acquisition is asked again only after an answer.
fn acquisition_ended() -> LockError {
    LockError::Backend("the acquisition has ended".into())
}

fn give_back(
    (acquisition, outcome): (Box<dyn Acquisition>, AttemptResult),
) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        match outcome {
            Ok(Some(mut hold)) => {
                if let Err(error) = hold.release().await {
                    tracing::debug!(%error, "unwanted lock not released; it ends with its lease");
                }
            }
            Ok(None) if !acquisition.is_queued() => {}
            _ => abandon(acquisition).await,
        }
    })
}

async fn abandon(mut acquisition: Box<dyn Acquisition>) {
    if let Err(error) = acquisition.abandon().await {
        tracing::debug!(%error, "abandoned attempt not cleaned up; its lock ends with its lease");
    }
}
