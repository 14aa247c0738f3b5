//! The mechanism that lives in a bucket of NATS `JetStream`.
//!
//! Reading order: `key` (keys and values), `servers` (addresses, login), `bucket` (found or made),
//! `open_bucket` (entries, conditional writes), `renewer` (the heartbeat), `inspector`, `lock` (the
//! mechanism).

pub(crate) mod bucket;
pub(crate) mod inspector;
pub(crate) mod key;
pub(crate) mod open_bucket;
pub(crate) mod renewer;
mod servers;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use self::bucket::NatsBucket;
use crate::{LockError, LockOptions};

/// `JetStream` takes no shorter maximum age.
pub(crate) const MIN_TTL: Duration = Duration::from_millis(100);

/// A key-value bucket of a NATS server, 2.9 or newer, with `JetStream`. Cheap to clone; clones
/// share the connection.
#[derive(Clone)]
pub struct NatsServer {
    pub(crate) bucket: Arc<NatsBucket>,
}

impl NatsServer {
    /// The bucket that programs use which do not name one.
    pub const DEFAULT_BUCKET: &str = "locks";

    /// Checks the name of a bucket: 1 to 64 letters, digits, `-` and `_`. Fails with
    /// [`LockError::BadRequest`].
    pub fn check_bucket(name: &str) -> Result<(), LockError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if matches!(name.len(), 1..=64) && name.bytes().all(is_allowed) {
            return Ok(());
        }
        let limit = "must have 1 to 64 letters, digits, '-' and '_'".to_owned();
        Err(LockError::BadRequest { field: "NATS bucket", limit })
    }

    /// Connects at the first use, and makes the bucket if the server has none of that name. The
    /// servers are NATS' own list, `nats://user:password@host:port,nats://...`; user and password
    /// may be left out. `TLS` is not supported.
    ///
    /// A dead holder keeps its locks for the TTL of the bucket, its maximum age. A new bucket gets
    /// `ttl`, 100 ms to a day. All programs of a bucket have its TTL, whatever they ask for; it
    /// must not be changed while locks are held. The answers to one step are awaited for 2 s.
    ///
    /// Needs a tokio runtime for the rest of its life. Fails with [`LockError::BadRequest`].
    pub fn connect_lazily(servers: &str, bucket: &str, ttl: Duration) -> Result<Self, LockError> {
        if !(MIN_TTL..=LockOptions::MAX).contains(&ttl) {
            let limit = format!("must be 100 ms to a day, is {} ms", ttl.as_millis());
            return Err(LockError::BadRequest { field: "TTL", limit });
        }
        let bucket = NatsBucket::new(servers, bucket, ttl, Handle::current())?;
        Ok(Self { bucket: Arc::new(bucket) })
    }
}
