//! Whether the servers answer: looked at three times a second, so that a purchase need not find
//! out the slow way that one of them is dead. The database is asked on a connection kept for that:
//! those of the pool are all taken just when purchases wait for a dead server.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::mysql::MySqlConnectOptions;
use sqlx::{ConnectOptions, Connection, MySqlConnection, MySqlPool};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{RedisConnection, StoreError};

const EVERY: Duration = Duration::from_millis(300);
/// A look that takes longer than this has failed.
const PATIENCE: Duration = Duration::from_millis(1500);
/// A server is called dead after this many failed looks in a row, and alive after one good one.
const FAILURES: u32 = 2;

/// What was seen last.
#[derive(Clone, Default)]
pub struct Health(Arc<Seen>);

struct Seen {
    database_down: watch::Sender<bool>,
    redis_down: watch::Sender<bool>,
}

impl Default for Seen {
    fn default() -> Self {
        Self { database_down: watch::Sender::new(false), redis_down: watch::Sender::new(false) }
    }
}

impl Health {
    /// The servers that do not answer.
    pub fn down(&self) -> Vec<&'static str> {
        let seen = [("database", &self.0.database_down), ("redis", &self.0.redis_down)];
        seen.into_iter().filter(|(_, down)| *down.borrow()).map(|(server, _)| server).collect()
    }

    /// Resolves when the database is seen not to answer.
    pub async fn until_database_is_down(&self) {
        let mut seen = self.0.database_down.subscribe();
        // Fails only if the sender has gone, which this holds.
        let _always = seen.wait_for(|down| *down).await;
    }
}

/// Looks at both servers for ever; runs until it is dropped.
pub async fn keep_watch(health: Health, pool: MySqlPool, redis: RedisConnection) {
    let database = Database { options: pool.connect_options(), kept: Mutex::default() };
    let database = keep_looking("database", &health.0.database_down, || ask_database(&database));
    let redis = keep_looking("redis", &health.0.redis_down, || ask_redis(&redis));
    tokio::join!(database, redis);
}

async fn keep_looking<F>(server: &'static str, down: &watch::Sender<bool>, ask: impl Fn() -> F)
where
    F: Future<Output = Result<(), StoreError>>,
{
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failures = 0;
    loop {
        ticks.tick().await;
        let seen = timeout(PATIENCE, ask()).await;
        failures = if matches!(seen, Ok(Ok(()))) { 0 } else { failures + 1 };
        let is_down = failures >= FAILURES;
        if down.send_replace(is_down) != is_down {
            tracing::warn!(server, is_down, "a server went away or came back");
        }
    }
}

struct Database {
    options: Arc<MySqlConnectOptions>,
    kept: Mutex<Option<MySqlConnection>>,
}

/// A connection that did not answer is not kept.
async fn ask_database(database: &Database) -> Result<(), StoreError> {
    let kept = database.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
    let mut connection = match kept {
        Some(connection) => connection,
        None => database.options.connect().await?,
    };
    connection.ping().await?;
    *database.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
    Ok(())
}

async fn ask_redis(connection: &RedisConnection) -> Result<(), StoreError> {
    redis::cmd("PING").query_async::<()>(&mut connection.clone()).await?;
    Ok(())
}
