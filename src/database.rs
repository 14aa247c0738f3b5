//! Migrates the database, and connects commands to it.

use anyhow::Context;
use sqlx::MySqlPool;

use crate::config::Address;
use crate::domain::Country;
use crate::store::{self, DatabaseOptions, Phones};

/// Brings the schema up to date and phones into E.164. Returns the number of applied steps, and
/// what was done to the phones.
pub async fn migrate(
    address: &Address,
    lab: bool,
    country: Country,
) -> anyhow::Result<(usize, Phones)> {
    let (url, given_as) = (address.expose(), address.given_as());
    let steps =
        store::migrate(url, lab).await.with_context(|| format!("cannot migrate {given_as}"))?;
    let phones = store::normalize_phones(url, country)
        .await
        .with_context(|| format!("cannot normalise the phones of {given_as}"))?;
    tracing::debug!(steps, phones = phones.normalized, "schema is up to date");
    Ok((steps, phones))
}

/// Opens a pool for a command, and checks that the database grants access.
pub async fn connect(address: &Address) -> anyhow::Result<MySqlPool> {
    let url = address.expose().to_owned();
    let options = DatabaseOptions { url, pool_size: 2, naive: false, silence: None };
    let pool = store::database(&options)
        .await
        .with_context(|| format!("{} is not usable", address.given_as()))?;
    check_access(address).await?;
    Ok(pool)
}

/// Makes one connection and closes it. Its error says why access fails; a pool's error does not.
pub async fn check_access(address: &Address) -> anyhow::Result<()> {
    let checked = store::check_database_access(address.expose()).await;
    checked.with_context(|| format!("cannot connect to {}", address.given_as()))
}
