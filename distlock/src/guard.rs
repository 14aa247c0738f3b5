//! What a caller holds.

use std::future::ready;

use tokio::time::sleep_until;

use crate::background::Background;
use crate::keyed::Turn;
use crate::stage::StageTurn;
use crate::{Belief, Hold, LockError, Release};

/// A held lock. Release it with [`Guard::release`]; a guard that is merely dropped is released
/// in the background.
#[must_use = "dropping the guard releases the lock"]
pub struct Guard {
    held: Option<Held>,
    belief: Belief,
    background: Background,
}

/// The hold on the server, then the turn in the process: freed in that order.
struct Held {
    hold: Box<dyn Hold>,
    turn: Option<StageTurn>,
}

impl Held {
    async fn release(self) -> Result<Release, LockError> {
        let outcome = self.hold.release().await;
        drop(self.turn);
        outcome
    }
}

impl Guard {
    pub(crate) fn new(hold: Box<dyn Hold>, turn: Option<Turn>, background: Background) -> Self {
        let belief = hold.belief();
        let turn = turn.map(|turn| StageTurn::new(turn, belief, &background));
        Self { held: Some(Held { hold, turn }), belief, background }
    }

    /// Whether the lock can no longer be believed in. Work looks at this before each effect.
    pub fn is_lost(&self) -> bool {
        self.belief.is_over()
    }

    /// A handle that the work can carry, to notice the loss.
    pub fn loss(&self) -> Loss {
        Loss(self.belief)
    }

    /// Frees the lock and says how that ended. The release goes on if the future is dropped.
    pub async fn release(mut self) -> Result<Release, LockError> {
        let Some(held) = self.held.take() else { return Ok(Release::Gone) };
        self.background
            .finish(held.release(), |outcome| {
                note(outcome);
                Box::pin(ready(()))
            })
            .await
    }

    /// Gives the lock up without freeing it: the server keeps everybody out until the lease ends.
    /// For a holder that does not know what it has done. A lock without a lease is freed.
    pub fn leave_to_lease(mut self) {
        drop(self.held.take());
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        self.background.spawn(async move { note(held.release().await) });
    }
}

/// Nobody waits for this outcome.
fn note(outcome: Result<Release, LockError>) {
    if let Err(error) = outcome {
        tracing::debug!(%error, "a dropped lock is left to its lease");
    }
}

/// Tells when a lock is lost.
#[derive(Debug, Clone, Copy)]
pub struct Loss(Belief);

impl Loss {
    /// Whether the lock can no longer be believed in.
    pub fn is_lost(self) -> bool {
        self.0.is_over()
    }

    /// Resolves at that moment; never for a lock that cannot be lost.
    pub async fn lost(self) {
        match self.0.deadline() {
            Some(deadline) => sleep_until(deadline.into()).await,
            None => std::future::pending().await,
        }
    }
}
