//! A database server that follows another one: what the one has written, the other writes later.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::Database;
use super::setup::Files;
use crate::error::Result;
use crate::mysql_wire::Login;

/// The part of the option file that lets others follow the server, and lets it follow others. Its
/// number among them is its port, which is no other's.
pub(super) fn render(files: &Files, address: SocketAddr) -> String {
    format!(
        "log-bin = {}-log\nbinlog-format = ROW\nserver-id = {}\n",
        files.data.display(),
        address.port()
    )
}

impl Database {
    /// From now on it follows that server, which it reaches at `by`. What that one has done so far
    /// it does not do, so both must be fresh.
    ///
    /// # Errors
    /// If one of them was not started by [`Bed::database_with_log`](crate::Bed::database_with_log).
    pub fn follow(&self, primary: &Self, by: SocketAddr) -> Result<()> {
        // Its accounts were made by each itself.
        primary.run("RESET MASTER")?;
        self.follow_by_gtid(&primary.login, by)
    }

    /// Follows from where it is in the history of the primary.
    pub(super) fn follow_by_gtid(&self, primary: &Login, by: SocketAddr) -> Result<()> {
        let Login { user, password, .. } = primary;
        self.run(&format!(
            "CHANGE MASTER TO MASTER_HOST = '{}', MASTER_PORT = {}, MASTER_USER = '{user}', \
             MASTER_PASSWORD = '{password}', MASTER_CONNECT_RETRY = 1, \
             MASTER_USE_GTID = slave_pos",
            by.ip(),
            by.port(),
        ))?;
        self.run("START SLAVE")
    }

    /// Whether accounts without a special right may write.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn takes_writes(&self) -> Result<bool> {
        let answer = self.query("SELECT @@GLOBAL.read_only AS read_only")?;
        Ok(answer.first().and_then(|row| row.get("read_only")).is_some_and(|value| value == "0"))
    }

    /// Whether it applies what it receives from its primary.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn set_applying(&self, on: bool) -> Result<()> {
        self.run(if on { "START SLAVE SQL_THREAD" } else { "STOP SLAVE SQL_THREAD" })
    }

    /// How many transactions of its primary it has received and not applied.
    ///
    /// # Errors
    /// If it does not answer, or follows no primary.
    pub fn transactions_behind(&self) -> Result<u64> {
        let (received, applied) = (self.received()?, self.variable("gtid_slave_pos")?);
        Ok(number_of(&received).saturating_sub(number_of(&applied)))
    }

    /// Waits until it has applied all that it has received by now.
    ///
    /// # Errors
    /// If that takes more than 8 s: the wait ends below the limit of a read.
    pub fn catch_up(&self) -> Result<()> {
        let position = self.received()?;
        let wait = format!("SELECT MASTER_GTID_WAIT('{position}', 8) AS behind");
        let behind = self.query(&wait)?;
        if behind.first().and_then(|row| row.get("behind")).is_none_or(|behind| behind != "0") {
            return Err(self.failed(format!("has not applied {position} within 8 s")));
        }
        Ok(())
    }

    /// The position up to which it has received.
    pub(super) fn received(&self) -> Result<String> {
        Ok(self.status()?.get("Gtid_IO_Pos").cloned().unwrap_or_default())
    }

    fn variable(&self, name: &str) -> Result<String> {
        let answer = self.query(&format!("SELECT @@GLOBAL.{name} AS value"))?;
        Ok(answer.first().and_then(|row| row.get("value")).cloned().unwrap_or_default())
    }

    /// What the server says of its replication; nothing if it follows none.
    pub(super) fn status(&self) -> Result<HashMap<String, String>> {
        Ok(self.query("SHOW SLAVE STATUS")?.pop().unwrap_or_default())
    }

    /// Stops following and makes it a primary with what it has.
    ///
    /// # Errors
    /// If it does not follow a primary.
    pub fn promote(&self) -> Result<()> {
        self.run("STOP SLAVE")?;
        self.run("RESET SLAVE ALL")
    }
}

/// The number of a transaction, the last part of its position.
pub(super) fn number_of(position: &str) -> u64 {
    position.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}
