//! The database of a command that ends by itself.

use anyhow::Context;
use sqlx::MySqlPool;

use crate::config::{Address, Database};
use crate::store::{self, DatabaseOptions};

/// A pool for a command, of a database that lets it in.
pub async fn connect(database: &Database) -> anyhow::Result<MySqlPool> {
    let address = &database.database_url;
    let url = address.expose().to_owned();
    let options = DatabaseOptions { url, pool_size: 2, naive: false, silence: None };
    let pool = store::database(&options)
        .with_context(|| format!("{} is not usable", address.given_as()))?;
    check_access(address).await?;
    Ok(pool)
}

/// Makes one connection and closes it. An error says why there is none, which that of a pool does
/// not.
pub async fn check_access(address: &Address) -> anyhow::Result<()> {
    let checked = store::check_database_access(address.expose()).await;
    checked.with_context(|| format!("cannot connect to {}", address.given_as()))
}
