//! Where the servers are, and how a process gets to them.

use std::time::Duration;

use distlock::mysql::MySqlServerOptions;
use distlock::{
    Backends, EtcdServer, LockError, MySqlServer, NatsServer, RedisConnection, RedisServer,
    Replication, ZooKeeperServer,
};
use redis::aio::ConnectionManagerConfig;
use serde::{Deserialize, Serialize};

/// How long a command may take: long enough for a machine on which many tests run, and for a server
/// that stands still for a moment.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);

/// What a holder keeps its locks for when it dies: the session's affair, not the lock's.
const ZOOKEEPER_SESSION: Duration = Duration::from_secs(1);

/// How long a dead holder keeps its locks in etcd: for the shortest TTL there is.
const ETCD_TTL: Duration = Duration::from_millis(1500);

/// How long a dead holder keeps its locks in NATS.
const NATS_TTL: Duration = Duration::from_secs(1);

/// Connections of one process: holders of and waiters for a lock of `mysql-row` or `mysql-named`
/// keep one each.
const MYSQL_CONNECTIONS: u32 = 24;

/// The servers of a process; it connects to those that are named.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Addresses {
    /// `redis://:password@host:port/0`
    pub redis: Option<String>,
    /// How long a command of Redis may take, if not as long as on a busy machine.
    pub redis_answer_ms: Option<u64>,
    /// How many replicas of it have to confirm a lock; none if this is not said.
    pub redis_replicas: Option<u32>,
    /// The same, of servers that do not know of each other.
    pub independent_redis: Vec<String>,
    /// `mysql://user:password@host:port/database`
    pub mysql: Option<String>,
    /// How many connections to that it may have, if the default does not fit.
    pub mysql_connections: Option<u32>,
    /// `host:port`
    pub zookeeper: Option<String>,
    /// How long the session of that lasts, if not as short as takeovers want it.
    pub zookeeper_session_ms: Option<u64>,
    /// `host:port`
    pub etcd: Option<String>,
    /// The TTL of that, if not as short as takeovers want it.
    pub etcd_ttl_ms: Option<u64>,
    /// `nats://host:port`
    pub nats: Option<String>,
    /// The TTL of that, if not as short as takeovers want it. Each TTL has a bucket of its own.
    pub nats_ttl_ms: Option<u64>,
}

impl Addresses {
    /// Servers at a port without a listener, of every sort that can be named without being there.
    pub fn nowhere() -> Self {
        let redis = "redis://:x@127.0.0.1:1/0";
        Self {
            redis: Some(redis.into()),
            redis_answer_ms: None,
            redis_replicas: None,
            independent_redis: vec![redis.into(); 5],
            mysql: Some("mysql://x:x@127.0.0.1:1/x".into()),
            mysql_connections: None,
            zookeeper: None,
            zookeeper_session_ms: None,
            etcd: Some("127.0.0.1:1".into()),
            etcd_ttl_ms: None,
            nats: Some("nats://127.0.0.1:1".into()),
            nats_ttl_ms: None,
        }
    }

    /// For kinds whose lease is not that of their callers: what a dead holder keeps its locks for.
    pub fn set_ttl(&mut self, ttl: Duration) {
        let ttl_ms = u64::try_from(ttl.as_millis()).ok();
        self.zookeeper_session_ms = ttl_ms;
        (self.etcd_ttl_ms, self.nats_ttl_ms) = (ttl_ms, ttl_ms);
    }

    /// Makes what mechanisms need. No server is asked before a lock is, except for a session with
    /// `ZooKeeper`.
    pub async fn connect(&self) -> Result<Backends, LockError> {
        let answer = self.redis_answer_ms.map_or(ANSWER_TIMEOUT, Duration::from_millis);
        let redis_at = |url: &String| redis_at(url, answer);
        let replication = match self.redis_replicas {
            Some(replicas @ 1..) => Replication::All { replicas },
            _ => Replication::None,
        };
        let confirmed = |server: RedisServer| server.with_replication(replication);
        let session = self.zookeeper_session_ms.map_or(ZOOKEEPER_SESSION, Duration::from_millis);
        let ttl = self.etcd_ttl_ms.map_or(ETCD_TTL, Duration::from_millis);
        let independent_redis = self.independent_redis.iter().map(redis_at);
        Ok(Backends {
            redis: self.redis.as_ref().map(redis_at).transpose()?.map(confirmed),
            independent_redis: independent_redis.collect::<Result<_, _>>()?,
            mysql: self.mysql_server()?,
            zookeeper: match &self.zookeeper {
                Some(at) => Some(ZooKeeperServer::connect(at, session).await?),
                None => None,
            },
            etcd: self.etcd.as_ref().map(|at| EtcdServer::connect_lazily(at, ttl)).transpose()?,
            nats: self.nats_server()?,
            redlock_restart_delay: Duration::ZERO,
        })
    }

    fn nats_server(&self) -> Result<Option<NatsServer>, LockError> {
        let ttl = self.nats_ttl_ms.map_or(NATS_TTL, Duration::from_millis);
        let bucket = format!("locks-{}", ttl.as_millis());
        let connect = |url: &String| NatsServer::connect_lazily(url, &bucket, ttl);
        self.nats.as_ref().map(connect).transpose()
    }

    /// The database, if there is one.
    pub fn mysql_server(&self) -> Result<Option<MySqlServer>, LockError> {
        let connections = self.mysql_connections.unwrap_or(MYSQL_CONNECTIONS);
        self.mysql.as_deref().map(|url| mysql_at(url, connections)).transpose()
    }
}

fn redis_at(url: &str, answer: Duration) -> Result<RedisServer, LockError> {
    let config = ConnectionManagerConfig::new()
        .set_connection_timeout(Some(ANSWER_TIMEOUT))
        .set_response_timeout(Some(answer))
        .set_number_of_retries(1)
        .set_min_delay(Duration::from_millis(20))
        .set_max_delay(Duration::from_millis(200));
    Ok(RedisServer::new(RedisConnection::connect_lazily(url, config)?))
}

fn mysql_at(url: &str, connections: u32) -> Result<MySqlServer, LockError> {
    let (url, pool_size, acquire) = (url.to_owned(), connections, ANSWER_TIMEOUT);
    MySqlServer::with_own_pool(&MySqlServerOptions { url, pool_size, acquire })
}
