//! What the kinds have in common whose whole lock is one key that nobody renews: each says how the
//! key is taken, freed and given back; the acquisition and the hold around these steps are here.

use std::future::{Future, ready};

use async_trait::async_trait;

use super::RedisConnection;
use crate::{Acquisition, Belief, Hold, LockError, LockName, Release, Request};

/// The steps of one acquisition and its hold.
pub(super) trait OneKey: Clone + Send + Sync + 'static {
    /// Takes the key, or answers `None` if somebody else has it.
    fn take(
        &mut self,
        request: &Request,
    ) -> impl Future<Output = Result<Option<Belief>, LockError>> + Send;

    /// Whether the key that the last taking found there has no end, as far as the mechanism looks.
    fn is_endless(&self) -> bool {
        false
    }

    /// Frees the key, as far as the mechanism can tell that it is this hold's.
    fn free(
        &mut self,
        request: &Request,
    ) -> impl Future<Output = Result<Release, LockError>> + Send;

    /// Gives back what a taking without an answer may have taken. The default is that of code
    /// that cannot tell its own key from another's: it leaves the key to its lease.
    fn give_back(
        &mut self,
        _request: &Request,
    ) -> impl Future<Output = Result<(), LockError>> + Send {
        ready(Ok(()))
    }
}

/// An acquisition by these steps.
pub(super) fn begin<K: OneKey>(steps: K, request: Request) -> Box<dyn Acquisition> {
    Box::new(Taking { steps, request })
}

/// A bare DEL: it cannot tell whose key it removes.
pub(super) async fn delete(
    connection: &mut RedisConnection,
    name: &LockName,
) -> Result<Release, LockError> {
    let removed: u64 = redis::cmd("DEL").arg(name.as_str()).query_async(connection).await?;
    Ok(if removed == 0 { Release::Gone } else { Release::Released })
}

/// The lease of the request, as Redis wants it.
pub(super) fn lease_ms(request: &Request) -> u64 {
    u64::try_from(request.lease.as_millis()).unwrap_or(u64::MAX)
}

struct Taking<K> {
    steps: K,
    request: Request,
}

#[async_trait]
impl<K: OneKey> Acquisition for Taking<K> {
    async fn attempt(&mut self) -> Result<Option<Box<dyn Hold>>, LockError> {
        let belief = self.steps.take(&self.request).await?;
        Ok(belief.map(|belief| {
            let (steps, request) = (self.steps.clone(), self.request.clone());
            Box::new(Taken { steps, request, belief }) as Box<dyn Hold>
        }))
    }

    fn is_endless(&self) -> bool {
        self.steps.is_endless()
    }

    async fn abandon(&mut self) -> Result<(), LockError> {
        self.steps.give_back(&self.request).await
    }
}

struct Taken<K> {
    steps: K,
    request: Request,
    belief: Belief,
}

#[async_trait]
impl<K: OneKey> Hold for Taken<K> {
    fn belief(&self) -> Belief {
        self.belief
    }

    async fn release(&mut self) -> Result<Release, LockError> {
        self.steps.free(&self.request).await
    }
}
