//! Redisson's calls and their counterparts here, one function for each of its interfaces.
//! docs/locks/from-redisson.md lists the deliberate differences.
//!
//! `cargo run -p distlock --example from_redisson -- redis://127.0.0.1:6379`
//! With three or five addresses of independent servers it also takes a lock on a majority of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use distlock::BoxFuture;
use distlock::{
    Backends, CountdownLatch, ExpirableSemaphore, Lease, LockError, LockKind, LockName,
    LockOptions, Locker, Locks, Multi, ReadWrite, RedisServer, Redisson, RedissonLock, Redlock,
    Release, Replication, Semaphore, Token, TokenIssuer, locker,
};
use tokio::time::timeout;

const WAIT: Duration = Duration::from_secs(2);
/// A lease that the watchdog renews. Redisson's, without a lease, is `Config.lockWatchdogTimeout`.
const RENEWED: Lease = Lease::Renewed(LockOptions::WATCHDOG_LEASE);
/// A lease without renewal: Redisson's calls with a lease.
const FIXED: Lease = Lease::Fixed(Duration::from_secs(10));

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let outcome = run().await;
    if let Err(error) = &outcome {
        println!("{error}; Redisson: {}", redisson_says(error));
    }
    outcome
}

/// What Redisson says in such a case.
fn redisson_says(error: &LockError) -> &'static str {
    match error {
        LockError::TimedOut { .. } => "false",
        LockError::Lost => "nothing, or IllegalMonitorStateException at the end",
        LockError::NotOwner | LockError::BadRequest { .. } => "IllegalArgumentException",
        LockError::HeldByOtherKind => "RedisException, or it waits",
        LockError::Backend(_) => "RedisTimeoutException, RedisConnectionException and others",
        LockError::AccessDenied(_) => "RedisAuthRequiredException, RedisException and others",
        LockError::NoConnection(_) => "nothing: only databases have a pool",
        LockError::Unsupported(_) => "UnsupportedOperationException, or it waits",
    }
}

async fn run() -> Result<(), LockError> {
    let mut servers = Vec::new();
    for url in std::env::args().skip(1) {
        servers.push(RedisServer::open(&url).await?);
    }
    let Some(server) = servers.first() else {
        println!("which Redis? Give its address");
        return Ok(());
    };
    // `checkLockSyncedSlaves`: how many replicas must confirm a lock. This server has none; with
    // two of them it is `Replication::Majority { replicas: 2 }`.
    let server = &server.clone().with_replication(Replication::None);
    // Redisson.create(config). Where Redisson has getLock(name), here one `Locks` has all names.
    let backends = Backends { redis: Some(server.clone()), ..Backends::default() };
    let locks = Locks::new(locker(LockKind::Redisson, &backends)?);
    taking(&locks).await?;
    waiting_at_once(&locks).await?;
    entering_again(server, &locks).await?;
    losing(server, &locks).await?;
    fenced(&backends).await?;
    fair(&backends).await?;
    read_write(server).await?;
    several(server).await?;
    if servers.len() > 1 {
        majority(&servers).await?;
    }
    semaphores(server).await?;
    latch(server).await?;
    // redisson.shutdown(): wait for what goes on in the background.
    locks.flush().await;
    println!("all of Redisson's interfaces, by other names");
    Ok(())
}

/// `RLock`: the ways to take it.
async fn taking(locks: &Locks) -> Result<(), LockError> {
    let name = LockName::new("example:taking")?;
    // lock(): every wait has an end; a day is the longest.
    let guard = locks.lock(&name, &LockOptions::new(LockOptions::MAX, RENEWED)).await?;
    // unlock(): the guard goes with it, so there is no second one. Dropped, it unlocks as well.
    guard.release().await?;
    // lock(10, SECONDS)
    let guard = locks.lock(&name, &LockOptions::new(LockOptions::MAX, FIXED)).await?;
    // tryLock(): false is `None`. Another task is another owner, and so is this one.
    assert!(locks.try_lock(&name, RENEWED).await?.is_none());
    guard.release().await?;
    // tryLock(2, 10, SECONDS): false is an error of its own.
    match locks.lock(&name, &LockOptions::new(WAIT, FIXED)).await {
        Ok(guard) => drop(guard.release().await?),
        Err(LockError::TimedOut { waited, .. }) => println!("busy for {waited:?}"),
        Err(error) => return Err(error),
    }
    // lock(); try { ... } finally { unlock(); }
    locks.scope(&name, &LockOptions::new(WAIT, RENEWED), async |loss| loss.is_lost()).await?;
    Ok(())
}

/// `lockAsync`, `lockInterruptibly`: all is asynchronous, and a future that is dropped gives up.
async fn waiting_at_once(locks: &Locks) -> Result<(), LockError> {
    let (one, other) = (LockName::new("example:one")?, LockName::new("example:other")?);
    let options = LockOptions::new(WAIT, RENEWED);
    let (one_guard, other_guard) =
        tokio::join!(locks.lock(&one, &options), locks.lock(&other, &options));
    let (one_guard, _other_guard) = (one_guard?, other_guard?);
    // Thread.interrupt(): what the server may have granted by then is given back.
    let interrupted = timeout(Duration::from_millis(50), locks.lock(&one, &options)).await;
    assert!(interrupted.is_err(), "it is held");
    one_guard.release().await?;
    Ok(())
}

/// Re-entry, and what an `RLock` tells of itself.
async fn entering_again(server: &RedisServer, locks: &Locks) -> Result<(), LockError> {
    let name = LockName::new("example:again")?;
    let options = LockOptions::new(WAIT, RENEWED);
    let outer = locks.lock(&name, &options).await?;
    // Re-entry goes by owner, not by thread.
    let inner = locks.lock_as(outer.owner().clone(), &name, &options).await?;
    let seen = RedissonLock::new(server, name);
    // isLocked(), isHeldByThread(id), getHoldCount(), remainTimeToLive()
    assert!(seen.is_locked().await?);
    assert!(seen.is_held_by(outer.owner()).await?);
    assert_eq!(seen.hold_count(outer.owner()).await?, 2);
    assert!(seen.remaining_lease().await?.is_some_and(|left| left <= options.lease.length()));
    // isHeldByCurrentThread(), without asking the server; and the validity.
    assert!(!outer.is_lost() && outer.validity().deadline().is_some());
    inner.release().await?;
    outer.release().await?;
    Ok(())
}

/// What Redisson throws an `IllegalMonitorStateException` for is an answer, mostly known before.
async fn losing(server: &RedisServer, locks: &Locks) -> Result<(), LockError> {
    let name = LockName::new("example:losing")?;
    let lease = Lease::Renewed(Duration::from_secs(10));
    let guard = locks.lock(&name, &LockOptions::new(WAIT, lease)).await?;
    // forceUnlock()
    assert!(RedissonLock::new(server, name.clone()).force_unlock().await?);
    // The next renewal notices. Redisson has no such call.
    println!("lost: {:?}", guard.lost().await);
    // An owner whose hold is gone does not enter again. A thread of Redisson takes the lock anew.
    let again = locks.lock_as(guard.owner().clone(), &name, &LockOptions::default()).await;
    assert!(matches!(again, Err(LockError::Lost)));
    assert_eq!(guard.release().await?, Release::Gone);
    Ok(())
}

/// A token issuer for this program only. A real one is durable: `distlock::mysql::MySqlTokens`,
/// with the feature `mysql`.
#[derive(Default)]
struct Counter(AtomicU64);

impl TokenIssuer for Counter {
    fn next<'a>(&'a self, _name: &'a LockName) -> BoxFuture<'a, Result<Token, LockError>> {
        Box::pin(async move { Ok(Token(self.0.fetch_add(1, Ordering::Relaxed) + 1)) })
    }
}

/// `RFencedLock`.
async fn fenced(backends: &Backends) -> Result<(), LockError> {
    let locks = Locks::new(locker(LockKind::Redisson, backends)?);
    let locks = locks.with_token_issuer(Arc::new(Counter::default()));
    let name = LockName::new("example:fenced")?;
    let options = LockOptions::new(WAIT, RENEWED).fenced();
    // lockAndGetToken(), getToken()
    let first = locks.lock(&name, &options).await?;
    let again = locks.lock_as(first.owner().clone(), &name, &options).await?;
    assert_eq!(first.token(), again.token(), "Redisson's rises with each re-entry");
    let earlier = first.token();
    again.release().await?;
    first.release().await?;
    let second = locks.lock(&name, &options).await?;
    assert!(second.token() > earlier);
    second.release().await?;
    Ok(())
}

/// `RFairLock`: another kind, with the same calls.
async fn fair(backends: &Backends) -> Result<(), LockError> {
    let locks = Locks::new(locker(LockKind::Fair, backends)?);
    let name = LockName::new("example:fair")?;
    locks.lock(&name, &LockOptions::new(WAIT, RENEWED)).await?.release().await?;
    Ok(())
}

/// `RReadWriteLock`.
async fn read_write(server: &RedisServer) -> Result<(), LockError> {
    let both = ReadWrite::new(server);
    let (readers, writers) = (Locks::new(both.reader()), Locks::new(both.writer()));
    let name = LockName::new("example:prices")?;
    let options = LockOptions::new(WAIT, RENEWED);
    // writeLock().lock(); readLock().lock(); writeLock().unlock()
    let writing = writers.lock(&name, &options).await?;
    let reading = readers.lock_as(writing.owner().clone(), &name, &options).await?;
    writing.release().await?;
    // Readers share, and no reader becomes a writer.
    let beside = readers.lock(&name, &options).await?;
    let upgrade = writers.lock_as(reading.owner().clone(), &name, &options).await;
    assert!(matches!(upgrade, Err(LockError::Unsupported(_))));
    reading.release().await?;
    beside.release().await?;
    Ok(())
}

/// `RedissonMultiLock`: members of one server or of many, of one kind or of several.
async fn several(server: &RedisServer) -> Result<(), LockError> {
    let member = |name| -> Result<(Arc<dyn Locker>, LockName), LockError> {
        Ok((Arc::new(Redisson::on(server)), LockName::new(name)?))
    };
    let multi = Multi::of(vec![member("example:debit")?, member("example:credit")?])?;
    let name = LockName::new("example:transfer")?;
    let locks = Locks::new(Arc::new(multi));
    locks.lock(&name, &LockOptions::new(WAIT, RENEWED)).await?.release().await?;
    Ok(())
}

/// `RedissonRedLock`, and a `RedissonMultiLock` of one name on several servers.
async fn majority(servers: &[RedisServer]) -> Result<(), LockError> {
    let member = |server| Arc::new(Redisson::on(server)) as Arc<dyn Locker>;
    // failedLocksLimit()
    let multi = Multi::same_name(servers.iter().map(member).collect())?.tolerating(1)?;
    for locker in [Arc::new(Redlock::new(servers)?) as Arc<dyn Locker>, Arc::new(multi)] {
        let name = LockName::new(format!("example:majority:{}", locker.name()))?;
        let locks = Locks::new(locker);
        locks.lock(&name, &LockOptions::new(WAIT, RENEWED)).await?.release().await?;
    }
    println!("a majority of {}", servers.len());
    Ok(())
}

/// `RSemaphore` and `RPermitExpirableSemaphore`.
async fn semaphores(server: &RedisServer) -> Result<(), LockError> {
    let semaphore = Semaphore::new(server, LockName::new("example:permits")?);
    // trySetPermits(4), availablePermits(), acquire(3), tryAcquire(2), drainPermits(), release()
    semaphore.try_set_permits(4).await?;
    let three = semaphore.acquire(3, WAIT).await?;
    assert_eq!(semaphore.available().await?, 1);
    assert!(semaphore.try_acquire(2).await?.is_none());
    let rest = semaphore.drain().await?;
    assert_eq!((three.count(), rest.count()), (3, 1));
    three.release().await?;
    rest.release().await?;
    semaphore.delete().await?;

    let expirable = ExpirableSemaphore::new(server, LockName::new("example:leased")?);
    expirable.try_set_permits(1).await?;
    // acquire(10, SECONDS) is a permit; its id lets another process release it.
    let id = expirable.acquire(WAIT, FIXED).await?.into_id();
    assert!(expirable.try_acquire(RENEWED).await?.is_none());
    expirable.release(&id).await?;
    // tryRelease(id): false is an error of its own.
    assert!(matches!(expirable.release(&id).await, Err(LockError::NotOwner)));
    expirable.delete().await?;
    semaphore.flush().await;
    Ok(())
}

/// `RCountDownLatch`.
async fn latch(server: &RedisServer) -> Result<(), LockError> {
    let latch = CountdownLatch::new(server, LockName::new("example:parts")?);
    // trySetCount(2), countDown(), getCount(), await(2, SECONDS)
    latch.try_set_count(2).await?;
    assert_eq!(latch.count_down().await?, 1);
    assert_eq!(latch.count().await?, 1);
    latch.count_down().await?;
    latch.wait(WAIT).await?;
    Ok(())
}
