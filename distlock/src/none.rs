//! `none`: no lock.
//!
//! Everybody enters at once. It is the red end of every comparison: a harness that does not see
//! it fail proves nothing. Shown by `loadtest compare`.

use async_trait::async_trait;

use crate::{
    Attempt, Belief, Fencing, Guarantees, Hold, HoldKind, Idempotence, LockError, Locker,
    OwnerCheck, Release, Request, WakeKind,
};

pub(crate) const GUARANTEES: Guarantees = Guarantees {
    hold: HoldKind::Nothing,
    renewal: false,
    wake: WakeKind::Never,
    owner_checked: OwnerCheck::NotApplicable,
    idempotent: Idempotence::NotApplicable,
    reentrant: false,
    fair: false,
    fencing: Fencing::NotApplicable,
    flaws: &["excludes nobody"],
};

pub(crate) struct NoLock;

#[async_trait]
impl Locker for NoLock {
    fn guarantees(&self) -> Guarantees {
        GUARANTEES
    }

    async fn acquire(&self, _: &Request) -> Result<Attempt, LockError> {
        Ok(Attempt::Held(Box::new(Nothing)))
    }

    async fn abandon(&self, _: &Request) -> Result<(), LockError> {
        Ok(())
    }
}

struct Nothing;

#[async_trait]
impl Hold for Nothing {
    fn belief(&self) -> Belief {
        Belief::FOREVER
    }

    async fn release(self: Box<Self>) -> Result<Release, LockError> {
        Ok(Release::Released)
    }
}
