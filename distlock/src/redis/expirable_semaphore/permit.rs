//! A permit that was taken: how it is given back, renewed and lost.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::Instant;
use uuid::Uuid;

use super::super::keys::ms;
use super::super::once::forget;
use super::super::renew::{per_slot, renewals};
use super::super::script::LuaScript;
use super::{ExpirableSemaphore, Taking, permits_key};
use crate::guard::{Guard, Held};
use crate::tenure::Tenure;
use crate::{
    Belief, Hold, Lease, LockError, Loss, LossCause, Owner, RedisConnection, Release, Renewal,
    Renewer, Request, Upkeep,
};

/// A permit that was taken. One that is merely dropped is given back in the background, also if its
/// holder panics.
#[must_use = "dropping the permit gives it back"]
pub struct Permit(Guard);

impl Permit {
    /// A permit that was asked for at `sent`. Its renewal starts before the caller sees it.
    pub(super) fn new(taking: &Taking, sent: Instant) -> Self {
        let (semaphore, length) = (&taking.semaphore, taking.lease.length());
        let belief = Belief::in_lease(sent, length);
        let request = Request {
            name: semaphore.0.name.clone(),
            owner: taking.id.clone(),
            may_hold: false,
            id: Uuid::new_v4(),
            lease: length,
        };
        let shared = &semaphore.0.shared;
        let latch = semaphore.latch(&request.id);
        let hold = PermitHold { semaphore: semaphore.clone(), request, belief, latch };
        let tenure = Tenure::new(belief, &shared.pulse);
        let kept = match taking.lease {
            Lease::Renewed(_) => hold.upkeep(),
            Lease::Fixed(_) => None,
        }
        .map(|upkeep| shared.watchdog.keep(upkeep, Arc::clone(&tenure), Belief::FOREVER));
        let guarded = Held {
            hold: Box::new(hold),
            tenure,
            kept,
            turn: None,
            share: None,
            idempotent: true,
            meter: shared.expirable_meter.clone(),
            since: Instant::now(),
        };
        Self(Guard::new(guarded, taking.id.clone(), shared.background.clone(), None))
    }

    /// Its id: nobody else ever had it.
    pub fn id(&self) -> &Owner {
        self.0.owner()
    }

    /// Whether it can no longer be believed in. Work looks at this before each effect.
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Resolves when it is lost.
    pub async fn lost(&self) -> LossCause {
        self.0.lost().await
    }

    /// A handle that the work can carry, to notice the loss.
    pub fn loss(&self) -> Loss {
        self.0.loss()
    }

    /// Until when it may be believed in, as of now; the watchdog moves it on.
    pub fn belief(&self) -> Belief {
        self.0.belief()
    }

    /// Gives it back. [`Release::Gone`] if its lease had ended, or somebody gave it back by its id.
    /// It goes on if the future is dropped; if it fails the permit is left to its lease.
    pub async fn release(self) -> Result<Release, LockError> {
        self.0.release().await
    }

    /// Lets somebody else give it back: [`ExpirableSemaphore::release`]. Nobody renews it any more;
    /// it ends with its lease at the latest.
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
    belief: Belief,
    /// Of the release.
    latch: String,
}

#[async_trait]
impl Hold for PermitHold {
    fn belief(&self) -> Belief {
        self.belief
    }

    fn upkeep(&self) -> Option<Upkeep> {
        let renewer = Arc::clone(&self.semaphore.0.shared.renewer) as _;
        Some(Upkeep { renewer, request: self.request.clone() })
    }

    async fn release(&mut self) -> Result<Release, LockError> {
        let answer = self.semaphore.send_release(&self.request.owner, &self.latch).await?;
        forget(&self.semaphore.0.server, &self.latch).await;
        Ok(if answer.value == 1 { Release::Released } else { Release::Gone })
    }
}

/// Renews permits of all semaphores of a server, many with one script.
pub(crate) struct PermitRenewer {
    connection: RedisConnection,
    script: LuaScript,
}

impl PermitRenewer {
    pub(crate) fn new(connection: RedisConnection) -> Self {
        let script = LuaScript::new(include_str!("../../../lua/expirable_renew.lua"));
        Self { connection, script }
    }
}

#[async_trait]
impl Renewer for PermitRenewer {
    async fn renew(&self, holds: &[Request]) -> Vec<Renewal> {
        per_slot(&self.connection, holds, |holds| self.renew_together(holds)).await
    }
}

impl PermitRenewer {
    async fn renew_together(&self, holds: Vec<Request>) -> Vec<Renewal> {
        let sent = Instant::now();
        let keys: Vec<_> = holds.iter().map(|hold| permits_key(&hold.name)).collect();
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let args: Vec<_> = holds
            .iter()
            .flat_map(|hold| [hold.owner.to_string(), ms(hold.lease).to_string()])
            .collect();
        let mut connection = self.connection.clone();
        renewals(sent, &holds, self.script.call(&mut connection, &keys, args).await)
    }
}
