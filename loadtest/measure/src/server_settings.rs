//! Settings of the servers that figures depend on.

use serde::Serialize;
use testbed::Redis;

use crate::database_settings::DatabaseSettings;

/// What servers keep, and when it is on disk, as they say themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ServerSettings {
    /// 1: every commit is on disk before it is answered.
    pub innodb_flush_log_at_trx_commit: i64,
    /// Whether the database writes a binary log.
    pub log_bin: bool,
    /// When Redis writes all it has; empty is never.
    pub redis_save: String,
    /// Whether Redis writes down each change: `yes` or `no`.
    pub redis_appendonly: String,
}

impl ServerSettings {
    /// Adds the settings of a database.
    #[must_use]
    pub fn with_database(self, server: &DatabaseSettings) -> Self {
        let DatabaseSettings { flush_log_at_trx_commit, log_bin, .. } = *server;
        Self { innodb_flush_log_at_trx_commit: flush_log_at_trx_commit, log_bin, ..self }
    }

    /// Adds the settings of a Redis; blocks until it answers.
    pub fn with_redis(self, redis: &Redis) -> testbed::Result<Self> {
        let asked = |name: &str| {
            let told = redis.command(&["CONFIG", "GET", name])?;
            Ok(told.lines().nth(1).unwrap_or_default().to_owned())
        };
        Ok(Self { redis_save: asked("save")?, redis_appendonly: asked("appendonly")?, ..self })
    }

    /// The database's settings, in words.
    pub fn database(&self) -> String {
        let log = if self.log_bin { "with a binary log" } else { "no binary log" };
        format!("innodb_flush_log_at_trx_commit={}, {log}", self.innodb_flush_log_at_trx_commit)
    }

    /// The settings of Redis, in words.
    pub fn redis(&self) -> String {
        let Self { redis_save, redis_appendonly, .. } = self;
        if redis_save.is_empty() && redis_appendonly == "no" {
            "nothing on disk".to_owned()
        } else {
            format!("save {redis_save:?}, appendonly {redis_appendonly}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn persistence_is_described_for_servers_with_and_without_it() {
        let none = ServerSettings {
            innodb_flush_log_at_trx_commit: 1,
            redis_appendonly: "no".to_owned(),
            ..ServerSettings::default()
        };
        assert_eq!(none.database(), "innodb_flush_log_at_trx_commit=1, no binary log");
        assert_eq!(none.redis(), "nothing on disk");
        let all =
            ServerSettings { log_bin: true, redis_appendonly: "yes".to_owned(), ..none.clone() };
        assert_eq!(all.database(), "innodb_flush_log_at_trx_commit=1, with a binary log");
        assert_eq!(all.redis(), "save \"\", appendonly yes");
        assert_eq!(
            ServerSettings { redis_save: "60 1".to_owned(), ..none }.redis(),
            "save \"60 1\", appendonly no"
        );
    }
}
