//! When commands ran last under their locks (`seckill lock run --once-per`), by the clock of the
//! server that keeps the record: a key of Redis, or a row of the database.

use std::time::Duration;

use redis::Script;
use sqlx::{MySqlPool, Row};

use super::{RedisConnection, Session, StoreError};

/// How often a statement is tried that met another transaction.
const ATTEMPTS: u32 = 3;

const CREATE_TABLE_SQL: &str = include_str!("../../migrations/0020_run_records.sql");
const FIND_TABLE_SQL: &str = "SELECT 1 FROM run_records LIMIT 0";
/// Removes the record whose window is over, by the window of the run that asks.
const REMOVE_OLD_SQL: &str = "DELETE FROM run_records \
     WHERE name = ? AND started_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND";
/// Records the run if there is no record.
const RECORD_SQL: &str = "INSERT INTO run_records (name, run, host, started_at, expires_at) \
     VALUES (?, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) \
     ON DUPLICATE KEY UPDATE name = run_records.name";
const READ_SQL: &str = "SELECT run, host, \
     TIMESTAMPDIFF(MICROSECOND, started_at, UTC_TIMESTAMP(6)) FROM run_records WHERE name = ?";
const WITHDRAW_SQL: &str = "DELETE FROM run_records WHERE name = ? AND run = ?";
/// Removes records of commands that no longer run.
const REMOVE_EXPIRED_SQL: &str =
    "DELETE FROM run_records WHERE expires_at <= UTC_TIMESTAMP(6) ORDER BY expires_at LIMIT 100";

/// One run of a command.
#[derive(Debug)]
pub struct RunRecord {
    /// The key of the record in Redis, or the name of the lock.
    pub name: String,
    /// Distinguishes the run from all others: 36 characters.
    pub id: String,
    /// The host, for people: at most 255 characters.
    pub host: String,
}

/// A run that began within the window.
#[derive(Debug)]
pub struct EarlierRun {
    /// How long ago, in whole milliseconds.
    pub ago: Duration,
    /// Where.
    pub host: String,
}

/// Where runs are recorded.
pub struct RunRecords(RecordServer);

enum RecordServer {
    Redis(RedisConnection),
    Database(MySqlPool),
}

impl RunRecords {
    /// Records in that Redis. Each expires with its window.
    pub fn in_redis(connection: RedisConnection) -> Self {
        Self(RecordServer::Redis(connection))
    }

    /// Records in that database; makes the table if it is missing.
    pub async fn in_database(pool: MySqlPool) -> Result<Self, StoreError> {
        let mut session = Session::open(&pool).await?;
        if session.raw(FIND_TABLE_SQL).await.is_err() {
            session.raw(CREATE_TABLE_SQL).await?;
        }
        drop(session);
        Ok(Self(RecordServer::Database(pool)))
    }

    /// Records that the run begins, or says which run began within the window. A call that is
    /// repeated counts once.
    pub async fn begin(
        &self,
        run: &RunRecord,
        window: Duration,
    ) -> Result<Option<EarlierRun>, StoreError> {
        let pool = match &self.0 {
            RecordServer::Redis(connection) => {
                return begin_in_redis(connection, run, window).await;
            }
            RecordServer::Database(pool) => pool,
        };
        let mut attempt = 1;
        loop {
            match begin_in_database(pool, run, window).await {
                Err(StoreError::Conflict) if attempt < ATTEMPTS => attempt += 1,
                outcome => return outcome,
            }
        }
    }

    /// Withdraws the record of that run; another run's is left.
    pub async fn withdraw(&self, run: &RunRecord) -> Result<(), StoreError> {
        match &self.0 {
            RecordServer::Redis(connection) => {
                let script = Script::new(include_str!("../../lua/run/withdraw.lua"));
                let mut connection = connection.clone();
                Ok(script.key(&run.name).arg(&run.id).invoke_async(&mut connection).await?)
            }
            RecordServer::Database(pool) => {
                let query = sqlx::query(WITHDRAW_SQL).bind(run.name.as_bytes()).bind(&run.id);
                Session::open(pool).await?.execute(query).await.map(drop)
            }
        }
    }
}

async fn begin_in_redis(
    connection: &RedisConnection,
    run: &RunRecord,
    window: Duration,
) -> Result<Option<EarlierRun>, StoreError> {
    let window_ms = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
    let script = Script::new(include_str!("../../lua/run/begin.lua"));
    let mut call = script.key(&run.name);
    call.arg(window_ms).arg(&run.id).arg(&run.host);
    let earlier: Option<(u64, String)> = call.invoke_async(&mut connection.clone()).await?;
    Ok(earlier.map(|(ago_ms, host)| EarlierRun { ago: Duration::from_millis(ago_ms), host }))
}

async fn begin_in_database(
    pool: &MySqlPool,
    run: &RunRecord,
    window: Duration,
) -> Result<Option<EarlierRun>, StoreError> {
    let name = run.name.as_bytes();
    let window_us = i64::try_from(window.as_micros()).unwrap_or(i64::MAX);
    let mut session = Session::open(pool).await?;
    session.execute(sqlx::query(REMOVE_OLD_SQL).bind(name).bind(window_us)).await?;
    let record = sqlx::query(RECORD_SQL).bind(name).bind(&run.id).bind(&run.host);
    session.execute(record.bind(window_us)).await?;
    let row = session.fetch_one(sqlx::query(READ_SQL).bind(name)).await?;
    let (id, host): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let ago_us: i64 = row.try_get(2)?;
    if id != run.id {
        let ago = Duration::from_millis(u64::try_from(ago_us / 1000).unwrap_or(0));
        return Ok(Some(EarlierRun { ago, host }));
    }
    if let Err(error) = session.execute(sqlx::query(REMOVE_EXPIRED_SQL)).await {
        tracing::debug!(%error, "cannot remove expired records of runs; the next run tries again");
    }
    Ok(None)
}
