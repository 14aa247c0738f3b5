//! Health of the servers, checked three times a second, so that no purchase waits for the time-out
//! of a dead one. The database is checked on a connection of its own: the pool has none left when
//! purchases wait for a dead server. Servers of locks are checked by a function of the caller.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::{ConnectOptions, MySqlConnection, MySqlPool};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::call_limit::{CallLimit, answer};
use super::primary::ensure_writable;
use super::{RedisConnection, StoreError};

const EVERY: Duration = Duration::from_millis(300);
/// A look that takes longer than this has failed.
const PROBE_TIMEOUT: Duration = Duration::from_millis(1500);
/// A server is called dead after this many failed looks in a row, and alive after one good one.
const FAILURES: u32 = 2;

/// What was seen last.
#[derive(Clone, Default)]
pub struct Health(Arc<HealthStates>);

/// Of each server why it cannot be used, if so.
#[derive(Default)]
struct HealthStates {
    database: watch::Sender<Option<String>>,
    redis: watch::Sender<Option<String>>,
    locks: watch::Sender<Option<String>>,
}

impl HealthStates {
    fn all(&self) -> [(&'static str, &watch::Sender<Option<String>>); 3] {
        [("database", &self.database), ("redis", &self.redis), ("locks", &self.locks)]
    }
}

/// The servers to look at.
pub struct WatchedServers<L> {
    /// The database.
    pub pool: MySqlPool,
    /// The Redis.
    pub redis: RedisConnection,
    /// Asks the servers that only the locks need; the error says what is wrong.
    pub locks: L,
}

impl Health {
    /// The servers that do not answer.
    pub fn down(&self) -> impl Iterator<Item = &'static str> {
        let down = self.0.all().into_iter().filter(|(_, reason)| reason.borrow().is_some());
        down.map(|(server, _)| server)
    }

    /// Why, a sentence each.
    pub fn reasons(&self) -> Vec<String> {
        self.0.all().into_iter().filter_map(|(_, reason)| reason.borrow().clone()).collect()
    }

    /// A first look at the locks' servers, before this replica reports ready.
    pub async fn look_at_locks(&self, answer: impl Future<Output = Result<(), String>>) {
        self.0.locks.send_replace(look("locks", answer).await.err());
    }

    /// Resolves when the database is seen not to answer.
    pub async fn until_database_is_down(&self) {
        let mut seen = self.0.database.subscribe();
        // Fails only if the sender was dropped, which this holds.
        let _always = seen.wait_for(Option::is_some).await;
    }
}

/// Looks at all servers for ever; runs until it is dropped.
pub async fn keep_watch<F>(health: Health, servers: WatchedServers<impl Fn() -> F>)
where
    F: Future<Output = Result<(), String>>,
{
    let WatchedServers { pool, redis, locks } = servers;
    let database = DatabaseCheck { pool, kept: Mutex::default() };
    let database = || silent("database", ask_database(&database));
    let redis = || silent("redis", ask_redis(&redis));
    tokio::join!(
        keep_looking("database", &health.0.database, database),
        keep_looking("redis", &health.0.redis, redis),
        keep_looking("locks", &health.0.locks, locks),
    );
}

async fn silent(
    server: &str,
    answer: impl Future<Output = Result<(), StoreError>>,
) -> Result<(), String> {
    answer.await.map_err(|_| format!("{server} does not answer"))
}

async fn look(
    server: &str,
    answer: impl Future<Output = Result<(), String>>,
) -> Result<(), String> {
    let late = |_| Err(format!("{server}: no answer in time"));
    timeout(PROBE_TIMEOUT, answer).await.unwrap_or_else(late)
}

async fn keep_looking<F>(
    server: &'static str,
    down: &watch::Sender<Option<String>>,
    ask: impl Fn() -> F,
) where
    F: Future<Output = Result<(), String>>,
{
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failures = 0;
    loop {
        ticks.tick().await;
        let Err(reason) = look(server, ask()).await else {
            failures = 0;
            if down.send_replace(None).is_some() {
                tracing::warn!(server, "a server came back");
            }
            continue;
        };
        failures += 1;
        if failures >= FAILURES && down.send_replace(Some(reason.clone())).is_none() {
            tracing::warn!(server, reason, "a server went away");
        }
    }
}

struct DatabaseCheck {
    pool: MySqlPool,
    kept: Mutex<Option<(MySqlConnection, CallLimit)>>,
}

/// A connection that did not answer, or answered that its server is read-only, is not kept, nor is
/// one to a server that the pool has left.
async fn ask_database(database: &DatabaseCheck) -> Result<(), StoreError> {
    let kept = database.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
    let kept = kept.filter(|(_, limit)| !limit.has_left());
    let limit = CallLimit::of(&database.pool);
    let asking = async {
        let mut connection = match kept {
            Some((connection, _)) => connection,
            None => database.pool.connect_options().connect().await?,
        };
        ensure_writable(&mut connection).await?;
        Ok::<_, StoreError>(connection)
    };
    let Some(connection) = answer(Some(&limit), pin!(asking)).await else {
        return Err(StoreError::TimedOut { server: "database" });
    };
    let kept = Some((connection?, limit));
    *database.kept.lock().unwrap_or_else(PoisonError::into_inner) = kept;
    Ok(())
}

async fn ask_redis(connection: &RedisConnection) -> Result<(), StoreError> {
    Ok(connection.ping().await?)
}
