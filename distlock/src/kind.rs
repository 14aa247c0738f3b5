//! The closed list of lock kinds.

use std::fmt;
use std::str::FromStr;

/// The name of a mechanism. Command lines, tables and tests iterate [`LockKind::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// No lock at all.
    None,
    /// A fair mutex per name inside this process, as `synchronized` is in a JVM.
    Local,
    /// Redis `SETNX`, then `EXPIRE`, then `DEL`.
    SetnxExpire,
    /// Redis `SET key owner NX PX lease`, released by a bare `DEL`.
    SetNx,
    /// As [`Self::SetNx`], released by `GET`, a comparison in the client, `DEL`.
    OwnerCheck,
    /// As [`Self::SetNx`], released by one script that compares the owner.
    LuaRelease,
    /// Redis `SETNX` of the time at which it ends by the client's clock, taken over by `GETSET`.
    GetsetTimestamp,
    /// A Redis hash of owner and hold count, changed by scripts.
    Reentrant,
    /// Redisson's `RLock`: the hash, a message at release, a watchdog. Speaks its wire format.
    Redisson,
    /// A queue in Redis: first come, first served.
    Fair,
    /// Redis: readers share, a writer excludes. As a plain lock it is the writer's side.
    ReadWrite,
    /// All of several locks.
    Multi,
    /// A majority of independent Redis servers (Redlock).
    Red,
    /// A row per lock with owner, expiry and token.
    MysqlTable,
    /// `SELECT ... FOR UPDATE` in the transaction of the business write.
    MysqlRow,
    /// `GET_LOCK` on a pinned connection.
    MysqlNamed,
    /// Ephemeral sequential nodes, as Curator's `InterProcessMutex`.
    Zookeeper,
}

impl LockKind {
    /// Every kind, in the order in which the literature introduces them.
    pub const ALL: [Self; 17] = [
        Self::None,
        Self::Local,
        Self::SetnxExpire,
        Self::SetNx,
        Self::OwnerCheck,
        Self::LuaRelease,
        Self::GetsetTimestamp,
        Self::Reentrant,
        Self::Redisson,
        Self::Fair,
        Self::ReadWrite,
        Self::Multi,
        Self::Red,
        Self::MysqlTable,
        Self::MysqlRow,
        Self::MysqlNamed,
        Self::Zookeeper,
    ];

    /// The name used on command lines and in tables.
    pub const fn as_str(self) -> &'static str {
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

    /// Whether it heeds how many replicas its Redis says must confirm a lock.
    pub const fn can_be_confirmed(self) -> bool {
        matches!(self, Self::Redisson)
    }

    /// Whether a server of its that came up empty can be told to stay out for a while.
    pub const fn has_restart_delay(self) -> bool {
        matches!(self, Self::Red)
    }

    /// The numbers of independent servers it works with; `None` if any number is fine.
    pub const fn server_counts(self) -> Option<[usize; 2]> {
        if matches!(self, Self::Red) { Some([3, 5]) } else { None }
    }

    /// Where its holds live.
    pub const fn backend(self) -> Backend {
        match self {
            Self::None | Self::Local => Backend::Process,
            Self::SetnxExpire
            | Self::SetNx
            | Self::OwnerCheck
            | Self::LuaRelease
            | Self::GetsetTimestamp
            | Self::Reentrant
            | Self::Redisson
            | Self::Fair
            | Self::ReadWrite => Backend::Redis,
            Self::Multi | Self::Red => Backend::IndependentRedis,
            Self::MysqlTable | Self::MysqlRow | Self::MysqlNamed => Backend::MySql,
            Self::Zookeeper => Backend::ZooKeeper,
        }
    }
}

/// The servers that a kind lives on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// None: it lives in this process, or nowhere.
    Process,
    /// One Redis.
    Redis,
    /// Several Redis servers that know nothing of one another.
    IndependentRedis,
    /// One database.
    MySql,
    /// A `ZooKeeper` ensemble.
    ZooKeeper,
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that is no lock kind.
#[derive(Debug, thiserror::Error)]
#[error("no such lock kind; one of: {}", LockKind::ALL.map(LockKind::as_str).join(", "))]
pub struct UnknownLockKind;

impl FromStr for LockKind {
    type Err = UnknownLockKind;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(UnknownLockKind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_again_by_its_name() {
        for kind in LockKind::ALL {
            assert_eq!(kind.as_str().parse::<LockKind>().unwrap(), kind);
        }
        let refusal = "redlock".parse::<LockKind>().unwrap_err().to_string();
        assert!(refusal.contains("lua-release"), "{refusal}");
    }
}
