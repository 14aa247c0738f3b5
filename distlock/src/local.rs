//! `local`: a fair mutex per name inside this process.
//!
//! What `synchronized` or `ReentrantLock` give a JVM. The turn itself is the hold; a waiter is
//! handed the turn, so nobody barges in between. It guarantees exclusion inside one process.
//! Flaw: two replicas do not see each other, so each lets one in. Shown by
//! `conformance/tests/flaws/nobody_shares.rs` and `loadtest compare`.

use async_trait::async_trait;

use crate::keyed::{KeyedMutex, Turn};
use crate::{
    Acquisition, Belief, Guarantees, Hold, LockError, LockKind, LockName, Locker, Release, Request,
    Wake, Woken, guarantees,
};

pub(crate) struct Local {
    names: KeyedMutex,
}

impl Local {
    pub(crate) fn new() -> Self {
        Self { names: KeyedMutex::new() }
    }
}

impl Locker for Local {
    fn name(&self) -> &'static str {
        LockKind::Local.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::Local)
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        Box::new(LocalAcquisition { names: self.names.clone(), name: request.name })
    }
}

struct LocalAcquisition {
    names: KeyedMutex,
    name: LockName,
}

#[async_trait]
impl Acquisition for LocalAcquisition {
    async fn attempt(&mut self) -> Result<Option<Box<dyn Hold>>, LockError> {
        let turn = self.names.try_lock(&self.name);
        Ok(turn.map(|turn| Box::new(LocalHold(Some(turn))) as Box<dyn Hold>))
    }

    fn wake(&mut self) -> Wake<'_> {
        Wake::Signal(Box::pin(async {
            let turn = self.names.lock(&self.name).await;
            let since = turn.free_since();
            Ok(Woken::Held { hold: Box::new(LocalHold(Some(turn))), since })
        }))
    }

    async fn abandon(&mut self) -> Result<(), LockError> {
        Ok(())
    }
}

struct LocalHold(Option<Turn>);

#[async_trait]
impl Hold for LocalHold {
    fn belief(&self) -> Belief {
        Belief::FOREVER
    }

    async fn release(&mut self) -> Result<Release, LockError> {
        Ok(if self.0.take().is_some() { Release::Released } else { Release::Gone })
    }
}
