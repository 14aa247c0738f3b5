//! The mechanism that lives in a bucket of NATS `JetStream`.
//!
//! Reading order: `key` (keys and values), `bucket` (connection, entries, conditional writes),
//! `renewer` (the heartbeat), `inspector`, `lock` (the mechanism).

pub(crate) mod bucket;
pub(crate) mod inspector;
pub(crate) mod key;
pub(crate) mod renewer;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use self::bucket::NatsBucket;
use crate::{LockError, LockOptions};

/// `JetStream` takes no shorter maximum age.
const MIN_TTL: Duration = Duration::from_millis(100);

/// A key-value bucket of a NATS server, 2.9 or newer, with `JetStream`. Cheap to clone; clones
/// share the connection.
#[derive(Clone)]
pub struct NatsServer {
    pub(crate) bucket: Arc<NatsBucket>,
}

impl NatsServer {
    /// The bucket that programs use which do not name one.
    pub const DEFAULT_BUCKET: &str = "locks";

    /// Connects at the first use, and makes the bucket if the server has none of that name. The
    /// servers are NATS' own list, `nats://user:password@host:port,nats://...`; user and password
    /// may be left out. `TLS` is not supported.
    ///
    /// A dead holder keeps its locks for the TTL of the bucket, its maximum age. A new bucket gets
    /// `ttl`, 100 ms to a day. All programs of a bucket have its TTL, whatever they ask for. The
    /// answer to one call is awaited for 2 s.
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
