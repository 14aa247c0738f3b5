//! A database server that follows another one: what the one has written, the other writes later.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::dialect::{Dialect, transactions};
use super::{Database, Flavor};
use crate::error::Result;
use crate::mysql_wire::{Login, MySqlConnection};

/// How long a copy of a server may take.
const CLONE_TIMEOUT: Duration = Duration::from_mins(1);

impl Database {
    pub(super) fn dialect(&self) -> &'static Dialect {
        Dialect::of(self.flavor)
    }

    /// From now on it follows that server, which it reaches at `by`. What that one has done so far
    /// it does not do, so both must be fresh.
    ///
    /// # Errors
    /// If one of them was not started by [`Bed::database_with_log`](crate::Bed::database_with_log).
    pub fn follow(&self, primary: &Self, by: SocketAddr) -> Result<()> {
        // Its accounts were made by each itself.
        primary.run(primary.dialect().reset_log)?;
        self.follow_by_gtid(&primary.login, by)
    }

    /// Follows from where it is in the history of the primary.
    pub(super) fn follow_by_gtid(&self, primary: &Login, by: SocketAddr) -> Result<()> {
        let Login { user, password, .. } = primary;
        self.run(&self.dialect().follow(by, user, password))?;
        self.run("START REPLICA")
    }

    /// Whether accounts without a special right may write.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn takes_writes(&self) -> Result<bool> {
        Ok(self.value("@@GLOBAL.read_only")? == "0")
    }

    /// Ends that it is read-only, for every account.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn allow_writes(&self) -> Result<()> {
        self.run("SET GLOBAL read_only = OFF")
    }

    /// Whether it applies what it receives from its primary.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn set_applying(&self, on: bool) -> Result<()> {
        self.run(if on { "START REPLICA SQL_THREAD" } else { "STOP REPLICA SQL_THREAD" })
    }

    /// How many transactions of its primary it has received and not applied.
    ///
    /// # Errors
    /// If it does not answer, or follows no primary.
    pub fn transactions_behind(&self) -> Result<u64> {
        let received = self.received()?;
        match self.flavor {
            Flavor::MySql => self.not_in(&received, self).map(|missing| transactions(&missing)),
            Flavor::MariaDb | Flavor::Any => {
                Ok(transactions(&received).saturating_sub(transactions(&self.applied()?)))
            }
        }
    }

    /// How many transactions it has, applied or only received.
    pub(super) fn transactions(&self) -> Result<u64> {
        Ok(transactions(&self.applied()?) + self.transactions_behind()?)
    }

    /// Those of a `MySQL` position that the other server has not applied.
    pub(super) fn not_in(&self, position: &str, other: &Self) -> Result<String> {
        let applied = other.applied()?;
        self.value(&format!("GTID_SUBTRACT('{position}', '{applied}')"))
    }

    /// Waits until it has applied all that it has received by now.
    ///
    /// # Errors
    /// If that takes more than 8 s: the wait ends below the limit of a read.
    pub fn catch_up(&self) -> Result<()> {
        let position = self.received()?;
        let wait = self.dialect().wait;
        if self.value(&format!("{wait}('{position}', 8)"))? != "0" {
            return Err(self.failed(format!("has not applied {position} within 8 s")));
        }
        Ok(())
    }

    /// The position up to which it has received.
    pub(super) fn received(&self) -> Result<String> {
        Ok(self.status()?.get(self.dialect().received).cloned().unwrap_or_default())
    }

    /// The position up to which it has applied.
    pub(super) fn applied(&self) -> Result<String> {
        self.value(self.dialect().applied)
    }

    /// The value of an expression; empty if it is NULL.
    pub(super) fn value(&self, expression: &str) -> Result<String> {
        let answer = self.query(&format!("SELECT {expression} AS value"))?;
        Ok(answer.first().and_then(|row| row.get("value")).cloned().unwrap_or_default())
    }

    /// What the server says of its replication; nothing if it follows none.
    pub(super) fn status(&self) -> Result<HashMap<String, String>> {
        Ok(self.query("SHOW REPLICA STATUS")?.pop().unwrap_or_default())
    }

    /// Stops following and makes it a primary with what it has.
    ///
    /// # Errors
    /// If it does not follow a primary.
    pub fn promote(&self) -> Result<()> {
        self.run("STOP REPLICA")?;
        self.run("RESET REPLICA ALL")
    }

    /// Replaces all that a `MySQL` server has by what the other one has, and starts it again.
    pub(super) fn become_copy_of(&self, source: &Self) -> Result<()> {
        let Login { user, password, .. } = &source.login;
        let (host, port) = (source.address.ip(), source.address.port());
        // While this is on, it deletes its own data and is then refused the other's.
        self.run("SET GLOBAL super_read_only = OFF")?;
        self.run(&format!("SET GLOBAL clone_valid_donor_list = '{host}:{port}'"))?;
        let clone =
            format!("CLONE INSTANCE FROM '{user}'@'{host}':{port} IDENTIFIED BY '{password}'");
        let ended = MySqlConnection::open(&self.login)
            .and_then(|connection| connection.with_timeout(CLONE_TIMEOUT))
            .and_then(|mut connection| connection.query(&clone));
        // It has all, and would be started again by its supervisor if it had one.
        let is_complete = |error: &io::Error| error.to_string().contains("Restart server failed");
        match ended {
            Err(error) if !is_complete(&error) => Err(self.failed(format!("no clone: {error}"))),
            _ => self.restart(),
        }
    }
}
