//! Whether this replica should be sent requests, and if not, why.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::store::Health;

/// What speaks against sending requests here. Cheap to clone.
#[derive(Clone)]
pub struct Readiness(Arc<State>);

struct State {
    health: Health,
    draining: AtomicBool,
    /// What the last look at the other replicas and at Redis's settings found.
    unfit: Mutex<Vec<String>>,
}

impl Readiness {
    /// Ready as far as the servers answer.
    pub fn new(health: Health) -> Self {
        let state = State { health, draining: AtomicBool::new(false), unfit: Mutex::default() };
        Self(Arc::new(state))
    }

    /// The process is about to end.
    pub fn drain(&self) {
        self.0.draining.store(true, Ordering::Relaxed);
    }

    /// Whether it is about to end.
    pub fn is_draining(&self) -> bool {
        self.0.draining.load(Ordering::Relaxed)
    }

    /// Whether that server does not answer.
    pub fn is_down(&self, server: &str) -> bool {
        self.0.health.down().any(|down| down == server)
    }

    /// Replaces what the last look found.
    pub fn set_unfit(&self, reasons: Vec<String>) {
        *self.0.unfit.lock().unwrap_or_else(PoisonError::into_inner) = reasons;
    }

    /// Why not; empty if ready.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons = self.0.health.reasons();
        if self.is_draining() {
            reasons.push("shutting down".into());
        }
        reasons.extend(self.0.unfit.lock().unwrap_or_else(PoisonError::into_inner).clone());
        reasons
    }
}
