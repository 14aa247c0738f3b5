//! The basis of kinds whose lock is one key without renewal. Each says how its key is taken, freed
//! and given back; the acquisition and the hold are here.

use std::future::{Future, ready};

use futures_util::future::BoxFuture;

use super::RedisConnection;
use crate::{Acquisition, Hold, LockError, LockName, Release, Request, Validity};

/// What PTTL says of a key that has no expiry.
pub(crate) const NO_EXPIRY: i64 = -1;

/// The steps of one acquisition and its hold.
pub(crate) trait OneKey: Clone + Send + Sync + 'static {
    /// Takes the key; returns `None` if another owner has it.
    fn take(
        &mut self,
        request: &Request,
    ) -> impl Future<Output = Result<Option<Validity>, LockError>> + Send;

    /// Whether the key that the last taking found there has no expiry, though the kind sets one.
    fn has_no_expiry(&mut self, _request: &Request) -> impl Future<Output = bool> + Send {
        ready(false)
    }

    /// Frees the key, as far as the mechanism knows that it is this hold's.
    fn free(
        &mut self,
        request: &Request,
    ) -> impl Future<Output = Result<Release, LockError>> + Send;

    /// Gives back what a taking without an answer may have taken. The default is that of code
    /// that cannot distinguish its own key from another's: it leaves the key to its lease.
    fn give_back(
        &mut self,
        _request: &Request,
    ) -> impl Future<Output = Result<(), LockError>> + Send {
        ready(Ok(()))
    }
}

/// An acquisition by these steps.
pub(crate) fn begin<K: OneKey>(steps: K, request: Request) -> Box<dyn Acquisition> {
    Box::new(OneKeyAcquisition { steps, request })
}

/// A bare DEL: it removes the key of any owner.
pub(crate) async fn delete(
    connection: &mut RedisConnection,
    name: &LockName,
) -> Result<Release, LockError> {
    let removed: u64 = redis::cmd("DEL").arg(name.as_str()).query_async(connection).await?;
    Ok(if removed == 0 { Release::Gone } else { Release::Released })
}

/// Whether there is a key of that name without an expiry; `false` if the server does not say.
pub(crate) async fn has_no_expiry(connection: &mut RedisConnection, name: &LockName) -> bool {
    let mut pttl = redis::cmd("PTTL");
    pttl.arg(name.as_str());
    pttl.query_async::<i64>(connection).await.is_ok_and(|left_ms| left_ms == NO_EXPIRY)
}

/// The lease of the request, as Redis wants it.
pub(crate) fn lease_ms(request: &Request) -> u64 {
    u64::try_from(request.lease.as_millis()).unwrap_or(u64::MAX)
}

struct OneKeyAcquisition<K> {
    steps: K,
    request: Request,
}

impl<K: OneKey> Acquisition for OneKeyAcquisition<K> {
    fn attempt(&mut self) -> BoxFuture<'_, Result<Option<Box<dyn Hold>>, LockError>> {
        Box::pin(async move {
            let validity = self.steps.take(&self.request).await?;
            Ok(validity.map(|validity| {
                let (steps, request) = (self.steps.clone(), self.request.clone());
                Box::new(OneKeyHold { steps, request, validity }) as Box<dyn Hold>
            }))
        })
    }

    fn has_no_expiry(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(async move { self.steps.has_no_expiry(&self.request).await })
    }

    fn abandon(&mut self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move { self.steps.give_back(&self.request).await })
    }
}

struct OneKeyHold<K> {
    steps: K,
    request: Request,
    validity: Validity,
}

impl<K: OneKey> Hold for OneKeyHold<K> {
    fn validity(&self) -> Validity {
        self.validity
    }

    fn release(&mut self) -> BoxFuture<'_, Result<Release, LockError>> {
        Box::pin(async move { self.steps.free(&self.request).await })
    }
}
