//! Mechanisms that live in Redis, one file each. All of a process share one reconnecting
//! connection for commands.

pub(crate) mod getset_timestamp;
pub(crate) mod lua_release;
mod one_key;
pub(crate) mod owner_check;
pub(crate) mod red;
pub(crate) mod reentrant;
pub(crate) mod set_nx;
pub(crate) mod setnx_expire;

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use uuid::Uuid;

pub use self::getset_timestamp::GetsetTimestamp;
pub use self::owner_check::OwnerCheckLock;
pub use self::red::Red;
pub use self::setnx_expire::SetnxExpire;
use crate::LockError;

/// How long an answer may take, unless told otherwise.
const ANSWER: Duration = Duration::from_millis(500);

/// A Redis server. Cheap to clone; clones share its connections.
#[derive(Clone)]
pub struct RedisServer {
    connection: ConnectionManager,
    shared: Arc<Shared>,
}

struct Shared {
    client: redis::Client,
    /// This process, as its holds call it.
    process: Uuid,
}

impl RedisServer {
    /// Opens a connection that reconnects by itself, on which an answer may take half a second.
    /// See [`RedisServer::connect`].
    pub async fn open(url: &str) -> Result<Self, LockError> {
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(ANSWER))
            .set_response_timeout(Some(ANSWER))
            .set_number_of_retries(1)
            .set_min_delay(Duration::from_millis(20))
            .set_max_delay(Duration::from_millis(200));
        Self::connect(url, config).await
    }

    /// Opens a connection that reconnects by itself. `config` says how long an answer may take.
    /// The URL is `redis://` or `rediss://` (TLS) with user, password and database, or `unix://`.
    /// Fails with [`LockError::Backend`] if the server does not answer.
    pub async fn connect(url: &str, config: ConnectionManagerConfig) -> Result<Self, LockError> {
        let client = redis::Client::open(url)?;
        let connection = ConnectionManager::new_with_config(client.clone(), config).await?;
        Ok(Self::new(client, connection))
    }

    /// A server to which there is a connection already.
    pub fn new(client: redis::Client, connection: ConnectionManager) -> Self {
        Self { connection, shared: Arc::new(Shared { client, process: Uuid::new_v4() }) }
    }

    /// The connection for commands; clones use the same socket.
    pub fn connection(&self) -> ConnectionManager {
        self.connection.clone()
    }
}
