//! From the name of a kind to its mechanism: one line each.

use std::sync::Arc;

use crate::{Guarantees, LockError, LockKind, Locker, local, none};

/// The servers that mechanisms may use; a kind whose server is missing is refused.
#[derive(Clone, Default)]
pub struct Backends {
    /// One connection for everything, which reconnects by itself.
    #[cfg(feature = "redis")]
    pub redis: Option<crate::RedisConnection>,
}

impl Backends {
    #[cfg(feature = "redis")]
    fn redis(&self) -> Result<crate::RedisConnection, LockError> {
        self.redis.clone().ok_or(LockError::Unsupported("a Redis connection"))
    }
}

struct Mechanism {
    guarantees: Guarantees,
    build: fn(&Backends) -> Result<Arc<dyn Locker>, LockError>,
}

fn mechanism(kind: LockKind) -> Mechanism {
    let entry = |guarantees, build| Mechanism { guarantees, build };
    match kind {
        LockKind::None => entry(none::GUARANTEES, |_| Ok(Arc::new(none::NoLock))),
        LockKind::Local => entry(local::GUARANTEES, |_| Ok(Arc::new(local::Local::new()))),
        #[cfg(feature = "redis")]
        LockKind::LuaRelease => entry(crate::redis::lua_release::GUARANTEES, |servers| {
            Ok(Arc::new(crate::redis::lua_release::LuaRelease::new(servers.redis()?)))
        }),
        #[cfg(not(feature = "redis"))]
        LockKind::LuaRelease => {
            entry(none::GUARANTEES, |_| Err(LockError::Unsupported("the feature `redis`")))
        }
    }
}

/// What a kind promises.
pub fn guarantees(kind: LockKind) -> Guarantees {
    mechanism(kind).guarantees
}

/// Makes the mechanism of a kind. Fails with [`LockError::Unsupported`] without its server.
pub fn locker(kind: LockKind, backends: &Backends) -> Result<Arc<dyn Locker>, LockError> {
    (mechanism(kind).build)(backends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_without_its_server_is_refused_with_a_reason() {
        for kind in LockKind::ALL {
            match locker(kind, &Backends::default()) {
                Ok(locker) => assert_eq!(locker.guarantees(), guarantees(kind)),
                Err(error) => {
                    assert_eq!(error.to_string(), "the lock kind needs a Redis connection");
                }
            }
        }
        assert!(locker(LockKind::LuaRelease, &Backends::default()).is_err());
    }
}
