//! The locks that the laboratory knows: the kinds of the service, by their names on its command
//! line, with the family that each is predicted as, and the servers that it needs.

use serde::{Deserialize, Serialize};

use crate::lab::predict::Family;

/// A kind of lock.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Lock {
    /// No lock.
    None,
    /// A mutex inside each process, as a `synchronized` block of a JVM is.
    Local,
    /// A key in Redis by SETNX, then EXPIRE.
    SetnxExpire,
    /// A key in Redis by SET NX PX, deleted by whoever releases.
    SetNx,
    /// The same, deleted if a look before says that it is the holder's.
    OwnerCheck,
    /// A key in Redis, released by a script if it still is the holder's.
    LuaRelease,
    /// A key in Redis whose value is the time at which it ends.
    GetsetTimestamp,
    /// A hash in Redis of owner and hold count.
    Reentrant,
    /// The same with a message at release and a lease that is renewed.
    Redisson,
    /// A queue in Redis.
    Fair,
    /// The writer's side of a read-write lock in Redis.
    ReadWrite,
    /// All of several independent Redis servers.
    Multi,
    /// A majority of independent Redis servers.
    Red,
    /// A row of the database with owner and expiry.
    MysqlTable,
    /// A row lock of the order's own transaction.
    MysqlRow,
    /// A named lock of a database session.
    MysqlNamed,
    /// Ephemeral sequential nodes.
    Zookeeper,
}

/// What a lock needs besides the database and the one Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// Redis servers that know nothing of one another.
    IndependentRedis,
    /// A `ZooKeeper`.
    ZooKeeper,
}

impl Lock {
    /// The distributed lock that stands for all of them where only one is compared.
    pub const USUAL: Self = Self::Redisson;

    /// The name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Local => "local",
            Self::SetnxExpire => "setnx-expire",
            Self::SetNx => "set-nx",
            Self::OwnerCheck => "owner-check",
            Self::LuaRelease => "lua-release",
            Self::GetsetTimestamp => "getset-timestamp",
            Self::Reentrant => "reentrant",
            Self::Redisson => "redisson",
            Self::Fair => "fair",
            Self::ReadWrite => "read-write",
            Self::Multi => "multi",
            Self::Red => "red",
            Self::MysqlTable => "mysql-table",
            Self::MysqlRow => "mysql-row",
            Self::MysqlNamed => "mysql-named",
            Self::Zookeeper => "zookeeper",
        }
    }

    /// The family that its predictions are those of.
    pub fn family(self) -> Family {
        match self {
            Self::None => Family::None,
            Self::Local => Family::Local,
            Self::SetnxExpire
            | Self::SetNx
            | Self::OwnerCheck
            | Self::LuaRelease
            | Self::GetsetTimestamp
            | Self::Reentrant => Family::Lease,
            Self::Redisson
            | Self::Fair
            | Self::ReadWrite
            | Self::Multi
            | Self::Red
            | Self::MysqlTable => Family::RenewedLease,
            Self::MysqlNamed | Self::Zookeeper => Family::Session,
            Self::MysqlRow => Family::Transaction,
        }
    }

    /// How long it outlives a dead holder if the service is not told otherwise, in milliseconds;
    /// `None` if it has no lease.
    pub fn usual_lease_ms(self) -> Option<u64> {
        match self.family() {
            Family::None | Family::Local | Family::Transaction => None,
            Family::Lease => Some(10_000),
            Family::RenewedLease | Family::Session => Some(30_000),
        }
    }

    /// Whether it keeps other processes out.
    pub fn is_distributed(self) -> bool {
        !matches!(self.family(), Family::None | Family::Local)
    }

    /// Whether it is taken or released by a script in Redis.
    pub fn runs_scripts(self) -> bool {
        matches!(
            self,
            Self::LuaRelease
                | Self::Reentrant
                | Self::Redisson
                | Self::Fair
                | Self::ReadWrite
                | Self::Multi
                | Self::Red
        )
    }

    /// What the keys are called, as a pattern, that are in Redis (the usual one or independent
    /// ones) while somebody holds it.
    pub fn holds_in_redis(self) -> Option<&'static str> {
        match self {
            Self::Fair => Some("distlock_fair:*"),
            Self::ReadWrite => Some("distlock_rw_write:*"),
            Self::MysqlTable => None,
            _ => matches!(self.family(), Family::Lease | Family::RenewedLease).then_some("lock:*"),
        }
    }

    /// Whether its release does not look whose it is, or not in the same step.
    pub fn may_free_others(self) -> bool {
        matches!(self, Self::SetnxExpire | Self::SetNx | Self::OwnerCheck | Self::GetsetTimestamp)
    }

    /// Whether its holds can carry a fencing token.
    pub fn has_tokens(self) -> bool {
        matches!(
            self,
            Self::Redisson | Self::Fair | Self::ReadWrite | Self::MysqlTable | Self::Zookeeper
        )
    }

    /// What it needs.
    pub fn needs(self) -> Needs {
        match self {
            Self::Multi | Self::Red => Needs::IndependentRedis,
            Self::Zookeeper => Needs::ZooKeeper,
            Self::None
            | Self::Local
            | Self::SetnxExpire
            | Self::SetNx
            | Self::OwnerCheck
            | Self::LuaRelease
            | Self::GetsetTimestamp
            | Self::Reentrant
            | Self::Redisson
            | Self::Fair
            | Self::ReadWrite
            | Self::MysqlTable
            | Self::MysqlRow
            | Self::MysqlNamed => Needs::Nothing,
        }
    }

    /// Its place in a table: the local lock and the distributed ones side by side, no lock last.
    pub fn rank(self) -> (u8, Self) {
        let group = match self.family() {
            Family::Local => 0,
            Family::Lease | Family::RenewedLease | Family::Session | Family::Transaction => 1,
            Family::None => 2,
        };
        (group, self)
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn the_name_in_reports_is_that_on_the_command_line() {
        for lock in Lock::value_variants() {
            let on_command_line = lock.to_possible_value().expect("a name");
            assert_eq!(on_command_line.get_name(), lock.name());
            let in_json = serde_json::to_value(lock).expect("JSON");
            assert_eq!(in_json, lock.name());
        }
    }
}
