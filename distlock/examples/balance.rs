//! Money: the lock is the transaction that writes, so a lost lock cannot commit.
//!
//! `cargo run -p distlock --features mysql --example balance -- DATABASE_URL`

#![allow(clippy::needless_update, reason = "another backend is another field")]

use std::error::Error;
use std::time::Duration;

use distlock::mysql::ensure_schema;
use distlock::{Backends, LockKind, LockName, LockOptions, Locks, MySqlServer, locker};
use sqlx::MySqlPool;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let database = std::env::args().nth(1).ok_or("usage: balance DATABASE_URL")?;
    let pool = MySqlPool::connect(&database).await?;
    ensure_schema(&pool).await?;
    let table = "CREATE TABLE IF NOT EXISTS example_accounts (id INT PRIMARY KEY, cents INT)";
    sqlx::query(table).execute(&pool).await?;
    sqlx::query("REPLACE INTO example_accounts VALUES (1, 1000)").execute(&pool).await?;

    let backends = Backends { mysql: Some(MySqlServer::new(pool.clone())), ..Backends::default() };
    let locks = Locks::new(locker(LockKind::MysqlRow, &backends)?);
    tokio::try_join!(withdraw(&locks, 300), withdraw(&locks, 500))?;
    let left: i32 = sqlx::query_scalar("SELECT cents FROM example_accounts WHERE id = 1")
        .fetch_one(&pool)
        .await?;
    println!("{left} cents are left");
    locks.flush().await;
    Ok(())
}

/// Reads and writes by the transaction that holds the lock. If anything fails, the connection is
/// closed with the transaction open, and the server rolls back.
async fn withdraw(locks: &Locks, cents: i32) -> Result<(), Box<dyn Error>> {
    let lease = locks.guarantees().lease(Duration::from_secs(30));
    let options = LockOptions::new(Duration::from_secs(5), lease);
    let mut guard = locks.lock(&LockName::new("example:account:1")?, &options).await?;
    let transaction = guard.take_transaction().ok_or("this kind has no transaction")?;
    let mut connection = transaction.into_connection().detach();
    let balance: i32 = sqlx::query_scalar("SELECT cents FROM example_accounts WHERE id = 1")
        .fetch_one(&mut connection)
        .await?;
    sqlx::query("UPDATE example_accounts SET cents = ? WHERE id = 1")
        .bind(balance - cents)
        .execute(&mut connection)
        .await?;
    // It frees the lock as well.
    sqlx::raw_sql("COMMIT").execute(&mut connection).await?;
    Ok(())
}
