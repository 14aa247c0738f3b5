//! The locks of purchases, and the servers that only they need.

use anyhow::Context;
use distlock::{Locks, OwnerTag};

use super::{SESSION_SILENCE, Servers, millis};
use crate::config::Serve;
use crate::lock::{self, LockEndpoints, LockSpec};
use crate::sale::Guards;

/// The locks of purchases. Fails if their servers can never grant one; those that are away may come
/// back.
pub(super) async fn open(config: &Serve, servers: &Servers) -> anyhow::Result<Locks> {
    let endpoints = LockEndpoints {
        redis: Some(servers.redis.clone()),
        database_url: Some(&config.database.database_url),
        naive: config.laboratory.guards == Guards::Off,
        // A holder is silent for `work_ms` between two statements.
        silence: SESSION_SILENCE + millis(config.laboratory.work_ms),
        make_tables: false,
        more: &config.lock_servers,
    };
    let spec = LockSpec {
        kind: config.lock,
        lease: config.lease(),
        fenced: config.laboratory.fenced,
        injected_bug: config.laboratory.inject_bug,
    };
    let cannot = || format!("cannot make the lock {}", config.lock);
    let locks = lock::open(spec, endpoints).await.with_context(cannot)?;
    if !lock::has_servers_of_its_own(config.lock, &config.lock_servers) {
        locks.check_servers().await.with_context(cannot)?;
    }
    Ok(locks.with_owner_tag(OwnerTag::of_this_process("seckill")))
}

/// Checks the servers that only the locks need.
#[derive(Clone)]
pub(super) struct LockServersHealth {
    pub(super) locks: Locks,
    /// Whether the kind has such servers.
    pub(super) watched: bool,
}

impl LockServersHealth {
    pub(super) async fn ask(self) -> Result<(), String> {
        if !self.watched {
            return Ok(());
        }
        self.locks.check_servers().await.map_err(|error| format!("locks: {error}"))
    }
}
