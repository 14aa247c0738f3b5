//! Way two: a scope. The work runs under the lock and is told if the lock is lost.
//!
//! `cargo run -p distlock --example scope -- redis://127.0.0.1:6379`

use std::time::Duration;

use distlock::{
    Backends, LockError, LockKind, LockName, LockOptions, Locks, LostSignal, RedisServer, locker,
};

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".into());
    let server = RedisServer::open(&url).await?;
    let backends = Backends { redis: Some(server), ..Backends::default() };
    let locks = Locks::new(locker(LockKind::Redisson, &backends)?);

    let name = LockName::new("example:scope")?;
    match locks.scope(&name, &LockOptions::default(), work).await {
        Ok(steps) => println!("done, {steps} steps"),
        Err(LockError::Lost) => println!("the lock was lost: what was done must not count"),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Stops at a step's end when the lock is lost; it is never dropped half way.
async fn work(loss: LostSignal) -> u32 {
    let mut steps = 0;
    while steps < 3 && !loss.is_lost() {
        tokio::time::sleep(Duration::from_millis(200)).await;
        steps += 1;
    }
    steps
}
