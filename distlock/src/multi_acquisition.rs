//! The acquisition of a `multi`: its members one after the other, in their order.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use uuid::Uuid;

use crate::multi_hold::MultiHold;
use crate::{Acquisition, Guarantees, Hold, LockError, Locker, Request, WakeEvent, WakeStrategy};

/// One member of an acquisition.
pub(crate) struct MultiMember {
    locker: Arc<dyn Locker>,
    request: Request,
    acquisition: Option<Box<dyn Acquisition>>,
    hold: Option<Box<dyn Hold>>,
    /// It is not asked again.
    failed: bool,
}

impl MultiMember {
    pub(crate) fn new(locker: Arc<dyn Locker>, request: Request) -> Self {
        Self { locker, request, acquisition: None, hold: None, failed: false }
    }

    /// Whether it is held now.
    async fn attempt(&mut self) -> Result<bool, LockError> {
        if self.hold.is_none() {
            let begin = || self.locker.begin(self.request.clone());
            self.hold = self.acquisition.get_or_insert_with(begin).attempt().await?;
        }
        Ok(self.hold.is_some())
    }

    /// Gives back what was taken, or leaves the queue; what is asked for next is another request.
    async fn abandon(&mut self) -> Result<(), LockError> {
        let Guarantees { idempotent, reentrant, .. } = self.locker.guarantees();
        if let Some(hold) = &mut self.hold {
            let outcome = hold.release().await;
            // Without an answer it is kept, to be released once more if that counts once.
            if outcome.is_ok() || !idempotent.is_yes() {
                self.hold = None;
            }
            outcome?;
        } else if let Some(acquisition) = &mut self.acquisition {
            acquisition.abandon().await?;
        }
        self.acquisition = None;
        self.request.id = Uuid::new_v4();
        // A server may carry the release out later. A member for re-entry keeps its owner.
        if !reentrant.is_yes() {
            self.request.owner = self.locker.fresh_owner().tagged_as(&self.request.owner);
        }
        Ok(())
    }

    /// Abandons the member; a failure changes nothing.
    async fn leave(&mut self) {
        if let Err(error) = self.abandon().await {
            tracing::debug!(%error, "member not released; it ends with its lease");
        }
    }

    fn is_queued(&self) -> bool {
        self.hold.is_some() || self.acquisition.as_ref().is_some_and(|place| place.is_queued())
    }
}

pub(crate) struct MultiAcquisition {
    members: Vec<MultiMember>,
    tolerated: usize,
    /// The member that was busy at the last attempt.
    busy: usize,
}

impl MultiAcquisition {
    /// Of all members but as many as are `tolerated`.
    pub(crate) fn new(members: Vec<MultiMember>, tolerated: usize) -> Self {
        Self { members, tolerated, busy: 0 }
    }

    /// Nothing is held, and no other queue is stood in than that of the member to wait for. Fails
    /// if one of them does not answer: it must not be asked again as the same owner.
    async fn step_back(&mut self, wait_for: Option<usize>) -> Result<(), LockError> {
        let mut outcome = Ok(());
        for (number, place) in self.members.iter_mut().enumerate().rev() {
            if place.is_queued() && wait_for != Some(number) {
                outcome = place.abandon().await.and(outcome);
            }
        }
        outcome
    }

    /// Of the members that the whole does without.
    async fn leave_queues(&mut self) {
        let missing = self.members.iter_mut().filter(|place| place.hold.is_none());
        for place in missing.filter(|place| place.is_queued()) {
            place.leave().await;
        }
    }

    /// Takes the members that are missing, in their order; whether as many are held as the whole
    /// needs.
    async fn take_members(&mut self) -> Result<bool, LockError> {
        let mut busy = 0;
        let mut failed = self.members.iter().filter(|place| place.failed).count();
        for number in 0..self.members.len() {
            let place = &mut self.members[number];
            if place.failed {
                continue;
            }
            match place.attempt().await {
                Ok(true) => continue,
                Ok(false) => {
                    self.busy = number;
                    busy += 1;
                }
                Err(error) => {
                    // Whether it was taken or not: it is given back.
                    place.leave().await;
                    place.failed = true;
                    failed += 1;
                    if failed > self.tolerated {
                        if let Err(error) = self.step_back(None).await {
                            tracing::debug!(%error, "members not released; the background retries");
                        }
                        return Err(error);
                    }
                }
            }
            if busy + failed > self.tolerated {
                self.step_back(Some(self.busy)).await?;
                return Ok(false);
            }
        }
        self.leave_queues().await;
        Ok(true)
    }

    fn held(&mut self) -> Box<dyn Hold> {
        let members: Vec<_> = self
            .members
            .iter_mut()
            .filter_map(|place| {
                place.acquisition = None;
                place.hold.take()
            })
            .collect();
        let spare = self.tolerated + members.len() - self.members.len();
        let id = self.members.first().map(|place| place.request.clone());
        Box::new(MultiHold::new(members, spare, id))
    }
}

impl Acquisition for MultiAcquisition {
    fn attempt(&mut self) -> BoxFuture<'_, Result<Option<Box<dyn Hold>>, LockError>> {
        Box::pin(async move { Ok(self.take_members().await?.then(|| self.held())) })
    }

    fn wake_strategy(&mut self) -> WakeStrategy<'_> {
        let Some(MultiMember { acquisition: Some(acquisition), hold, .. }) =
            self.members.get_mut(self.busy)
        else {
            return WakeStrategy::Poll;
        };
        match acquisition.wake_strategy() {
            WakeStrategy::Poll => WakeStrategy::Poll,
            WakeStrategy::Signal(signal) => WakeStrategy::Signal(Box::pin(async move {
                if let WakeEvent::Acquired { hold: taken, .. } = signal.await? {
                    *hold = Some(taken);
                }
                Ok(WakeEvent::Retry)
            })),
        }
    }

    fn has_no_expiry(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let busy = self.members.get_mut(self.busy).and_then(|place| place.acquisition.as_mut());
            match busy {
                Some(acquisition) => acquisition.has_no_expiry().await,
                None => false,
            }
        })
    }

    fn is_queued(&self) -> bool {
        self.members.iter().any(MultiMember::is_queued)
    }

    fn abandon(&mut self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move {
            let mut outcome = Ok(());
            for place in self.members.iter_mut().rev() {
                outcome = place.abandon().await.and(outcome);
            }
            outcome
        })
    }
}
