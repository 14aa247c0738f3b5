//! A semaphore whose permits have leases: a dead holder's permit ends with its lease.
//!
//! How it works: a hash in Redis stores the number of permits. A sorted set stores the taken ones:
//! their ids, by the end of their leases by the server's clock. Each acquisition first removes
//! permits whose leases have ended, then adds its own id if there is room. So permits cannot be
//! miscounted: a repeated call finds its id, or finds it deleted. Waiting is the same for all
//! semaphores (`permits.rs`). A waiter learns when the next lease ends, and asks again then.
//!
//! Guarantees that at most the set number of permits is taken, among the processes of one Redis,
//! while holders heed their loss ([`Permit::lost`]). A watchdog renews leases on request. Permits
//! go by their ids: one process may take a permit and another release it.
//!
//! Flaws: a holder that does not notice the end of its lease works beside its successor. A failover
//! to a replica that lags forgets permits that are taken.
//!
//! Source: Redisson's `RPermitExpirableSemaphore`, whose format differs: it keeps a counter beside
//! the set, and goes by the clients' clocks. Tests: `tests/expirable_semaphore.rs`,
//! `tests/expirable_semaphore_faults.rs`, `tests/synchronizer_scripts.rs`,
//! `tests/synchronizer_failover.rs`.

mod permit;

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::RedisServer;
use super::idempotent_call::{
    CALL_RETRY_TIMEOUT, CallError, CallResult, LATCH_TTL, call_on_fresh_connection, delete_latches,
    idempotent_call, retry_until_answered,
};
use super::keys::{ms, prefixed};
use super::permit_renewer::permits_key;
use super::permits::{MAX_MESSAGE_WAIT, PermitReply, PermitRequest, Synchronizers, check_permits};
use super::signal::WAKE_ONE;
use crate::error::timeout_as_none;
use crate::lock_metrics::LockMetrics;
use crate::{Lease, LockError, LockName, LockOptions, Owner};

pub use self::permit::Permit;

/// The field of the hash that says how many permits there are.
const LIMIT_FIELD: &str = "limit";
/// After the end of another owner's lease, so that it has ended when the server is asked.
const LEASE_END_MARGIN: Duration = Duration::from_millis(2);

/// A semaphore whose permits have ids and leases. Cheap to clone.
///
/// Methods that ask the server fail with [`LockError::Backend`] if it does not answer. They fail
/// with [`LockError::HeldByOtherKind`] if the key has another type.
///
/// ```no_run
/// use distlock::{ExpirableSemaphore, Lease, LockError, LockName, RedisServer};
/// use std::time::Duration;
/// # async fn example(server: &RedisServer) -> Result<(), LockError> {
/// let exports = ExpirableSemaphore::new(server, LockName::new("exports")?);
/// exports.try_set_permits(4).await?;
/// let lease = Lease::Renewed(Duration::from_secs(30));
/// let permit = exports.acquire(Duration::from_secs(5), lease).await?;
/// // ... one of at most four exports at a time; it stops if the permit is lost ...
/// assert!(!permit.is_lost());
/// permit.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ExpirableSemaphore(Arc<ExpirableSemaphoreState>);

struct ExpirableSemaphoreState {
    server: RedisServer,
    shared: Arc<Synchronizers>,
    name: LockName,
    /// The permits that are out.
    permits: String,
    channel: String,
}

impl ExpirableSemaphore {
    /// The semaphore of that name. Sends nothing yet. Needs a tokio runtime, the same for all
    /// synchronizers of a server.
    #[must_use]
    pub fn new(server: &RedisServer, name: LockName) -> Self {
        Self(Arc::new(ExpirableSemaphoreState {
            server: server.clone(),
            shared: server.synchronizers(),
            permits: permits_key(&name),
            channel: prefixed("distlock_permits_channel", &name),
            name,
        }))
    }

    /// Creates the semaphore with 1 to 2147483647 permits. Returns `false` if it exists already; it
    /// is then unchanged. Until it exists, no permit can be taken.
    pub async fn try_set_permits(&self, permits: u32) -> Result<bool, LockError> {
        check_permits(permits, 1)?;
        let keys = [self.0.name.as_str(), &self.0.channel];
        self.0.shared.set(&self.0.server, &keys, (LIMIT_FIELD, permits)).await
    }

    /// Takes a permit, waiting for at most `wait`. Fails with [`LockError::TimedOut`] if all were
    /// taken during the wait. Fails with [`LockError::BadRequest`] if the lease is not 10 ms to a
    /// day, or the wait is longer than a day.
    ///
    /// Tasks of one process that wait get permits in the order in which they came. Dropping the
    /// future at any point leaves nothing behind.
    pub async fn acquire(&self, wait: Duration, lease: Lease) -> Result<Permit, LockError> {
        check_lease(lease)?;
        let permit = self.0.shared.obtain(ExpirablePermitRequest::new(self, lease), wait).await?;
        if permit.is_lost() {
            let lease_ms = lease.length().as_millis();
            let slow = format!("its answer took longer than the lease of {lease_ms} ms");
            return Err(LockError::Backend(slow));
        }
        Ok(permit)
    }

    /// Takes a permit if one is free now, past the queue of waiters; `None` if none is.
    pub async fn try_acquire(&self, lease: Lease) -> Result<Option<Permit>, LockError> {
        timeout_as_none(self.acquire(Duration::ZERO, lease).await)
    }

    /// Releases the permit of that id ([`Permit::into_id`]), which any process may have taken.
    /// Fails with [`LockError::NotOwner`] if it is not taken: it was released before, or its lease
    /// has ended. It continues if the future is dropped.
    pub async fn release(&self, id: &Owner) -> Result<(), LockError> {
        let (semaphore, id, latch) = (self.clone(), id.clone(), self.latch(&Uuid::new_v4()));
        let work = async move {
            let answer =
                retry_until_answered(CALL_RETRY_TIMEOUT, || semaphore.send_release(&id, &latch))
                    .await?;
            // A release that is still under way finds no permit.
            delete_latches(&semaphore.0.server, &latch).await;
            if answer.value == 1 { Ok(()) } else { Err(LockError::NotOwner) }
        };
        self.0.shared.background.finish(work, |_| Box::pin(ready(()))).await
    }

    /// How many permits could be taken now; 0 if there is no semaphore. May be out of date when it
    /// comes.
    pub async fn available(&self) -> Result<u32, LockError> {
        let script = &self.0.shared.scripts.expirable_available;
        let keys = [self.0.name.as_str(), &self.0.permits];
        Ok(idempotent_call(&self.0.server, script, &keys, &[""; 0]).await?.value)
    }

    /// Removes it. Taken permits are lost then, also if it is set again. `false` if there was
    /// none.
    pub async fn delete(&self) -> Result<bool, LockError> {
        let keys = [self.0.name.as_str(), &self.0.channel, &self.0.permits];
        self.0.shared.delete(&self.0.server, &keys, LIMIT_FIELD).await
    }

    /// Waits until no synchronizer of this server has anything to do in the background, for the end
    /// of a process.
    pub async fn flush(&self) {
        self.0.shared.background.flush().await;
    }

    fn latch(&self, id: &impl std::fmt::Display) -> String {
        format!("{}:{id}", prefixed("distlock_permit_latch", &self.0.name))
    }

    async fn send_release(&self, id: &Owner, latch: &str) -> Result<CallResult<i64>, CallError> {
        let script = &self.0.shared.scripts.expirable_release;
        let keys = [self.0.permits.as_str(), latch, &self.0.channel];
        let args = (WAKE_ONE, id.as_str(), ms(LATCH_TTL), self.0.server.publish());
        idempotent_call(&self.0.server, script, &keys, args).await
    }
}

fn check_lease(lease: Lease) -> Result<(), LockError> {
    let length = lease.length();
    if length < LockOptions::MIN_LEASE || length > LockOptions::MAX {
        let limit = format!("must be 10 ms to a day, is {} ms", length.as_millis());
        return Err(LockError::BadRequest { field: "lease", limit });
    }
    Ok(())
}

/// One acquisition on its way.
#[derive(Clone)]
struct ExpirablePermitRequest {
    semaphore: ExpirableSemaphore,
    lease: Lease,
    /// The permit's.
    id: Owner,
}

impl ExpirablePermitRequest {
    fn new(semaphore: &ExpirableSemaphore, lease: Lease) -> Self {
        Self { semaphore: semaphore.clone(), lease, id: Owner::fresh() }
    }

    fn inner(&self) -> &ExpirableSemaphoreState {
        &self.semaphore.0
    }
}

impl PermitRequest for ExpirablePermitRequest {
    type Permits = Permit;

    fn server(&self) -> &RedisServer {
        &self.inner().server
    }

    fn name(&self) -> &LockName {
        &self.inner().name
    }

    fn channel(&self) -> &str {
        &self.inner().channel
    }

    fn metrics(&self) -> &LockMetrics {
        &self.inner().shared.expirable_metrics
    }

    fn with_fresh_id(&self) -> Self {
        Self::new(&self.semaphore, self.lease)
    }

    /// The lease counts from the first sending, though each sets it again.
    async fn ask(&self) -> Result<PermitReply<Permit>, CallError> {
        let inner = self.inner();
        let latch = self.semaphore.latch(&self.id);
        let keys = [inner.name.as_str(), &inner.permits, &latch];
        let (script, args) =
            (&inner.shared.scripts.expirable_acquire, (self.id.as_str(), ms(self.lease.length())));
        let sent = Instant::now();
        let answer = idempotent_call::<Option<i64>>(&inner.server, script, &keys, args).await?;
        Ok(match answer.value {
            None => PermitReply::Granted(Permit::new(self, sent)),
            Some(left_ms) => {
                let left = u64::try_from(left_ms).map(Duration::from_millis);
                PermitReply::Busy(
                    left.map_or(MAX_MESSAGE_WAIT, |left| {
                        MAX_MESSAGE_WAIT.min(left + LEASE_END_MARGIN)
                    }),
                )
            }
        })
    }

    async fn abandon(&self) -> Result<CallResult<i64>, CallError> {
        let inner = self.inner();
        let latch = self.semaphore.latch(&self.id);
        let keys = [inner.permits.as_str(), &latch, &inner.channel];
        let script = &inner.shared.scripts.expirable_release;
        let publish = inner.server.publish();
        let args = (WAKE_ONE, self.id.as_str(), ms(LATCH_TTL), publish);
        call_on_fresh_connection(&inner.server, script, &keys, args).await
    }
}
