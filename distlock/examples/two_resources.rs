//! Two resources at once: all or nothing, in one order, so that two transfers cannot deadlock.
//!
//! `cargo run -p distlock --example two_resources -- redis://127.0.0.1:6379`

use std::sync::Arc;
use std::time::Duration;

use distlock::{
    Backends, LockError, LockKind, LockName, LockOptions, Locks, Multi, RedisServer, locker,
};

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".into());
    let backends = Backends { redis: Some(RedisServer::open(&url).await?), ..Backends::default() };
    // One takes them as "left, right", the other as "right, left".
    tokio::try_join!(transfer(&backends, "left", "right"), transfer(&backends, "right", "left"))?;
    println!("both transfers are done");
    Ok(())
}

async fn transfer(backends: &Backends, from: &str, to: &str) -> Result<(), LockError> {
    let redisson = locker(LockKind::Redisson, backends)?;
    let account = |name| LockName::new(format!("example:account:{name}"));
    let both = Multi::of(vec![(Arc::clone(&redisson), account(from)?), (redisson, account(to)?)])?;
    let locks = Locks::new(Arc::new(both));
    let lease = locks.guarantees().lease(Duration::from_secs(30));
    let options = LockOptions::new(Duration::from_secs(10), lease);
    let name = LockName::new(format!("example:transfer:{from}:{to}"))?;
    let guard = locks.lock(&name, &options).await?;
    println!("from {from} to {to}");
    tokio::time::sleep(Duration::from_millis(100)).await;
    guard.release().await?;
    locks.flush().await;
    Ok(())
}
