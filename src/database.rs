//! The database of a command that ends by itself.

use std::time::Duration;

use anyhow::{Context, anyhow};
use sqlx::{ConnectOptions, Connection, MySqlPool};
use tokio::time::timeout;

use crate::config::Database;
use crate::store::{self, DatabaseOptions};

/// How long a database may take to welcome a command.
const WELCOME: Duration = Duration::from_secs(5);

/// A pool for a command. A first connection is made outside it: whoever waits for one of the pool
/// is told only that none came, and not why.
pub async fn connect(database: &Database) -> anyhow::Result<MySqlPool> {
    let address = &database.database_url;
    let url = address.expose().to_owned();
    let options = DatabaseOptions { url, pool_size: 2, naive: false, silence: None };
    let pool = store::database(&options)
        .with_context(|| format!("{} is not usable", address.given_as()))?;
    let first = async { pool.connect_options().connect().await?.close().await };
    let connected = match timeout(WELCOME, first).await {
        Ok(connected) => connected.map_err(anyhow::Error::from),
        Err(_) => Err(anyhow!("the database does not answer")),
    };
    connected.with_context(|| format!("cannot connect to {}", address.given_as()))?;
    Ok(pool)
}
