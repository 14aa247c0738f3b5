//! What a database server says of itself.

use std::time::Duration;

use sqlx::Connection as _;
use sqlx::mysql::MySqlConnection;

use crate::error::{Error, Result};

/// How long connecting and reading may take together.
const DEADLINE: Duration = Duration::from_secs(10);

const SETTINGS: &str = "SELECT VERSION(), CAST(@@innodb_flush_log_at_trx_commit AS SIGNED), \
                        CAST(@@log_bin AS SIGNED)";

/// Version of a database server, and the settings that decide what a commit is worth.
#[derive(Debug, Clone)]
pub struct DatabaseSettings {
    /// `SELECT VERSION()`.
    pub version: String,
    /// `innodb_flush_log_at_trx_commit`: 1 = every commit is on disk before its answer.
    pub flush_log_at_trx_commit: i64,
    /// Whether it writes a binary log as well.
    pub log_bin: bool,
}

impl DatabaseSettings {
    /// Reads them from any schema of the server, within 10 s.
    pub async fn read(url: &str) -> Result<Self> {
        Self::read_within(url, DEADLINE).await
    }

    async fn read_within(url: &str, deadline: Duration) -> Result<Self> {
        let unreadable =
            |why: String| Error::Setup(format!("the database's settings cannot be read: {why}"));
        match tokio::time::timeout(deadline, Self::query(url)).await {
            Ok(read) => read.map_err(|error| unreadable(error.to_string())),
            Err(_) => Err(unreadable(format!("it did not answer within {deadline:?}"))),
        }
    }

    async fn query(url: &str) -> std::result::Result<Self, sqlx::Error> {
        let mut connection = MySqlConnection::connect(url).await?;
        let (version, flush_log_at_trx_commit, log_bin): (_, _, i64) =
            sqlx::query_as(SETTINGS).fetch_one(&mut connection).await?;
        Ok(Self { version, flush_log_at_trx_commit, log_bin: log_bin != 0 })
    }
}

#[cfg(test)]
mod tests {
    use testbed::Bed;

    use super::*;

    #[tokio::test]
    async fn a_server_that_stops_answering_is_given_up_and_named() {
        let bed = Bed::start().expect("a folder");
        let database = bed.database(testbed::Flavor::Any).expect("a database server");
        let url = database.url("information_schema");
        let settings = DatabaseSettings::read(&url).await.expect("readable");
        assert!(!settings.version.is_empty(), "{settings:?}");
        database.freeze().expect("frozen");
        let short = Duration::from_millis(300);
        let asked = DatabaseSettings::read_within(&url, short);
        let result = tokio::time::timeout(Duration::from_secs(8), asked).await;
        database.thaw().expect("thawed");
        let error = result.expect("given up in time").expect_err("it is frozen");
        assert!(error.to_string().contains("did not answer within"), "{error}");
    }
}
