//! Mechanisms that live in Redis, one file each. All of a process share one connection for
//! commands, which is replaced when it ends or falls silent.

pub(crate) mod compare_and_delete;
mod connection;
mod countdown_latch;
mod expirable_semaphore;
pub(crate) mod holds;
pub(crate) mod idempotent_call;
#[cfg(feature = "injected-bugs")]
pub(crate) mod injected_bug;
mod inspect;
pub(crate) mod inspector;
pub(crate) mod key_form;
pub(crate) mod keys;
pub(crate) mod one_key;
mod permit_renewer;
mod permits;
mod redisson_read_write;
pub(crate) mod renew;
pub(crate) mod replication;
pub(crate) mod scan;
pub(crate) mod script;
mod semaphore;
pub(crate) mod signal;
pub(crate) mod stored_key;
mod wait_exchange;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::aio::ConnectionManagerConfig;
use uuid::Uuid;

pub use self::connection::{RedisAddress, RedisConnection};
pub use self::countdown_latch::CountdownLatch;
pub use self::expirable_semaphore::{ExpirableSemaphore, Permit};
pub use self::inspect::RedissonLock;
use self::permits::Synchronizers;
use self::renew::RedisRenewer;
use self::replication::ReplicatedWriter;
pub use self::replication::Replication;
pub use self::semaphore::{Permits, Semaphore};
use self::signal::Signals;
pub use self::wait_exchange::RedisWaitExchange;
use crate::{LockError, Owner};

/// How long an answer may take by default.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// A Redis server, or a Redis Cluster. Cheap to clone; clones share its connections.
#[derive(Clone)]
pub struct RedisServer {
    connection: RedisConnection,
    shared: Arc<ServerState>,
    replication: Replication,
}

struct ServerState {
    /// This process, as its holds call it.
    process: Uuid,
    /// The last number of an owner.
    owners: AtomicU64,
    signals: Signals,
    renewer: Arc<RedisRenewer>,
    /// Made for the first semaphore or latch.
    synchronizers: OnceLock<Arc<Synchronizers>>,
}

impl Drop for ServerState {
    fn drop(&mut self) {
        self.signals.close();
    }
}

impl RedisServer {
    /// Opens a connection that comes back by itself, on which an answer may take half a second.
    /// See [`RedisServer::connect`].
    pub async fn open(url: &str) -> Result<Self, LockError> {
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(RESPONSE_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT))
            .set_number_of_retries(1)
            .set_min_delay(Duration::from_millis(20))
            .set_max_delay(Duration::from_millis(200));
        Self::connect(url, config).await
    }

    /// Opens a connection that comes back by itself. `config` says how long an answer may take.
    /// See [`RedisAddress`] for URLs. Fails with [`LockError::Backend`] if the server does not
    /// answer, or a master of the cluster.
    pub async fn connect(url: &str, config: ConnectionManagerConfig) -> Result<Self, LockError> {
        Ok(Self::new(RedisConnection::connect(url, config).await?))
    }

    /// A server to which there is a connection already.
    #[must_use]
    pub fn new(connection: RedisConnection) -> Self {
        let signals = Signals::new(&connection);
        let process = Uuid::new_v4();
        let owners = AtomicU64::new(0);
        let writer = ReplicatedWriter::Unconfirmed(connection.clone());
        let renewer = Arc::new(RedisRenewer::new(&connection, writer));
        let synchronizers = OnceLock::new();
        let shared = ServerState { process, owners, signals, renewer, synchronizers };
        let shared = Arc::new(shared);
        Self { connection, shared, replication: Replication::None }
    }

    /// Requires confirmations by replicas, for the kinds that can ask for them.
    #[must_use]
    pub fn with_replication(self, replication: Replication) -> Self {
        Self { replication, ..self }
    }

    /// How many replicas must confirm a lock.
    #[must_use]
    pub fn replication(&self) -> Replication {
        self.replication
    }

    /// The connection for commands; clones use the same socket.
    #[must_use]
    pub fn connection(&self) -> RedisConnection {
        self.connection.clone()
    }

    /// How many channels this process is subscribed to, to learn that locks are free.
    #[must_use]
    pub fn subscribed_channels(&self) -> usize {
        self.shared.signals.channels()
    }

    /// The command by which scripts wake waiters. On a cluster (Redis 7 or later) a message stays
    /// with the slot of its channel, which is that of the lock.
    pub(crate) fn publish(&self) -> &'static str {
        publish_command(&self.connection)
    }

    /// The renewer of all holds that are hashes of owner to hold count and need no confirmation.
    pub(crate) fn renewer(&self) -> Arc<RedisRenewer> {
        Arc::clone(&self.shared.renewer)
    }

    /// What the semaphores and latches of this server share.
    pub(crate) fn synchronizers(&self) -> Arc<Synchronizers> {
        Arc::clone(self.shared.synchronizers.get_or_init(|| Arc::new(Synchronizers::new(self))))
    }

    /// Messages that locks may be free.
    pub(crate) fn signals(&self) -> &Signals {
        &self.shared.signals
    }

    /// An owner as Redisson writes it: `<process uuid>:<number>`, the number never used before in
    /// this process.
    pub(crate) fn fresh_owner(&self) -> Owner {
        let number = self.shared.owners.fetch_add(1, Ordering::Relaxed) + 1;
        Owner::from_text(format!("{}:{number}", self.shared.process))
    }
}

/// The command of [`RedisServer::publish`].
fn publish_command(connection: &RedisConnection) -> &'static str {
    if connection.is_cluster() { "SPUBLISH" } else { "PUBLISH" }
}
