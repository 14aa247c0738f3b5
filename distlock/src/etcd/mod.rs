//! The mechanism that lives in etcd.
//!
//! Reading order: `key` (names and keys), `messages` and `rpc` (the part of etcd's API),
//! `endpoints` (addresses), `login` (the user's token), `client` (members and deadlines). Then
//! `contender` (lease, key and place), `renewer` (the heartbeat), `inspector`, `lock` (the
//! mechanism).

pub(crate) mod client;
pub(crate) mod contender;
pub(crate) mod endpoints;
pub(crate) mod inspector;
pub(crate) mod key;
mod login;
pub(crate) mod messages;
mod renewer;
pub(crate) mod rpc;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use self::client::EtcdClient;
use crate::{LockError, LockOptions};

/// The least time by which a lease is shorter than what a dead holder may keep its lock for: etcd
/// looks for leases that have ended twice a second.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(500);
/// A lease lasts for whole seconds.
const MIN_TTL: Duration = Duration::from_millis(1500);

/// An etcd cluster, 3.4 or newer. Cheap to clone; clones share the connection.
#[derive(Clone)]
pub struct EtcdServer {
    pub(crate) client: Arc<EtcdClient>,
    /// What is asked for, in seconds.
    pub(crate) lease_ttl: i64,
}

impl EtcdServer {
    /// Connects at the first use. The endpoints are etcd's own list, `host:port,host:port`; the
    /// first one is asked until it does not answer. `user:password@` before the first one logs in,
    /// if the cluster knows users; signs other than letters, digits, `-`, `.`, `_` and `~` are
    /// `%XX` there. A dead holder keeps its locks for the TTL, 1.5 seconds to a day, and at most
    /// 150 ms longer. The lease lasts for the whole seconds of the TTL less half a second, unless
    /// the server insists on a longer one. The answers to one call are awaited for 2 s.
    ///
    /// Needs a tokio runtime for the rest of its life. Fails with [`LockError::BadRequest`].
    pub fn connect_lazily(endpoints: &str, ttl: Duration) -> Result<Self, LockError> {
        if !(MIN_TTL..=LockOptions::MAX).contains(&ttl) {
            let limit = format!("must be 1,500 ms to a day, is {} ms", ttl.as_millis());
            return Err(LockError::BadRequest { field: "TTL", limit });
        }
        let lease_ttl = ttl.saturating_sub(EXPIRY_INTERVAL).as_secs().cast_signed();
        let client = EtcdClient::new(endpoints, Handle::current())?;
        Ok(Self { client: Arc::new(client), lease_ttl })
    }
}
