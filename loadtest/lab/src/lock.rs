//! The locks that the laboratory knows. They are the rows of the library's list, read as text: the
//! laboratory does not link the library (docs/decisions/0044). A row says by which name the service
//! knows the lock, where it lives and what it promises. The promise says which family it is
//! predicted as; what a family shows is the laboratory's own (`predict.rs`).

#![allow(unexpected_cfgs, reason = "the features in the library's list are not this package's")]

use serde::{Deserialize, Serialize};

use crate::predict::Family;

/// Where the holds of a lock live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backend {
    Process,
    Redis,
    IndependentRedis,
    MySql,
    ZooKeeper,
    Etcd,
    Nats,
}

/// How a release checks the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnerCheck {
    NotApplicable,
    No,
    Racy,
    Atomic,
    Yes,
}

/// Whether holds carry a fencing token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fencing {
    NotApplicable,
    No,
    Optional,
    Yes,
    NotNeeded,
}

/// Makes [`Lock`] of the columns that matter here; the rest of a row is the library's.
macro_rules! kinds {
    ($(
        #[doc = $summary:literal]
        $kind:ident = $name:literal $(formerly $former:literal)? {
            backend: $backend:ident, keys: $keys:ident,
            hold: $hold:ident, renewal: $renewal:ident, wake: $wake:ident,
            owner_checked: $owner_checked:ident, idempotent: $idempotent:ident,
            reentrant: $reentrant:ident, fair: $fair:ident, fencing: $fencing:ident,
            $($rest:tt)+
        }
    )+) => {
        /// A kind of lock.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
            clap::ValueEnum,
        )]
        #[serde(rename_all = "kebab-case")]
        pub enum Lock {
            $(
                #[doc = $summary]
                $(#[serde(alias = $former)] #[value(alias = $former)])?
                $kind,
            )+
        }

        impl Lock {
            /// The name on command lines and in reports.
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)+ }
            }

            /// The family that its predictions are those of.
            pub fn family(self) -> Family {
                match self { $(Self::$kind => kinds!(@family $hold $renewal),)+ }
            }

            fn backend(self) -> Backend {
                match self { $(Self::$kind => Backend::$backend,)+ }
            }

            fn owner_check(self) -> OwnerCheck {
                match self { $(Self::$kind => OwnerCheck::$owner_checked,)+ }
            }

            fn fencing(self) -> Fencing {
                match self { $(Self::$kind => Fencing::$fencing,)+ }
            }
        }
    };

    (@family Nothing $renewal:ident) => { Family::None };
    (@family Process $renewal:ident) => { Family::Local };
    (@family Lease No) => { Family::Lease };
    (@family Lease Yes) => { Family::RenewedLease };
    (@family WeakestMember Yes) => { Family::RenewedLease };
    (@family Session Heartbeat) => { Family::Session };
    (@family Transaction $renewal:ident) => { Family::Transaction };
}

// Its mechanisms are features of the library, which this package does not have.
include!("../../../distlock/src/kinds.rs");

/// What a lock needs besides the database and the one Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtraServers {
    /// Nothing.
    Nothing,
    /// Redis servers that know nothing of one another.
    IndependentRedis,
    /// A `ZooKeeper`.
    ZooKeeper,
    /// An etcd.
    Etcd,
    /// A NATS server.
    Nats,
}

impl Lock {
    /// The distributed lock that stands for all of them where only one is compared.
    pub const DEFAULT: Self = Self::Redisson;

    /// How long it outlives a dead holder by default, in milliseconds;
    /// `None` if it has no lease.
    pub fn default_lease_ms(self) -> Option<u64> {
        match self.family() {
            Family::None | Family::Local | Family::Transaction => None,
            Family::Lease => Some(10_000),
            Family::RenewedLease | Family::Session => Some(30_000),
        }
    }

    /// The shortest lease that it accepts, in milliseconds, of those that cells ask for.
    pub fn least_lease_ms(self) -> u64 {
        match self.backend() {
            Backend::Etcd => 1500,
            Backend::Nats => 100,
            Backend::Process
            | Backend::Redis
            | Backend::IndependentRedis
            | Backend::MySql
            | Backend::ZooKeeper => 1,
        }
    }

    /// Whether it keeps other processes out.
    pub fn is_distributed(self) -> bool {
        !matches!(self.family(), Family::None | Family::Local)
    }

    /// Whether it is taken or released by a script in Redis: what no single command can do there.
    pub fn runs_scripts(self) -> bool {
        matches!(self.backend(), Backend::Redis | Backend::IndependentRedis)
            && self.owner_check() == OwnerCheck::Atomic
    }

    /// The pattern of the keys that Redis, shared or independent, has while the lock is held.
    pub fn holds_in_redis(self) -> Option<&'static str> {
        match self {
            Self::Fair => Some("distlock_fair:*"),
            Self::ReadWrite => Some("distlock_rw_write:*"),
            Self::MysqlTable => None,
            _ => matches!(self.family(), Family::Lease | Family::RenewedLease).then_some("lock:*"),
        }
    }

    /// The key that Redis, shared or independent, has while the lock of that name is held.
    pub fn key_in_redis(self, name: &str) -> Option<String> {
        let pattern = self.holds_in_redis()?;
        let is_plain = pattern == "lock:*";
        Some(if is_plain { name.to_owned() } else { pattern.replace('*', &format!("{{{name}}}")) })
    }

    /// How the lock of that name is called where the rest of its lease is read: in Redis or the
    /// database. `None` if it has no lease, or one elsewhere.
    pub fn lease_key(self, name: &str) -> Option<String> {
        let row = (self == Self::MysqlTable).then(|| name.to_owned());
        self.key_in_redis(name).or(row)
    }

    /// The pattern of the keys of a held lock in the Redis that the service uses for everything.
    pub fn holds_in_shared_redis(self) -> Option<&'static str> {
        self.holds_in_redis().filter(|_| self.needs() == ExtraServers::Nothing)
    }

    /// Whether its release does not look whose it is, or not in the same step.
    pub fn may_free_others(self) -> bool {
        matches!(self.owner_check(), OwnerCheck::No | OwnerCheck::Racy)
    }

    /// Whether its holds are in the database.
    pub fn is_in_the_database(self) -> bool {
        self.backend() == Backend::MySql
    }

    /// Whether its holds can carry a fencing token.
    pub fn has_tokens(self) -> bool {
        matches!(self.fencing(), Fencing::Yes | Fencing::Optional)
    }

    /// What it needs.
    pub fn needs(self) -> ExtraServers {
        match self.backend() {
            Backend::IndependentRedis => ExtraServers::IndependentRedis,
            Backend::ZooKeeper => ExtraServers::ZooKeeper,
            Backend::Etcd => ExtraServers::Etcd,
            Backend::Nats => ExtraServers::Nats,
            Backend::Process | Backend::Redis | Backend::MySql => ExtraServers::Nothing,
        }
    }

    /// The lock's position in a table: the local lock beside the distributed ones, no lock last.
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
    fn the_key_of_a_lock_is_its_name_or_has_it_as_a_tag() {
        let key = |lock: Lock| lock.key_in_redis("lock:voucher:7");
        assert_eq!(key(Lock::Redisson).as_deref(), Some("lock:voucher:7"));
        assert_eq!(key(Lock::Fair).as_deref(), Some("distlock_fair:{lock:voucher:7}"));
        assert_eq!([Lock::Local, Lock::MysqlTable, Lock::Zookeeper].map(key), [None, None, None]);
        assert_eq!(Lock::MysqlTable.lease_key("lock:voucher:7").as_deref(), Some("lock:voucher:7"));
        assert_eq!(Lock::MysqlNamed.lease_key("lock:voucher:7"), None);
    }

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
