//! Where the servers are, and how a process gets to them.

use std::time::Duration;

use distlock::mysql::MySqlServerOptions;
use distlock::{Backends, LockError, MySqlServer, RedisServer, ZooKeeperServer};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use serde::{Deserialize, Serialize};

/// How long a command may take: long enough for a machine on which many tests run.
const ANSWER: Duration = Duration::from_secs(1);

/// What a holder keeps its locks for when it dies: the session's affair, not the lock's.
const ZOOKEEPER_SESSION: Duration = Duration::from_secs(1);

/// Connections of one process: those who hold or wait for a lock of `mysql-row` or `mysql-named`
/// keep one each.
const MYSQL_CONNECTIONS: u32 = 24;

/// The servers of a process; it connects to those that are named.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Addresses {
    /// `redis://:password@host:port/0`
    pub redis: Option<String>,
    /// The same, of servers that do not know of each other.
    pub independent_redis: Vec<String>,
    /// `mysql://user:password@host:port/database`
    pub mysql: Option<String>,
    /// `host:port`
    pub zookeeper: Option<String>,
}

impl Addresses {
    /// Servers at a port where nobody listens, of every sort that can be named without being there.
    pub fn nowhere() -> Self {
        let redis = "redis://:x@127.0.0.1:1/0";
        Self {
            redis: Some(redis.into()),
            independent_redis: vec![redis.into(); 5],
            mysql: Some("mysql://x:x@127.0.0.1:1/x".into()),
            zookeeper: None,
        }
    }

    /// Makes what mechanisms need. No server is asked before a lock is, except for a session with
    /// `ZooKeeper`.
    pub async fn connect(&self) -> Result<Backends, LockError> {
        let independent_redis = self.independent_redis.iter().map(|url| redis_at(url));
        Ok(Backends {
            redis: self.redis.as_deref().map(redis_at).transpose()?,
            independent_redis: independent_redis.collect::<Result<_, _>>()?,
            mysql: self.mysql.as_deref().map(mysql_at).transpose()?,
            zookeeper: match &self.zookeeper {
                Some(at) => Some(ZooKeeperServer::connect(at, ZOOKEEPER_SESSION).await?),
                None => None,
            },
        })
    }
}

fn redis_at(url: &str) -> Result<RedisServer, LockError> {
    let config = ConnectionManagerConfig::new()
        .set_connection_timeout(Some(ANSWER))
        .set_response_timeout(Some(ANSWER))
        .set_number_of_retries(1)
        .set_min_delay(Duration::from_millis(20))
        .set_max_delay(Duration::from_millis(200));
    let client = redis::Client::open(url)?;
    let connection = ConnectionManager::new_lazy_with_config(client.clone(), config)?;
    Ok(RedisServer::new(client, connection))
}

fn mysql_at(url: &str) -> Result<MySqlServer, LockError> {
    let url = url.to_owned();
    let options = MySqlServerOptions { url, pool_size: MYSQL_CONNECTIONS, acquire: ANSWER };
    MySqlServer::with_own_pool(&options)
}
