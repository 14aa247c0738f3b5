//! A resource outside the database: it stores the highest token, and refuses a lower one.
//!
//! `cargo run -p distlock --features mysql --example outside -- REDIS_URL DATABASE_URL`

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use distlock::mysql::{MySqlTokens, ensure_schema};
use distlock::{
    Backends, Lease, LockKind, LockName, LockOptions, Locks, MySqlServer, RedisServer, Token,
    locker,
};
use sqlx::MySqlPool;

/// A store of files, say. It compares and writes in one step.
#[derive(Default)]
struct FileStore {
    highest: Option<Token>,
    text: String,
}

impl FileStore {
    fn write(&mut self, token: Token, text: &str) -> bool {
        let is_stale = self.highest.is_some_and(|highest| token < highest);
        if !is_stale {
            self.highest = Some(token);
            text.clone_into(&mut self.text);
        }
        !is_stale
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let urls: Vec<String> = std::env::args().skip(1).collect();
    let [redis, database] = &urls[..] else {
        return Err("usage: outside REDIS_URL DATABASE_URL".into());
    };
    let pool = MySqlPool::connect(database).await?;
    ensure_schema(&pool).await?;
    let backends = Backends { redis: Some(RedisServer::open(redis).await?), ..Backends::default() };
    let tokens = Arc::new(MySqlTokens::new(&MySqlServer::new(pool)));
    let locks = Locks::new(locker(LockKind::Redisson, &backends)?).with_token_issuer(tokens);

    // Not renewed: the first holder is as one that was paused past its lease.
    let lease = Lease::Fixed(Duration::from_secs(2));
    let options = LockOptions::new(Duration::from_secs(5), lease).fenced();
    let name = LockName::new("example:outside")?;
    let paused = locks.lock(&name, &options).await?;
    let successor = locks.lock(&name, &options).await?;
    let (low, high) = (paused.token().ok_or("no token")?, successor.token().ok_or("no token")?);

    let mut store = FileStore::default();
    println!("the successor writes: {}", store.write(high, "new"));
    println!("the paused holder writes: {}", store.write(low, "old"));
    println!("stored: {}", store.text);
    drop((paused, successor));
    locks.flush().await;
    Ok(())
}
