//! The loss of a lock, as the work under it learns of it.

use std::future::pending;
use std::sync::Arc;

use crate::hold_state::HoldState;
use crate::{LossCause, Validity};

/// Tells when a lock is lost.
#[derive(Clone)]
pub struct LostSignal(Option<Arc<HoldState>>);

impl LostSignal {
    /// `None` for a lock that cannot be lost.
    pub(crate) fn of(hold_state: Option<Arc<HoldState>>) -> Self {
        Self(hold_state)
    }

    /// Whether the lock is lost. It reads the clock, so a process that was frozen knows at its
    /// first instruction.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.as_ref().is_some_and(|hold_state| hold_state.is_lost())
    }

    /// Why, if it is.
    #[must_use]
    pub fn cause(&self) -> Option<LossCause> {
        self.0.as_ref()?.loss_cause()
    }

    /// The validity as of now.
    #[must_use]
    pub fn validity(&self) -> Validity {
        self.0.as_ref().map_or(Validity::UNBOUNDED, |hold_state| hold_state.validity())
    }

    /// Resolves at that moment; never for a lock that cannot be lost.
    pub async fn lost(&self) -> LossCause {
        match &self.0 {
            Some(hold_state) => hold_state.lost().await,
            None => pending().await,
        }
    }
}

impl std::fmt::Debug for LostSignal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LostSignal").field(&self.cause()).finish()
    }
}
