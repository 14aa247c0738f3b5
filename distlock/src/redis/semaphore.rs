//! A semaphore: a number of permits, taken and given back.
//!
//! How it works: the number of free permits is a field of a hash in Redis. Scripts take and give
//! permits; each acquisition has an id, and the server remembers for [`REMEMBERED`] what it did for
//! it, so that a request whose answer was lost can be sent again, and undone, and counts once. How
//! tasks wait is the same for all semaphores (`permits.rs`): a release publishes one message, which
//! wakes one task of each process.
//!
//! Guarantees that never more permits are out than were set, among the processes of one Redis; that
//! an acquisition which was dropped or whose answer was lost takes nothing; that permits of a
//! semaphore that was removed and set anew do not swell the new one.
//!
//! Flaws: a holder that dies keeps its permits for ever, because nothing ends them; a failover to a
//! replica that lags forgets what was taken last. [`ExpirableSemaphore`](crate::ExpirableSemaphore)
//! has leases.
//!
//! Source: Redisson's `RSemaphore`, which counts in the same way but has neither ids nor guards;
//! the formats differ, so that neither accepts the other's key. Known bugs of it that this avoids:
//! redisson#3573, redisson#3728. Tests: `tests/semaphore.rs`, `tests/semaphore_load.rs`,
//! `tests/semaphore_faults.rs`, `tests/synchronizer_scripts.rs`, `tests/synchronizer_failover.rs`.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::RedisServer;
use super::keys::{ms, prefixed};
use super::once::{Answered, Failure, REMEMBERED, SOON, call, call_at_last, forget, persist};
use super::permits::{GIVE_BACK, LOOK, Reply, Synchronizers, Wish, check_permits};
use super::signal::WAKE_ONE;
use crate::error::in_time;
use crate::meter::Meter;
use crate::{LockError, LockName, Release};

/// The field of the hash in which the free permits are counted.
const FIELD: &str = "permits";

/// A counting semaphore that the processes of one Redis share. Cheap to clone.
///
/// Permits are taken as [`Permits`], which give themselves back when they are dropped. Every method
/// that asks the server fails with [`LockError::Backend`] if it does not answer, and with
/// [`LockError::HeldByOtherKind`] if the name is in use by something else. A number of permits is
/// at most 2147483647; another is [`LockError::BadRequest`].
///
/// ```no_run
/// use distlock::{LockError, LockName, RedisServer, Semaphore};
/// use std::time::Duration;
/// # async fn example(server: &RedisServer) -> Result<(), LockError> {
/// let exports = Semaphore::new(server, LockName::new("exports")?);
/// exports.try_set_permits(4).await?;
/// let permits = exports.acquire(1, Duration::from_secs(5)).await?;
/// // ... one of at most four exports at a time, whoever runs it ...
/// permits.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Semaphore(Arc<Inner>);

struct Inner {
    server: RedisServer,
    shared: Arc<Synchronizers>,
    name: LockName,
    channel: String,
}

impl Semaphore {
    /// The semaphore of that name. Asks nobody yet. Needs a tokio runtime, the same for all
    /// synchronizers of a server.
    pub fn new(server: &RedisServer, name: LockName) -> Self {
        let channel = prefixed("distlock_semaphore_channel", &name);
        Self(Arc::new(Inner {
            server: server.clone(),
            shared: server.synchronizers(),
            name,
            channel,
        }))
    }

    /// Makes the semaphore with so many permits. `false` if there is one already, which stays as it
    /// is. Until there is one, nobody gets permits.
    pub async fn try_set_permits(&self, permits: u32) -> Result<bool, LockError> {
        check_permits(permits, 0)?;
        let keys = [self.0.name.as_str(), &self.0.channel];
        self.0.shared.set(&self.0.server, &keys, (FIELD, permits)).await
    }

    /// Takes so many permits, all or none, waiting for them at most so long. Fails with
    /// [`LockError::TimedOut`] if others had them for so long.
    ///
    /// Tasks of one process that wait get them in the order in which they came; so one that wants
    /// many is not overtaken for ever by those who want few. Dropping the future at any point
    /// leaves nothing behind.
    pub async fn acquire(&self, permits: u32, wait: Duration) -> Result<Permits, LockError> {
        check_permits(permits, 1)?;
        self.0.shared.obtain(Taking::new(self, permits), wait).await
    }

    /// Takes so many permits if they are free now, whoever waits for them; `None` if they are not.
    pub async fn try_acquire(&self, permits: u32) -> Result<Option<Permits>, LockError> {
        in_time(self.acquire(permits, Duration::ZERO).await)
    }

    /// Takes all permits that are free now; there may be none.
    pub async fn drain(&self) -> Result<Permits, LockError> {
        self.0.shared.obtain(Taking::new(self, ALL), Duration::ZERO).await
    }

    /// Gives so many permits that nobody has to hold: those of [`Permits::forget`], or additional
    /// ones. [`Release::Gone`] if there is no semaphore.
    ///
    /// If it fails with [`LockError::Backend`] the permits are given in the background, as with
    /// [`Permits::release`].
    pub async fn release(&self, permits: u32) -> Result<Release, LockError> {
        check_permits(permits, 1)?;
        let any = String::new();
        let giving = Giving { taking: Taking::new(self, permits), of: any, again: false };
        self.0.shared.background.finish(giving.give(), |_| Box::pin(ready(()))).await
    }

    /// How many permits are free; 0 if there is no semaphore. May be out of date when it comes.
    pub async fn available(&self) -> Result<u32, LockError> {
        self.0.shared.number(&self.0.server, &self.0.name, FIELD).await
    }

    /// Removes it. Permits that are out are worth nothing from then on, also if it is set anew.
    /// `false` if there was none.
    pub async fn delete(&self) -> Result<bool, LockError> {
        let keys = [self.0.name.as_str(), &self.0.channel];
        self.0.shared.delete(&self.0.server, &keys, FIELD).await
    }

    /// Waits until no synchronizer of this server has anything to do in the background, for the end
    /// of a process: permits that were dropped are given back then, or their server has not
    /// answered for half a minute.
    pub async fn flush(&self) {
        self.0.shared.background.flush().await;
    }
}

/// As many as there are.
const ALL: u32 = 0;

/// One acquisition on its way.
#[derive(Clone)]
struct Taking {
    semaphore: Semaphore,
    /// What it did is remembered here.
    latch: Arc<str>,
    count: u32,
}

impl Taking {
    fn new(semaphore: &Semaphore, count: u32) -> Self {
        let latch = prefixed("distlock_semaphore_latch", &semaphore.0.name);
        let latch = format!("{latch}:{}", Uuid::new_v4()).into();
        Self { semaphore: semaphore.clone(), latch, count }
    }

    fn inner(&self) -> &Inner {
        &self.semaphore.0
    }

    /// Sends back what it took: how many permits, of which semaphore. `at_last` if nobody asks the
    /// server anything after it.
    async fn release(&self, what: (u32, &str), at_last: bool) -> Result<Answered<i64>, Failure> {
        let script = &self.inner().shared.scripts.semaphore_release;
        let keys = [self.name().as_str(), &*self.latch, self.channel()];
        let args = (WAKE_ONE, what, ms(REMEMBERED), self.server().publish());
        if at_last {
            call_at_last(self.server(), script, &keys, args).await
        } else {
            call(self.server(), script, &keys, args).await
        }
    }
}

impl Wish for Taking {
    type Permits = Permits;

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
        &self.inner().shared.semaphore_meter
    }

    fn anew(&self) -> Self {
        Self::new(&self.semaphore, self.count)
    }

    async fn ask(&self) -> Result<Reply<Permits>, Failure> {
        let script = &self.inner().shared.scripts.semaphore_acquire;
        let keys = [self.name().as_str(), &*self.latch];
        let args = (self.count, ms(REMEMBERED));
        let answer = call::<(i64, String)>(self.server(), script, &keys, args).await?;
        let (taken, of) = answer.value;
        let Ok(count) = u32::try_from(taken) else { return Ok(Reply::Busy(LOOK)) };
        let giving = Giving { taking: Self { count, ..self.clone() }, of, again: answer.again };
        Ok(Reply::Granted(Permits { giving: Some(giving), count, since: Instant::now() }))
    }

    async fn abandon(&self) -> Result<Answered<i64>, Failure> {
        self.release((ALL, ""), true).await
    }
}

/// Permits on their way back.
struct Giving {
    taking: Taking,
    /// Who set the permits; empty if that does not matter.
    of: String,
    /// Whether the acquisition was sent more than once.
    again: bool,
}

impl Giving {
    /// Gives them back soon, or else in the background.
    async fn give(self) -> Result<Release, LockError> {
        if self.taking.count == 0 {
            return Ok(Release::Released);
        }
        match persist(SOON, || self.send(false)).await {
            Ok(answer) => Ok(self.done(answer).await),
            Err(failure) => {
                if !failure.is_final() {
                    let background = self.taking.inner().shared.background.clone();
                    background.spawn(self.give_at_last());
                }
                Err(failure.into())
            }
        }
    }

    async fn give_at_last(self) {
        match persist(GIVE_BACK, || self.send(true)).await {
            // The answer may be that to an earlier sending.
            Ok(_) => {}
            Err(failure) => {
                let (error, count) = (LockError::from(failure), self.taking.count);
                tracing::warn!(%error, name = %self.taking.name(), count, "permits are lost");
            }
        }
    }

    async fn send(&self, at_last: bool) -> Result<Answered<i64>, Failure> {
        self.taking.release((self.taking.count, &self.of), at_last).await
    }

    async fn done(&self, answer: Answered<i64>) -> Release {
        if !self.again && !answer.again {
            // Nothing of this id is under way any more, so that nobody will ask for it.
            forget(self.taking.server(), &*self.taking.latch).await;
        }
        if answer.value == 1 { Release::Released } else { Release::Gone }
    }
}

/// Permits that were taken. Those that are merely dropped are given back in the background, also
/// if their holder panics.
#[must_use = "dropping the permits gives them back"]
pub struct Permits {
    giving: Option<Giving>,
    count: u32,
    since: Instant,
}

impl Permits {
    /// How many.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Gives them back. [`Release::Gone`] if the semaphore was removed meanwhile, or the server has
    /// forgotten it; nothing was done then.
    ///
    /// If it fails with [`LockError::Backend`] the server has not answered for half a second; the
    /// permits are then given back in the background, where it may take half a minute more. They
    /// count once, however often that is sent. It goes on if the future is dropped.
    pub async fn release(mut self) -> Result<Release, LockError> {
        let Some(giving) = self.end() else { return Ok(Release::Gone) };
        let background = giving.taking.inner().shared.background.clone();
        background.finish(giving.give(), |_| Box::pin(ready(()))).await
    }

    /// Keeps them taken for ever, or until somebody calls [`Semaphore::release`] for them. Returns
    /// how many.
    pub fn forget(mut self) -> u32 {
        self.end();
        self.count
    }

    fn end(&mut self) -> Option<Giving> {
        let giving = self.giving.take()?;
        giving.taking.meter().ended(self.since.elapsed(), false);
        Some(giving)
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        let Some(giving) = self.end() else { return };
        let background = giving.taking.inner().shared.background.clone();
        background.spawn(async move {
            if let Err(error) = giving.give().await {
                tracing::debug!(%error, "permits that were dropped are given back later");
            }
        });
    }
}

impl std::fmt::Debug for Permits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permits").field("count", &self.count).finish_non_exhaustive()
    }
}
