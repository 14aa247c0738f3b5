//! Connections to the two servers.

use std::time::Duration;

use redis::aio::ConnectionManagerConfig;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, MySqlPool};
use tokio::time::timeout;

use super::StoreError;
use super::primary::{CONNECT_TIMEOUT, DatabaseServers, ensure_writable, follow};

/// Where a Redis is.
pub use distlock::RedisAddress;
/// The one connection to Redis, for locks as well; clones use the same socket.
pub use distlock::RedisConnection;
/// The form of a lock's keys there.
pub use distlock::RedisKeys;

/// How the pool is made.
pub struct DatabaseOptions {
    /// Where the database is.
    pub url: String,
    /// The most connections.
    pub pool_size: u32,
    /// Whether the session reads as the textbook's naive code does: REPEATABLE READ and, where the
    /// server knows it, without the check of its snapshot. Otherwise READ COMMITTED, which locks
    /// no gaps.
    pub naive: bool,
    /// After how long the server ends a silent session; its own setting if
    /// `None`. It frees what a holder that was cut off has locked. The pool closes idle connections
    /// before that.
    pub silence: Option<Duration>,
}

/// A connection that was idle for longer is asked whether it still lives.
const PING_AFTER_IDLE: Duration = Duration::from_secs(1);
/// How long it may take to say so: a frozen server must not use up the wait for a connection.
const PING_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a connection stays idle in the pool; shorter where the server ends idle sessions. The
/// pool looks once per time-out, so it closes a connection after up to twice this.
const IDLE_TIMEOUT: Duration = Duration::from_mins(10);
/// How long a request waits for a connection of the pool.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(2);

const SESSION_SETTINGS: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
     SET SESSION innodb_lock_wait_timeout = 3";
const NAIVE: &str = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; \
     SET SESSION innodb_lock_wait_timeout = 3";
/// Known to MariaDB from 10.6.18 on; elsewhere an unknown variable, which is as good as off.
const NO_SNAPSHOT_CHECK: &str = "SET SESSION innodb_snapshot_isolation = OFF";

/// Whether that can be the address of a database. No server is asked.
pub fn check_database_address(url: &str) -> Result<(), sqlx::Error> {
    DatabaseServers::parse(url).map(drop)
}

/// Makes one connection and closes it: an error says why there is none, which that of a pool does
/// not.
pub async fn check_database_access(url: &str) -> Result<(), StoreError> {
    let servers = DatabaseServers::parse(url)?;
    let connected = async { servers.find_and_connect().await?.close().await };
    match timeout(CONNECT_TIMEOUT, connected).await {
        Ok(connected) => Ok(connected?),
        Err(_) => Err(StoreError::TimedOut { server: "database" }),
    }
}

/// Makes the pool. It begins at the primary if the address names several servers and one says
/// within 0.5 s that it is; else nothing is connected yet. Fails if several say so.
pub async fn database(options: &DatabaseOptions) -> Result<MySqlPool, sqlx::Error> {
    pool(options, DatabaseServers::parse(&options.url)?).await
}

/// As [`database`], with sessions that keep the server's time zone, as those of other programs do.
pub async fn database_in_server_zone(options: &DatabaseOptions) -> Result<MySqlPool, sqlx::Error> {
    let servers = DatabaseServers::parse(&options.url)?;
    pool(options, servers.map(|server| server.timezone(None))).await
}

async fn pool(
    options: &DatabaseOptions,
    servers: DatabaseServers,
) -> Result<MySqlPool, sqlx::Error> {
    let naive = options.naive;
    // The server counts whole seconds.
    let silence_s = options.silence.map(|silence| silence.as_millis().div_ceil(1000).max(1));
    let silence = silence_s.map(|s| format!("SET SESSION wait_timeout = {s}"));
    let idle = options.silence.map_or(IDLE_TIMEOUT, |silence| IDLE_TIMEOUT.min(silence / 3));
    // A slow statement is not news here: a crowd queues for one row.
    let servers = servers.map(ConnectOptions::disable_statement_logging);
    let (begin, stale) = servers.choose().await?;
    let [known, left] = [stale.clone(), stale.clone()];
    let pool = MySqlPoolOptions::new()
        .max_connections(options.pool_size)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .idle_timeout(idle)
        // A ping before every order would cost a round trip: only what was idle for long is asked
        // whether it still lives, and `Transaction::open` passes over others that died.
        .test_before_acquire(false)
        .before_acquire(move |connection, meta| {
            let fresh = known.is_fresh(meta.age);
            Box::pin(async move {
                if !fresh {
                    return Ok(false);
                }
                // One that died is passed over; an error here would be a warning in the log.
                Ok(meta.idle_for <= PING_AFTER_IDLE
                    || timeout(PING_TIMEOUT, connection.ping())
                        .await
                        .is_ok_and(|ping| ping.is_ok()))
            })
        })
        .after_connect(move |connection, _| {
            let (silence, left) = (silence.clone(), left.clone());
            Box::pin(async move {
                ensure_writable(connection).await?;
                if let Some(silence) = silence {
                    connection.execute(sqlx::raw_sql(AssertSqlSafe(silence))).await?;
                }
                connection
                    .execute(sqlx::raw_sql(if naive { NAIVE } else { SESSION_SETTINGS }))
                    .await?;
                if naive {
                    let _unknown = connection.execute(sqlx::raw_sql(NO_SNAPSHOT_CHECK)).await;
                }
                left.ensure_not_left(connection).await
            })
        })
        .connect_lazy_with(servers.at(begin).clone());
    if servers.is_several() {
        tokio::spawn(follow(pool.clone(), (servers, begin), stale));
    }
    Ok(pool)
}

fn redis_timeouts(answer: Duration) -> ConnectionManagerConfig {
    ConnectionManagerConfig::new()
        .set_connection_timeout(Some(answer))
        .set_response_timeout(Some(answer))
        .set_number_of_retries(1)
        .set_min_delay(Duration::from_millis(20))
        .set_max_delay(Duration::from_millis(200))
}

/// Connects to Redis. The connection comes back by itself; a command without an answer fails after
/// that time.
pub async fn redis(
    address: RedisAddress<'_>,
    answer: Duration,
) -> Result<RedisConnection, StoreError> {
    let connecting = RedisConnection::connect(address, redis_timeouts(answer));
    match timeout(Duration::from_secs(5), connecting).await {
        Ok(connection) => Ok(connection?),
        Err(_) => Err(StoreError::TimedOut { server: "redis" }),
    }
}

/// A connection to Redis that is made later: for one of several servers, which may be down.
pub fn redis_later(
    address: RedisAddress<'_>,
    answer: Duration,
) -> Result<RedisConnection, StoreError> {
    Ok(RedisConnection::connect_lazily(address, redis_timeouts(answer))?)
}

/// Refuses a Redis that may evict keys: a lock that is evicted is a lock that two hold. Lock keys
/// have a lease, so the `volatile-` policies evict them too. The error is a full sentence.
pub async fn refuse_eviction(connection: &RedisConnection) -> Result<(), StoreError> {
    for mut server in connection.servers().await? {
        let info: String = redis::cmd("INFO").arg("memory").query_async(&mut server).await?;
        let policy = info.lines().find_map(|line| line.trim().strip_prefix("maxmemory_policy:"));
        if policy != Some("noeviction") {
            return Err(StoreError::Unexpected(format!(
                "maxmemory-policy is {}, so Redis may evict a held lock; set it to noeviction",
                policy.unwrap_or("unknown")
            )));
        }
    }
    Ok(())
}
