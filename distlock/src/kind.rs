//! What a lock kind is, and the macro that makes everything of the rows in `kinds.rs`: the enum,
//! the table of guarantees and the registry.

use std::fmt;
use std::str::FromStr;

use crate::LockKind;

/// Makes [`LockKind`], [`guarantees`](crate::guarantees) and [`locker`](crate::locker) of one row
/// for each kind. A row gives the columns of [`Guarantees`](crate::Guarantees) in their order, and
/// how the mechanism is made of the servers of [`Backends`](crate::Backends).
macro_rules! kinds {
    ($(
        #[doc = $summary:literal]
        $kind:ident = $name:literal $(formerly $former:literal)? {
            backend: $backend:ident, keys: $keys:ident,
            hold: $hold:ident, renewal: $renewal:ident, wake: $wake:ident,
            owner_checked: $owner_checked:ident, idempotent: $idempotent:ident,
            reentrant: $reentrant:ident, fair: $fair:ident, fencing: $fencing:ident,
            flaws: [$($flaw:expr),+ $(,)?],
            locker: |$servers:ident| $locker:expr,
        }
    )+) => {
        #[allow(clippy::wildcard_imports, reason = "rows name flaws by these constants")]
        use crate::flaws::*;

        /// The name of a mechanism. Command lines, tables and tests iterate [`LockKind::ALL`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum LockKind {
            $(#[doc = $summary] $kind,)+
        }

        impl LockKind {
            /// Every kind, in the order in which the literature introduces them.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$kind),+];

            /// The name used on command lines and in tables.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $name,)+ }
            }

            /// The name that this kind had before; [`FromStr`](std::str::FromStr) takes it as well.
            pub const fn former_name(self) -> Option<&'static str> {
                match self { $(Self::$kind => kinds!(@former $($former)?),)+ }
            }

            /// One line that says what it is.
            pub const fn summary(self) -> &'static str {
                match self { $(Self::$kind => $summary.trim_ascii(),)+ }
            }

            /// Where its holds live.
            pub const fn backend(self) -> crate::Backend {
                match self { $(Self::$kind => crate::Backend::$backend,)+ }
            }

            /// The form of its keys in the one Redis of [`Backend::Redis`](crate::Backend::Redis).
            pub const fn redis_keys(self) -> Option<crate::RedisKeys> {
                match self { $(Self::$kind => kinds!(@keys $keys),)+ }
            }
        }

        /// What a kind promises. For [`LockKind::Multi`] the row speaks of no particular members; a
        /// composite that was built knows its own.
        pub const fn guarantees(kind: LockKind) -> crate::Guarantees {
            match kind {
                $(LockKind::$kind => crate::Guarantees {
                    hold: crate::HoldKind::$hold,
                    renewal: crate::RenewalKind::$renewal,
                    wake: crate::WakeKind::$wake,
                    owner_checked: crate::OwnerCheck::$owner_checked,
                    idempotent: crate::Support::$idempotent,
                    reentrant: crate::Support::$reentrant,
                    fair: crate::Support::$fair,
                    fencing: crate::Fencing::$fencing,
                    flaws: &[$($flaw),+],
                },)+
            }
        }

        /// Makes the mechanism of a kind. Fails with
        /// [`LockError::Unsupported`](crate::LockError::Unsupported) without its server.
        pub fn locker(
            kind: LockKind,
            servers: &crate::Backends,
        ) -> Result<std::sync::Arc<dyn crate::Locker>, crate::LockError> {
            match kind {
                $(LockKind::$kind => {
                    let $servers = servers;
                    kinds!(@locker $backend $servers $locker)
                })+
            }
        }
    };

    (@former) => { None };
    (@former $former:literal) => { Some($former) };

    (@keys None) => { None };
    (@keys $keys:ident) => { Some(crate::RedisKeys::$keys) };

    (@locker Process $servers:ident $locker:expr) => {{
        let _ = $servers;
        Ok(std::sync::Arc::new($locker))
    }};
    (@locker Redis $($made:tt)+) => { kinds!(@feature "redis" $($made)+) };
    (@locker IndependentRedis $($made:tt)+) => { kinds!(@feature "redis" $($made)+) };
    (@locker MySql $($made:tt)+) => { kinds!(@feature "mysql" $($made)+) };
    (@locker Etcd $($made:tt)+) => { kinds!(@feature "etcd" $($made)+) };
    (@locker Nats $($made:tt)+) => { kinds!(@feature "nats" $($made)+) };
    (@locker ZooKeeper $($made:tt)+) => { kinds!(@feature "zookeeper" $($made)+) };

    // A mechanism whose backend is a feature of this crate.
    (@feature $feature:literal $servers:ident $locker:expr) => {{
        #[cfg(feature = $feature)]
        {
            Ok(std::sync::Arc::new($locker))
        }
        #[cfg(not(feature = $feature))]
        {
            let _ = $servers;
            Err(crate::LockError::Unsupported(concat!("the feature `", $feature, "`")))
        }
    }};
}

impl LockKind {
    /// Whether it heeds how many replicas its Redis says must confirm a lock.
    #[must_use]
    pub const fn can_be_confirmed(self) -> bool {
        matches!(self, Self::Redisson)
    }

    /// Whether a server that came up empty can be told to stay out of majorities for some time.
    #[must_use]
    pub const fn has_restart_delay(self) -> bool {
        matches!(self, Self::Redlock)
    }

    /// The numbers of independent servers it works with; `None` if any number is fine.
    #[must_use]
    pub const fn server_counts(self) -> Option<[usize; 2]> {
        if matches!(self, Self::Redlock) { Some([3, 5]) } else { None }
    }
}

/// The form of a lock's keys in Redis, and so the rights that they need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedisKeys {
    /// A string that SET writes.
    Set,
    /// A string that SETNX writes.
    SetNx,
    /// A string that SETNX and GETSET write: the time at which the lock ends.
    Timestamp,
    /// A hash of owner to hold count.
    Hash,
    /// The keys of `fair`.
    Fair,
    /// The keys of `read-write`.
    ReadWrite,
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
    /// An etcd cluster.
    Etcd,
    /// A bucket of NATS `JetStream`.
    Nats,
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
        let is_named = |kind: &Self| kind.as_str() == text || kind.former_name() == Some(text);
        Self::ALL.into_iter().find(is_named).ok_or(UnknownLockKind)
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
        assert_eq!("red".parse::<LockKind>().unwrap(), LockKind::Redlock, "its former name");
        let refusal = "red-lock".parse::<LockKind>().unwrap_err().to_string();
        assert!(refusal.contains("lua-release"), "{refusal}");
    }
}
