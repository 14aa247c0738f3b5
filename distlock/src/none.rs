//! `none`: no lock.
//!
//! How it works: every attempt succeeds. Guarantees nothing. It is the control of every comparison:
//! a harness that does not see it fail proves nothing. Tests:
//! `conformance/tests/flaws/no_exclusion.rs`, `loadtest compare`.

use futures_util::future::BoxFuture;

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

impl Acquisition for NoLock {
    fn attempt(&mut self) -> BoxFuture<'_, Result<Option<Box<dyn Hold>>, LockError>> {
        Box::pin(async move { Ok(Some(Box::new(NoLock) as Box<dyn Hold>)) })
    }

    fn abandon(&mut self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move { Ok(()) })
    }
}

impl Hold for NoLock {
    fn validity(&self) -> Validity {
        Validity::UNBOUNDED
    }

    fn release(&mut self) -> BoxFuture<'_, Result<Release, LockError>> {
        Box::pin(async move { Ok(Release::Released) })
    }
}
