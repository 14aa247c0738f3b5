//! Whether this replica should get requests, and if not, why.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::outbox::Outbox;
use crate::store::Health;

/// The reasons why this replica should get no requests. Cheap to clone.
#[derive(Clone)]
pub struct Readiness(Arc<ReadinessState>);

struct ReadinessState {
    health: Health,
    outbox: Outbox,
    draining: AtomicBool,
    /// The reasons that the last run of the fitness checks found.
    unfit: Mutex<Vec<String>>,
}

impl Readiness {
    /// Ready if the servers answer and login codes can be written.
    pub fn new(health: Health, outbox: Outbox) -> Self {
        let (draining, unfit) = (AtomicBool::new(false), Mutex::default());
        Self(Arc::new(ReadinessState { health, outbox, draining, unfit }))
    }

    /// Marks the process as shutting down.
    pub fn drain(&self) {
        self.0.draining.store(true, Ordering::Relaxed);
    }

    /// Whether the process is shutting down.
    pub fn is_draining(&self) -> bool {
        self.0.draining.load(Ordering::Relaxed)
    }

    /// The outbox of login codes.
    pub fn outbox(&self) -> &Outbox {
        &self.0.outbox
    }

    /// Whether that server does not answer.
    pub fn is_down(&self, server: &str) -> bool {
        self.0.health.down().any(|down| down == server)
    }

    /// Replaces the reasons of the fitness checks.
    pub fn set_unfit(&self, reasons: Vec<String>) {
        *self.0.unfit.lock().unwrap_or_else(PoisonError::into_inner) = reasons;
    }

    /// All reasons; empty if ready.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons = self.0.health.reasons();
        reasons.extend(self.0.outbox.reason());
        if self.is_draining() {
            reasons.push("shutting down".into());
        }
        reasons.extend(self.0.unfit.lock().unwrap_or_else(PoisonError::into_inner).clone());
        reasons
    }
}
