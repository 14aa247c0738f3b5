//! The servers from which mechanisms are made. The rows in `kinds.rs` say which kind takes which.

#[cfg(feature = "redis")]
use std::sync::Arc;

#[cfg(any(
    feature = "etcd",
    feature = "mysql",
    feature = "nats",
    feature = "redis",
    feature = "zookeeper"
))]
use crate::LockError;
#[cfg(feature = "redis")]
use crate::Locker;

/// The servers that mechanisms may use; a kind whose server is missing is refused.
#[derive(Clone, Default)]
pub struct Backends {
    /// The Redis of the kinds that need one.
    #[cfg(feature = "redis")]
    pub redis: Option<crate::RedisServer>,
    /// The independent servers of `redlock` and `multi`.
    #[cfg(feature = "redis")]
    pub independent_redis: Vec<crate::RedisServer>,
    /// How long a server of `redlock` that came up empty stays out: the longest lease in use. Zero
    /// if all servers write each command through to disk (an append-only file, fsync always).
    #[cfg(feature = "redis")]
    pub redlock_restart_delay: std::time::Duration,
    /// The database of the `mysql` kinds.
    #[cfg(feature = "mysql")]
    pub mysql: Option<crate::MySqlServer>,
    /// The ensemble of the kind that needs one.
    #[cfg(feature = "zookeeper")]
    pub zookeeper: Option<crate::ZooKeeperServer>,
    /// The cluster of the kind that needs one.
    #[cfg(feature = "etcd")]
    pub etcd: Option<crate::EtcdServer>,
    /// The bucket of the kind that needs one.
    #[cfg(feature = "nats")]
    pub nats: Option<crate::NatsServer>,
}

#[cfg(feature = "etcd")]
impl Backends {
    pub(crate) fn etcd(&self) -> Result<&crate::EtcdServer, LockError> {
        self.etcd.as_ref().ok_or(LockError::Unsupported("an etcd server"))
    }
}

#[cfg(feature = "nats")]
impl Backends {
    pub(crate) fn nats(&self) -> Result<&crate::NatsServer, LockError> {
        self.nats.as_ref().ok_or(LockError::Unsupported("a NATS server"))
    }
}

#[cfg(feature = "zookeeper")]
impl Backends {
    pub(crate) fn zookeeper(&self) -> Result<&crate::ZooKeeperServer, LockError> {
        self.zookeeper.as_ref().ok_or(LockError::Unsupported("a ZooKeeper server"))
    }
}

#[cfg(feature = "redis")]
impl Backends {
    pub(crate) fn redis(&self) -> Result<&crate::RedisServer, LockError> {
        self.redis.as_ref().ok_or(LockError::Unsupported("a Redis server"))
    }

    /// One name by `redisson` on each of the independent servers.
    pub(crate) fn multi(&self) -> Result<crate::Multi, LockError> {
        if self.independent_redis.is_empty() {
            return Err(LockError::Unsupported("independent Redis servers"));
        }
        let member = |server| Arc::new(crate::Redisson::on(server)) as Arc<dyn Locker>;
        crate::Multi::same_name(self.independent_redis.iter().map(member).collect())
    }

    pub(crate) fn redlock(&self) -> Result<crate::Redlock, LockError> {
        let redlock = crate::Redlock::new(&self.independent_redis)?;
        Ok(redlock.with_restart_delay(self.redlock_restart_delay))
    }
}

#[cfg(feature = "mysql")]
impl Backends {
    pub(crate) fn mysql(&self) -> Result<&crate::MySqlServer, LockError> {
        self.mysql.as_ref().ok_or(LockError::Unsupported("a MySQL server"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LockKind, guarantees, locker};

    #[test]
    fn a_kind_without_its_server_is_refused_with_a_reason() {
        for kind in LockKind::ALL {
            match locker(kind, &Backends::default()) {
                Ok(locker) => {
                    assert_eq!(locker.guarantees(), guarantees(kind));
                    assert_eq!(locker.name(), kind.as_str());
                }
                Err(error) => {
                    assert!(error.to_string().starts_with("the lock kind needs "), "{error}");
                }
            }
        }
        assert!(locker(LockKind::LuaRelease, &Backends::default()).is_err());
    }
}
