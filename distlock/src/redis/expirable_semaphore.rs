//! A semaphore whose permits have leases: who dies keeps none for longer.
//!
//! How it works: a hash in Redis says how many permits there are, a sorted set which are out: ids
//! by the end of their leases, by the server's clock. Each acquisition first takes those back whose
//! leases have ended, then adds its own id if there is room. So permits cannot be miscounted: what
//! is sent again finds its id, or finds it gone. How tasks wait is the same for all semaphores
//! (`permits.rs`); who waits is told when the next lease ends, and looks then.
//!
//! Guarantees that no more permits are out than were set, among the processes of one Redis, while
//! holders heed the loss of theirs ([`Permit::lost`]); a watchdog renews the leases of those that
//! ask for it. Permits go by their ids: a permit may be taken by one process and given back by
//! another.
//!
//! Flaws: a holder that does not notice that its lease has ended works on beside its successor; a
//! failover to a replica that lags forgets permits that are out.
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
use super::keys::{ms, prefixed};
use super::once::{Answered, Failure, REMEMBERED, SOON, call, call_at_last, forget, persist};
use super::permits::{LOOK, Reply, Synchronizers, Wish, check_permits};
use super::signal::WAKE_ONE;
use crate::error::in_time;
use crate::meter::Meter;
use crate::{Lease, LockError, LockName, LockOptions, Owner};

pub use self::permit::Permit;
pub(super) use self::permit::PermitRenewer;

/// The field of the hash that says how many permits there are.
const FIELD: &str = "limit";
/// After the end of somebody's lease, so that it has ended when the server is asked.
const LEASE_END: Duration = Duration::from_millis(2);

/// A semaphore whose permits have ids and leases. Cheap to clone.
///
/// Every method that asks the server fails with [`LockError::Backend`] if it does not answer, and
/// with [`LockError::HeldByOtherKind`] if the name is in use by something else.
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
pub struct ExpirableSemaphore(Arc<Inner>);

struct Inner {
    server: RedisServer,
    shared: Arc<Synchronizers>,
    name: LockName,
    /// The permits that are out.
    permits: String,
    channel: String,
}

impl ExpirableSemaphore {
    /// The semaphore of that name. Asks nobody yet. Needs a tokio runtime, the same for all
    /// synchronizers of a server.
    pub fn new(server: &RedisServer, name: LockName) -> Self {
        Self(Arc::new(Inner {
            server: server.clone(),
            shared: server.synchronizers(),
            permits: permits_key(&name),
            channel: prefixed("distlock_permits_channel", &name),
            name,
        }))
    }

    /// Makes the semaphore with so many permits, 1 to 2147483647. `false` if there is one already,
    /// which stays as it is. Until there is one, nobody gets permits.
    pub async fn try_set_permits(&self, permits: u32) -> Result<bool, LockError> {
        check_permits(permits, 1)?;
        let keys = [self.0.name.as_str(), &self.0.channel];
        self.0.shared.set(&self.0.server, &keys, (FIELD, permits)).await
    }

    /// Takes a permit, waiting for it at most so long. Fails with [`LockError::TimedOut`] if others
    /// had them all for so long, and with [`LockError::BadRequest`] if the lease is not 10 ms to a
    /// day, or the wait longer than a day.
    ///
    /// Tasks of one process that wait get permits in the order in which they came. Dropping the
    /// future at any point leaves nothing behind.
    pub async fn acquire(&self, wait: Duration, lease: Lease) -> Result<Permit, LockError> {
        check_lease(lease)?;
        let permit = self.0.shared.obtain(Taking::new(self, lease), wait).await?;
        if permit.is_lost() {
            let lease_ms = lease.length().as_millis();
            let slow = format!("its answer took longer than the lease of {lease_ms} ms");
            return Err(LockError::Backend(slow));
        }
        Ok(permit)
    }

    /// Takes a permit if one is free now, whoever waits for it; `None` if none is.
    pub async fn try_acquire(&self, lease: Lease) -> Result<Option<Permit>, LockError> {
        in_time(self.acquire(Duration::ZERO, lease).await)
    }

    /// Gives back the permit of that id ([`Permit::into_id`]), whoever took it. Fails with
    /// [`LockError::NotOwner`] if it is not out: it was given back before, or its lease has ended.
    /// It goes on if the future is dropped.
    pub async fn release(&self, id: &Owner) -> Result<(), LockError> {
        let (semaphore, id, latch) = (self.clone(), id.clone(), self.latch(&Uuid::new_v4()));
        let work = async move {
            let answer = persist(SOON, || semaphore.send_release(&id, &latch)).await?;
            // A release that is still under way finds no permit.
            forget(&semaphore.0.server, &latch).await;
            if answer.value == 1 { Ok(()) } else { Err(LockError::NotOwner) }
        };
        self.0.shared.background.finish(work, |_| Box::pin(ready(()))).await
    }

    /// How many permits could be taken now; 0 if there is no semaphore. May be out of date when it
    /// comes.
    pub async fn available(&self) -> Result<u32, LockError> {
        let script = &self.0.shared.scripts.expirable_available;
        let keys = [self.0.name.as_str(), &self.0.permits];
        Ok(call(&self.0.server, script, &keys, &[""; 0]).await?.value)
    }

    /// Removes it. Permits that are out are lost then, also if it is set anew. `false` if there was
    /// none.
    pub async fn delete(&self) -> Result<bool, LockError> {
        let keys = [self.0.name.as_str(), &self.0.channel, &self.0.permits];
        self.0.shared.delete(&self.0.server, &keys, FIELD).await
    }

    /// Waits until no synchronizer of this server has anything to do in the background, for the end
    /// of a process.
    pub async fn flush(&self) {
        self.0.shared.background.flush().await;
    }

    fn latch(&self, id: &impl std::fmt::Display) -> String {
        format!("{}:{id}", prefixed("distlock_permit_latch", &self.0.name))
    }

    async fn send_release(&self, id: &Owner, latch: &str) -> Result<Answered<i64>, Failure> {
        let script = &self.0.shared.scripts.expirable_release;
        let keys = [self.0.permits.as_str(), latch, &self.0.channel];
        let args = (WAKE_ONE, id.as_str(), ms(REMEMBERED), self.0.server.publish());
        call(&self.0.server, script, &keys, args).await
    }
}

fn permits_key(name: &LockName) -> String {
    prefixed("distlock_permits", name)
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
struct Taking {
    semaphore: ExpirableSemaphore,
    lease: Lease,
    /// The permit's.
    id: Owner,
}

impl Taking {
    fn new(semaphore: &ExpirableSemaphore, lease: Lease) -> Self {
        Self { semaphore: semaphore.clone(), lease, id: Owner::fresh() }
    }

    fn inner(&self) -> &Inner {
        &self.semaphore.0
    }
}

impl Wish for Taking {
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

    fn meter(&self) -> &Meter {
        &self.inner().shared.expirable_meter
    }

    fn anew(&self) -> Self {
        Self::new(&self.semaphore, self.lease)
    }

    /// The lease counts from the first sending, though each sets it anew.
    async fn ask(&self) -> Result<Reply<Permit>, Failure> {
        let inner = self.inner();
        let latch = self.semaphore.latch(&self.id);
        let keys = [inner.name.as_str(), &inner.permits, &latch];
        let (script, args) =
            (&inner.shared.scripts.expirable_acquire, (self.id.as_str(), ms(self.lease.length())));
        let sent = Instant::now();
        let answer = call::<Option<i64>>(&inner.server, script, &keys, args).await?;
        Ok(match answer.value {
            None => Reply::Granted(Permit::new(self, sent)),
            Some(left_ms) => {
                let left = u64::try_from(left_ms).map(Duration::from_millis);
                Reply::Busy(left.map_or(LOOK, |left| LOOK.min(left + LEASE_END)))
            }
        })
    }

    async fn abandon(&self) -> Result<Answered<i64>, Failure> {
        let inner = self.inner();
        let latch = self.semaphore.latch(&self.id);
        let keys = [inner.permits.as_str(), &latch, &inner.channel];
        let script = &inner.shared.scripts.expirable_release;
        let publish = inner.server.publish();
        let args = (WAKE_ONE, self.id.as_str(), ms(REMEMBERED), publish);
        call_at_last(&inner.server, script, &keys, args).await
    }
}
