//! A permit that was taken: how it is given back, renewed and lost.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use uuid::Uuid;

use super::super::idempotent_call::delete_latches;
use super::{ExpirablePermitRequest, ExpirableSemaphore};
use crate::guard::{Guard, HoldResources};
use crate::hold_state::HoldState;
use crate::{
    Hold, Lease, LockError, LossCause, LostSignal, Owner, Release, RenewalTarget, Request, Validity,
};

/// A permit that was taken. One that is merely dropped is given back in the background, also if its
/// holder panics.
#[must_use = "dropping the permit gives it back"]
pub struct Permit(Guard);

impl Permit {
    /// A permit that was asked for at `sent`. Its renewal starts before the caller sees it.
    pub(super) fn new(permit_request: &ExpirablePermitRequest, sent: Instant) -> Self {
        let (semaphore, length) = (&permit_request.semaphore, permit_request.lease.length());
        let validity = Validity::of_lease(sent, length);
        let request = Request {
            name: semaphore.0.name.clone(),
            owner: permit_request.id.clone(),
            may_hold: false,
            id: Uuid::new_v4(),
            lease: length,
        };
        let shared = &semaphore.0.shared;
        let latch = semaphore.latch(&request.id);
        let hold = PermitHold { semaphore: semaphore.clone(), request, validity, latch };
        let hold_state = HoldState::new(validity, &shared.ticker);
        let registration = match permit_request.lease {
            Lease::Renewed(_) => hold.renewal_target(),
            Lease::Fixed(_) => None,
        }
        .map(|renewal_target| {
            shared.watchdog.register(renewal_target, Arc::clone(&hold_state), Validity::UNBOUNDED)
        });
        let resources = HoldResources {
            hold: Box::new(hold),
            hold_state,
            registration,
            key_guard: None,
            ownership: None,
            idempotent: true,
            has_renewable_lease: true,
            metrics: shared.expirable_metrics.clone(),
            since: Instant::now(),
            span: None,
            _deadlock_entry: None,
            loss_report: None,
        };
        Self(Guard::new(resources, permit_request.id.clone(), shared.background.clone(), None))
    }

    /// The id of the permit, unique for ever.
    pub fn id(&self) -> &Owner {
        self.0.owner()
    }

    /// Whether the permit is lost. Work checks this before each effect.
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Resolves when it is lost.
    pub async fn lost(&self) -> LossCause {
        self.0.lost().await
    }

    /// A handle that the work can carry, to notice the loss.
    pub fn lost_signal(&self) -> LostSignal {
        self.0.lost_signal()
    }

    /// The validity as of now; each renewal extends it.
    pub fn validity(&self) -> Validity {
        self.0.validity()
    }

    /// Releases the permit. Returns [`Release::Gone`] if its lease had ended, or if it was released
    /// by its id. It continues if the future is dropped. If it fails, the permit is left to its
    /// lease.
    pub async fn release(self) -> Result<Release, LockError> {
        self.0.release().await
    }

    /// Ends the renewal, so that another process can release the permit by its id:
    /// [`ExpirableSemaphore::release`]. It ends with its lease at the latest.
    pub fn into_id(self) -> Owner {
        let id = self.0.owner().clone();
        self.0.leave_to_lease();
        id
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permit").field("id", self.id()).finish_non_exhaustive()
    }
}

struct PermitHold {
    semaphore: ExpirableSemaphore,
    request: Request,
    validity: Validity,
    /// Of the release.
    latch: String,
}

impl Hold for PermitHold {
    fn validity(&self) -> Validity {
        self.validity
    }

    fn renewal_target(&self) -> Option<RenewalTarget> {
        let renewer = Arc::clone(&self.semaphore.0.shared.renewer) as _;
        Some(RenewalTarget { renewer, request: self.request.clone() })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<Release, LockError>> {
        Box::pin(async move {
            let answer = self.semaphore.send_release(&self.request.owner, &self.latch).await?;
            delete_latches(&self.semaphore.0.server, &self.latch).await;
            Ok(if answer.value == 1 { Release::Released } else { Release::Gone })
        })
    }
}
