//! Fencing: the resource refuses a holder that was paused past its lease.
//!
//! `cargo run -p distlock --features mysql --example fencing -- REDIS_URL DATABASE_URL`

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use distlock::mysql::{FenceError, MySqlTokens, ensure_schema, raise_fence};
use distlock::{
    Backends, Lease, LockError, LockKind, LockName, LockOptions, Locks, MySqlServer, RedisServer,
    locker,
};
use sqlx::{MySqlPool, MySqlTransaction};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let urls: Vec<String> = std::env::args().skip(1).collect();
    let [redis, database] = &urls[..] else {
        return Err("usage: fencing REDIS_URL DATABASE_URL".into());
    };
    let pool = MySqlPool::connect(database).await?;
    ensure_schema(&pool).await?;
    let table = "CREATE TABLE IF NOT EXISTS example_stock (id INT PRIMARY KEY, units INT NOT NULL)";
    sqlx::query(table).execute(&pool).await?;
    sqlx::query("REPLACE INTO example_stock VALUES (1, 10)").execute(&pool).await?;

    // Issue: the lock lives in Redis; its tokens are durable increments in the database.
    let server = RedisServer::open(redis).await?;
    let backends = Backends { redis: Some(server), ..Backends::default() };
    let tokens = Arc::new(MySqlTokens::new(&MySqlServer::new(pool.clone())));
    let locks = Locks::new(locker(LockKind::Redisson, &backends)?).with_token_issuer(tokens);
    let name = LockName::new("example:fencing")?;

    // Pass on: each ownership has a higher token. This lease is not renewed, so a holder that does
    // nothing for 2 s is as one that was paused.
    let lease = Lease::Fixed(Duration::from_secs(2));
    let options = LockOptions::new(Duration::from_secs(5), lease).fenced();
    let paused = locks.lock(&name, &options).await?;
    let successor = locks.lock(&name, &options).await?;
    let (low, high) = (paused.token().ok_or("no token")?, successor.token().ok_or("no token")?);

    // Check: the first statement of the successor's transaction raises the fence. An error rolls
    // the transaction back.
    let mut transaction = pool.begin().await?;
    successor.transaction(&mut transaction).await?;
    sell(transaction).await?;
    println!("sold with token {high}");

    // The paused holder works on. Its guard knows by the clock that it is lost, and asks no server.
    let mut transaction = pool.begin().await?;
    let Err(FenceError::Lock(LockError::Lost)) = paused.transaction(&mut transaction).await else {
        return Err("a lost guard was let in".into());
    };
    // A pause may as well come after that look. Then the fence, which has the guard's resource,
    // refuses the token.
    let resource = LockName::new(format!("redisson:{name}"))?;
    match raise_fence(&mut transaction, &resource, low).await {
        Err(FenceError::Stale { highest }) => println!("refused: token {low} is below {highest}"),
        Err(error) => return Err(error.into()),
        Ok(()) => return Err("a stale holder was let in".into()),
    }
    transaction.rollback().await?;
    println!("the paused holder: {:?}", paused.release().await?);
    println!("its successor: {:?}", successor.release().await?);
    locks.flush().await;
    Ok(())
}

/// Reads and writes in the transaction that the fence protects.
async fn sell(mut transaction: MySqlTransaction<'_>) -> sqlx::Result<()> {
    let units: i32 = sqlx::query_scalar("SELECT units FROM example_stock WHERE id = 1")
        .fetch_one(&mut *transaction)
        .await?;
    sqlx::query("UPDATE example_stock SET units = ? WHERE id = 1")
        .bind(units - 1)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await
}
