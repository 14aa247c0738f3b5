//! `none`: no lock.
//!
//! How it works: every attempt succeeds. Guarantees nothing. It is the control of every comparison:
//! a harness that does not see it fail proves nothing. Tests:
//! `conformance/tests/flaws/no_exclusion.rs`, `loadtest compare`.

use async_trait::async_trait;

use crate::{
    Acquisition, Guarantees, Hold, LockError, LockKind, Locker, Release, Request, Validity,
    guarantees,
};

pub(crate) struct NoLock;

impl Locker for NoLock {
    fn name(&self) -> &'static str {
        LockKind::None.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::None)
    }

    fn begin(&self, _: Request) -> Box<dyn Acquisition> {
        Box::new(NoLock)
    }
}

#[async_trait]
impl Acquisition for NoLock {
    async fn attempt(&mut self) -> Result<Option<Box<dyn Hold>>, LockError> {
        Ok(Some(Box::new(NoLock)))
    }

    async fn abandon(&mut self) -> Result<(), LockError> {
        Ok(())
    }
}

#[async_trait]
impl Hold for NoLock {
    fn validity(&self) -> Validity {
        Validity::UNBOUNDED
    }

    async fn release(&mut self) -> Result<Release, LockError> {
        Ok(Release::Released)
    }
}
