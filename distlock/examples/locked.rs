//! One order a user: of three clicks at once one is served, by a function that is locked.
//!
//! `cargo run -p distlock --example locked -- redis://127.0.0.1:6379`

use std::time::Duration;

use distlock::{Backends, LockError, LockKind, Locks, RedisServer, locked, locker};

struct Shop {
    locks: Locks,
}

impl Shop {
    /// A unique key on user and voucher would decide; the lock gives the other clicks an answer.
    #[locked(name = "example:order:{user_id}", wait = "50ms", lease = "30s")]
    async fn buy(&self, user_id: u64) -> Result<String, LockError> {
        tokio::time::sleep(Duration::from_millis(500)).await;
        Ok(format!("user {user_id} has a voucher"))
    }
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".into());
    let backends = Backends { redis: Some(RedisServer::open(&url).await?), ..Backends::default() };
    let shop = Shop { locks: Locks::new(locker(LockKind::Redisson, &backends)?) };

    let (one, two, three) = tokio::join!(shop.buy(17), shop.buy(17), shop.buy(17));
    let mut served = 0;
    for click in [one, two, three] {
        match click {
            Ok(_) => served += 1,
            Err(LockError::TimedOut { .. }) => println!("your order is in progress"),
            Err(error) => return Err(error),
        }
    }
    println!("served {served} of 3 clicks");
    shop.locks.flush().await;
    Ok(())
}
