//! The attempts of one acquisition, and what they leave when their caller goes away.
//!
//! An attempt runs in the caller's task. If the caller goes away in the middle, a task in the
//! background goes on with it and gives back what it brought. An attempt without an answer, and an
//! acquisition that leaves a queue, are abandoned in the background.

use tokio::time::Instant;

use crate::background::Background;
use crate::meter::Meter;
use crate::pace::Pace;
use crate::{Acquisition, Hold, LockError, Wake, failpoint};

type Outcome = Result<Option<Box<dyn Hold>>, LockError>;

pub(crate) struct Attempts {
    /// Away while an attempt is under way, and when there is nothing left to give back.
    acquisition: Option<Box<dyn Acquisition>>,
    background: Background,
    meter: Meter,
    pace: Pace,
}

impl Attempts {
    pub(crate) fn new(
        acquisition: Box<dyn Acquisition>,
        background: Background,
        (meter, pace): (Meter, Pace),
    ) -> Self {
        Self { acquisition: Some(acquisition), background, meter, pace }
    }

    /// One attempt.
    pub(crate) async fn attempt(&mut self) -> Outcome {
        let Some(mut acquisition) = self.acquisition.take() else { return Err(spent()) };
        self.meter.attempt();
        let sent = Instant::now();
        let work = async move {
            failpoint::reach(failpoint::BEFORE_ACQUIRE);
            let outcome = acquisition.attempt().await;
            failpoint::reach(failpoint::ACQUIRE_ANSWERED);
            (acquisition, outcome)
        };
        let (acquisition, outcome) = self.background.finish(work, give_back).await;
        if outcome.is_ok() {
            self.pace.observe(sent.elapsed());
        }
        match &outcome {
            Ok(None) => {
                self.meter.busy();
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
    pub(crate) fn wake(&mut self) -> Result<Wake<'_>, LockError> {
        self.acquisition.as_mut().map(|acquisition| acquisition.wake()).ok_or_else(spent)
    }

    /// Whether what the last attempt found in its way has no lease.
    pub(crate) fn is_endless(&self) -> bool {
        self.acquisition.as_ref().is_some_and(|acquisition| acquisition.is_endless())
    }

    /// A signal brought the lock: there is nothing left to give back.
    pub(crate) fn done(mut self) {
        self.acquisition = None;
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        if let Some(acquisition) = self.acquisition.take()
            && acquisition.is_queued()
        {
            self.background.spawn(abandon(acquisition));
        }
    }
}

/// Cannot happen: an acquisition is asked again only after an answer.
fn spent() -> LockError {
    LockError::Backend("the acquisition has ended".into())
}

fn give_back(
    (acquisition, outcome): (Box<dyn Acquisition>, Outcome),
) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        match outcome {
            Ok(Some(mut hold)) => {
                if let Err(error) = hold.release().await {
                    tracing::debug!(%error, "a lock nobody waits for is left to its lease");
                }
            }
            Ok(None) if !acquisition.is_queued() => {}
            _ => abandon(acquisition).await,
        }
    })
}

async fn abandon(mut acquisition: Box<dyn Acquisition>) {
    if let Err(error) = acquisition.abandon().await {
        tracing::debug!(%error, "what an attempt may have left ends with its lease");
    }
}
