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
