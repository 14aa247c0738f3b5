//! `local`: a fair mutex per name inside this process.
//!
//! What `synchronized` or `ReentrantLock` give a JVM. The turn itself is the hold; a waiter is
//! handed the turn, so nobody barges in between. It guarantees exclusion inside one process.
//! Flaw: two replicas do not see each other, so each lets one in. Shown by `loadtest compare`.

use async_trait::async_trait;

use crate::keyed::{KeyedMutex, Turn};
use crate::{
    Attempt, Belief, Fencing, Guarantees, Hold, HoldKind, Idempotence, LockError, Locker,
    OwnerCheck, Release, Request, Wake, WakeKind, Woken,
};

pub(crate) const GUARANTEES: Guarantees = Guarantees {
    hold: HoldKind::Process,
    renewal: false,
    wake: WakeKind::Message,
    owner_checked: OwnerCheck::Yes,
    idempotent: Idempotence::Yes,
    reentrant: false,
    fair: true,
    fencing: Fencing::No,
    flaws: &["replicas do not see each other"],
};

pub(crate) struct Local {
    names: KeyedMutex,
}

impl Local {
    pub(crate) fn new() -> Self {
        Self { names: KeyedMutex::new() }
    }
}

#[async_trait]
impl Locker for Local {
    fn guarantees(&self) -> Guarantees {
        GUARANTEES
    }

    async fn acquire(&self, request: &Request) -> Result<Attempt, LockError> {
        if let Some(turn) = self.names.try_lock(&request.name) {
            return Ok(Attempt::Held(Box::new(LocalHold(turn))));
        }
        let (names, name) = (self.names.clone(), request.name.clone());
        Ok(Attempt::Busy(Wake::Signal(Box::pin(async move {
            Woken::Held(Box::new(LocalHold(names.lock(&name).await)))
        }))))
    }

    async fn abandon(&self, _: &Request) -> Result<(), LockError> {
        Ok(())
    }
}

struct LocalHold(#[allow(dead_code, reason = "held for its drop")] Turn);

#[async_trait]
impl Hold for LocalHold {
    fn belief(&self) -> Belief {
        Belief::FOREVER
    }

    async fn release(self: Box<Self>) -> Result<Release, LockError> {
        Ok(Release::Released)
    }
}
