//! Way three: try. The first caller does the work; the others return at once.
//!
//! `cargo run -p distlock --example try_lock -- redis://127.0.0.1:6379`

use std::time::Duration;

use distlock::{Backends, Lease, LockError, LockKind, LockName, Locks, RedisServer, locker};

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".into());
    let server = RedisServer::open(&url).await?;
    let backends = Backends { redis: Some(server), ..Backends::default() };
    let locks = Locks::new(locker(LockKind::Redisson, &backends)?);

    let name = LockName::new("example:nightly-report")?;
    let lease = Lease::Fixed(Duration::from_mins(1));
    let Some(guard) = locks.try_lock(&name, lease).await? else {
        println!("another process is at it");
        return Ok(());
    };
    println!("writing the report");
    guard.release().await?;
    // A second call in the same process is another owner as well.
    let first = locks.try_lock(&name, lease).await?;
    let second = locks.try_lock(&name, lease).await?;
    println!("first: {}, second: {}", first.is_some(), second.is_some());
    drop(first);
    locks.flush().await;
    Ok(())
}
