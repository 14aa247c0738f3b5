//! From the name of a kind to its mechanism: one line each.

use std::sync::Arc;

use crate::{LockError, LockKind, Locker, local, none};

/// The servers that mechanisms may use; a kind whose server is missing is refused.
#[derive(Clone, Default)]
pub struct Backends {
    /// The Redis of the kinds that need one.
    #[cfg(feature = "redis")]
    pub redis: Option<crate::RedisServer>,
    /// The independent servers of `red` and `multi`.
    #[cfg(feature = "redis")]
    pub independent_redis: Vec<crate::RedisServer>,
    /// How long a server of `red` that came up empty stays out: the longest lease that anybody
    /// uses, or nothing if all of them keep what they were told (an append-only file, fsync
    /// always).
    #[cfg(feature = "redis")]
    pub red_restart_delay: std::time::Duration,
    /// The database of the `mysql` kinds.
    #[cfg(feature = "mysql")]
    pub mysql: Option<crate::MySqlServer>,
    /// The ensemble of the kind that needs one.
    #[cfg(feature = "zookeeper")]
    pub zookeeper: Option<crate::ZooKeeperServer>,
}

#[cfg(feature = "zookeeper")]
impl Backends {
    fn zookeeper(&self) -> Result<&crate::ZooKeeperServer, LockError> {
        self.zookeeper.as_ref().ok_or(LockError::Unsupported("a ZooKeeper server"))
    }
}

#[cfg(feature = "redis")]
impl Backends {
    fn redis(&self) -> Result<&crate::RedisServer, LockError> {
        self.redis.as_ref().ok_or(LockError::Unsupported("a Redis server"))
    }

    /// The same name by `redisson` on each of the independent servers.
    fn multi(&self) -> Result<crate::Multi, LockError> {
        if self.independent_redis.is_empty() {
            return Err(LockError::Unsupported("independent Redis servers"));
        }
        let member = |server| Arc::new(crate::Redisson::on(server)) as Arc<dyn Locker>;
        crate::Multi::same_name(self.independent_redis.iter().map(member).collect())
    }

    fn red(&self) -> Result<crate::Red, LockError> {
        let red = crate::Red::new(&self.independent_redis)?;
        Ok(red.with_restart_delay(self.red_restart_delay))
    }
}

#[cfg(feature = "mysql")]
impl Backends {
    fn mysql(&self) -> Result<&crate::MySqlServer, LockError> {
        self.mysql.as_ref().ok_or(LockError::Unsupported("a MySQL server"))
    }
}

/// A mechanism whose backend is a feature of this crate.
macro_rules! with {
    ($feature:literal, $locker:expr) => {{
        type Made = Result<Arc<dyn Locker>, LockError>;
        #[cfg(feature = $feature)]
        let made: Made = Ok(Arc::new($locker));
        #[cfg(not(feature = $feature))]
        let made: Made = Err(LockError::Unsupported(concat!("the feature `", $feature, "`")));
        made?
    }};
}

/// Makes the mechanism of a kind. Fails with [`LockError::Unsupported`] without its server.
#[cfg_attr(not(feature = "redis"), allow(unused_variables, reason = "no kind has a server"))]
pub fn locker(kind: LockKind, servers: &Backends) -> Result<Arc<dyn Locker>, LockError> {
    Ok(match kind {
        LockKind::None => Arc::new(none::NoLock),
        LockKind::Local => Arc::new(local::Local::new()),
        LockKind::SetnxExpire => with!("redis", crate::SetnxExpire::new(servers.redis()?)),
        LockKind::SetNx => with!("redis", crate::redis::set_nx::SetNx::new(servers.redis()?)),
        LockKind::OwnerCheck => with!("redis", crate::OwnerCheckLock::new(servers.redis()?)),
        LockKind::LuaRelease => {
            with!("redis", crate::redis::lua_release::LuaRelease::new(servers.redis()?))
        }
        LockKind::GetsetTimestamp => with!("redis", crate::GetsetTimestamp::new(servers.redis()?)),
        LockKind::Reentrant => {
            with!("redis", crate::redis::reentrant::Reentrant::new(servers.redis()?))
        }
        LockKind::Redisson => with!("redis", crate::Redisson::on(servers.redis()?)),
        LockKind::Fair => with!("redis", crate::redis::fair::Fair::new(servers.redis()?)),
        LockKind::ReadWrite => {
            with!("redis", crate::redis::read_write::Writer::new(servers.redis()?))
        }
        LockKind::Multi => with!("redis", servers.multi()?),
        LockKind::Red => with!("redis", servers.red()?),
        LockKind::MysqlTable => with!("mysql", crate::mysql::TableLock::new(servers.mysql()?)),
        LockKind::MysqlRow => with!("mysql", crate::mysql::RowLock::new(servers.mysql()?)),
        LockKind::MysqlNamed => with!("mysql", crate::mysql::NamedLock::new(servers.mysql()?)),
        LockKind::Zookeeper => {
            with!("zookeeper", crate::zookeeper::mutex::Mutex::new(servers.zookeeper()?))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guarantees;

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
