//! Cache refill: one task refills the cache, and the others serve the stale value.
//!
//! `cargo run -p distlock --example cache_refill -- redis://127.0.0.1:6379`

use std::time::Duration;

use distlock::{Backends, Lease, LockError, LockKind, LockName, Locks, RedisServer, locker};

/// A process that dies while it refills keeps the others from it for this time.
const LEASE: Lease = Lease::Renewed(Duration::from_secs(5));

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".into());
    let backends = Backends { redis: Some(RedisServer::open(&url).await?), ..Backends::default() };
    let locks = Locks::new(locker(LockKind::Redisson, &backends)?);

    let (one, two, three) = tokio::try_join!(read(&locks), read(&locks), read(&locks))?;
    let refills = [one, two, three].iter().filter(|value| **value == "fresh").count();
    println!("refilled {refills} time for three readers");
    locks.flush().await;
    Ok(())
}

/// Finds the cached value too old.
async fn read(locks: &Locks) -> Result<&'static str, LockError> {
    let Some(guard) = locks.try_lock(&LockName::new("example:prices")?, LEASE).await? else {
        return Ok("stale");
    };
    // The slow query, whose result goes into the cache.
    tokio::time::sleep(Duration::from_millis(300)).await;
    guard.release().await?;
    Ok("fresh")
}
