//! Way one: a guard. Take the lock, look at the guard before each effect, release it.
//!
//! `cargo run -p distlock --example guard -- redis://127.0.0.1:6379`

use std::time::Duration;

use distlock::{Backends, LockError, LockKind, LockName, LockOptions, Locks, RedisServer, locker};

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".into());
    let server = RedisServer::open(&url).await?;
    let backends = Backends { redis: Some(server), ..Backends::default() };
    let locks = Locks::new(locker(LockKind::Redisson, &backends)?);

    // Ten seconds of waiting; a lease of 30 s, which is renewed for as long as the guard lives.
    let guard = locks.lock(&LockName::new("example:guard")?, &LockOptions::default()).await?;
    for step in 1..=3 {
        if guard.is_lost() {
            println!("lost: stop before the next effect");
            break;
        }
        println!("step {step}, as {}", guard.owner());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    println!("released: {:?}", guard.release().await?);
    locks.flush().await;
    Ok(())
}
