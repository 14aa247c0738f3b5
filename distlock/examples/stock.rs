//! Stock of one product: no lock. The database refuses the sale of what is not there.
//!
//! `cargo run -p distlock --features mysql --example stock -- DATABASE_URL`

use std::error::Error;

use sqlx::MySqlPool;
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let database = std::env::args().nth(1).ok_or("usage: stock DATABASE_URL")?;
    let pool = MySqlPool::connect(&database).await?;
    let table = "CREATE TABLE IF NOT EXISTS example_units (id INT PRIMARY KEY, stock INT NOT NULL)";
    sqlx::query(table).execute(&pool).await?;
    sqlx::query("REPLACE INTO example_units VALUES (1, 3)").execute(&pool).await?;

    let mut buyers = JoinSet::new();
    for _ in 0..10 {
        buyers.spawn(buy(pool.clone()));
    }
    let mut sold = 0;
    for buyer in buyers.join_all().await {
        sold += u32::from(buyer?);
    }
    println!("sold {sold} of 3 units to ten buyers");
    Ok(())
}

/// Whether there was a unit left.
async fn buy(pool: MySqlPool) -> Result<bool, sqlx::Error> {
    let sell = "UPDATE example_units SET stock = stock - 1 WHERE id = 1 AND stock >= 1";
    Ok(sqlx::query(sell).execute(&pool).await?.rows_affected() == 1)
}
