//! The names of `distlock` that the attribute's code uses, without what they do. The crate itself
//! would be compiled anew for these cases; its own tests run the attribute on real locks.

use std::time::Duration;

#[derive(Debug)]
pub struct LockError;

pub struct LockName;

#[derive(Default)]
pub struct LockOptions {
    pub wait: Duration,
}

pub struct Guarantees;

#[derive(Clone)]
pub struct Locks;

impl LockName {
    pub fn new(_name: String) -> Result<Self, LockError> {
        Ok(Self)
    }
}

impl LockOptions {
    pub const WATCHDOG_LEASE: Duration = Duration::from_secs(30);

    pub fn new(wait: Duration, _lease: Option<Duration>) -> Self {
        Self { wait }
    }
}

impl Guarantees {
    pub fn lease(&self, lease: Duration) -> Option<Duration> {
        Some(lease)
    }
}

impl Locks {
    pub fn guarantees(&self) -> Guarantees {
        Guarantees
    }

    pub async fn run<T>(
        &self,
        _name: &LockName,
        _options: &LockOptions,
        work: impl Future<Output = T>,
    ) -> Result<T, LockError> {
        Ok(work.await)
    }
}
