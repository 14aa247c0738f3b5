//! Reads a private cluster's database for the judge, and never writes. The bench locks the stock
//! that it reads, so that orders wait.
//!
//! No other module of this crate knows a table. This one knows the service's tables and nothing
//! else of it.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use loadtest_load::history::final_state::{Audit, DatabaseReading, Effect, OrderRow, Protects};
use loadtest_load::history::key::key_kept;
use loadtest_measure::error::{Error, Result};
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection as _, Row as _};

use crate::setting::Guards;

/// Orders of one voucher beyond which a reading fails.
const MAX_ROWS: usize = 5_000_000;
/// How long connecting, and each reading, may take.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// How the unguarded sale writes back the stock that it has read, for faults that wait for it: the
/// beginning, and a part.
pub const STOCK_WRITE: [&str; 2] = ["UPDATE", "SET stock = ?"];

/// How a fenced holder begins, for faults that wait for one: it shows its token.
pub const FENCE_WRITE: &str = "INSERT INTO lock_fence";

/// How an order is inserted, for faults that wait for it: the beginning, and a part.
pub const ORDER_INSERT: [&str; 2] = ["INSERT INTO", "orders (id, user_id, voucher_id,"];

/// How the statements begin by which a lock in the database is kept alive, for faults that wait for
/// one: the heartbeat of `mysql-named`, and the renewal of `mysql-table`.
pub const LOCK_RENEWALS: [&str; 2] =
    ["SELECT COALESCE(IS_USED_LOCK(", "UPDATE lock_holders SET expires_at = GREATEST(expires_at"];

/// The tables of one mode: orders, stock, grants; with the statements that read them.
struct SaleTables {
    tables: [&'static str; 3],
    orders: &'static str,
    stock: &'static str,
}

const GRANTED_SQL: &str = "SELECT CAST(COALESCE(SUM(units), 0) AS SIGNED) FROM stock_grants \
                       WHERE voucher_id = ?";

const GUARDED_TABLES: SaleTables = SaleTables {
    tables: ["orders", "voucher_stock", "stock_grants"],
    orders: "SELECT CAST(o.id AS UNSIGNED), CAST(o.user_id AS UNSIGNED), \
             o.status = 'cancelled', k.request_key FROM orders o LEFT JOIN idempotency_keys k \
             ON k.order_id = o.id AND k.action = 'purchase' \
             WHERE o.voucher_id = ? LIMIT ?",
    stock: "SELECT CAST(s.stock + COALESCE((SELECT SUM(b.stock) FROM voucher_stock_buckets b \
            WHERE b.voucher_id = s.voucher_id), 0) AS SIGNED) \
            FROM voucher_stock s WHERE s.voucher_id = ?",
};

const UNGUARDED_TABLES: SaleTables = SaleTables {
    tables: ["lab_orders", "lab_stock", "stock_grants"],
    orders: "SELECT CAST(id AS UNSIGNED), CAST(user_id AS UNSIGNED), \
             status = 'cancelled', NULL FROM lab_orders \
             WHERE voucher_id = ? LIMIT ?",
    stock: "SELECT CAST(stock AS SIGNED) FROM lab_stock WHERE voucher_id = ?",
};

const LEASE_SQL: &str = "SELECT CAST(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at) \
                         DIV 1000 AS UNSIGNED) FROM lock_holders \
                         WHERE name = ? AND owner IS NOT NULL AND expires_at > UTC_TIMESTAMP(6)";

/// Where the laboratory's fenced holders say what they did; absent on any other deployment.
const HAS_EFFECTS_SQL: &str = "SELECT COUNT(*) FROM information_schema.tables \
                           WHERE table_schema = DATABASE() AND table_name = 'lab_effects'";
const EFFECTS_SQL: &str = "SELECT seq, CAST(resource AS CHAR), token, order_id FROM lab_effects \
                       WHERE voucher_id = ? ORDER BY seq LIMIT ?";

/// A connection that can only read.
#[derive(Debug)]
pub struct DatabaseReader {
    connection: MySqlConnection,
    deadline: Duration,
}

impl DatabaseReader {
    /// Connects within 10 s and gives up the right to write.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_within(url, READ_TIMEOUT).await
    }

    async fn connect_within(url: &str, deadline: Duration) -> Result<Self> {
        let connection = within(deadline, async {
            let mut connection = MySqlConnection::connect(url).await?;
            let statement = "SET SESSION TRANSACTION READ ONLY";
            sqlx::query(statement).execute(&mut connection).await?;
            Ok(connection)
        })
        .await?;
        Ok(Self { connection, deadline })
    }

    /// Reads one voucher, all in one snapshot, within 10 s. After an error the reader is of no use.
    pub async fn read(&mut self, voucher: &str, guards: Guards) -> Result<DatabaseReading> {
        let source = match guards {
            Guards::On => GUARDED_TABLES,
            Guards::Off => UNGUARDED_TABLES,
        };
        let id: u64 = voucher
            .parse()
            .map_err(|_| Error::Setup(format!("the voucher id {voucher:?} is no number")))?;
        within(self.deadline, self.snapshot(&source, id)).await
    }

    async fn snapshot(
        &mut self,
        source: &SaleTables,
        voucher: u64,
    ) -> std::result::Result<DatabaseReading, sqlx::Error> {
        let mut transaction = self.connection.begin().await?;
        let limit = i64::try_from(MAX_ROWS).unwrap_or(i64::MAX);
        let mut rows = Vec::new();
        let mut found =
            sqlx::query(source.orders).bind(voucher).bind(limit).fetch(&mut *transaction);
        while let Some(row) = found.try_next().await? {
            let kept: Option<Vec<u8>> = row.try_get(3)?;
            rows.push(OrderRow {
                id: row.try_get(0)?,
                user_id: row.try_get(1)?,
                cancelled: row.try_get(2)?,
                key: kept.as_deref().and_then(key_kept),
            });
        }
        drop(found);
        bounded(rows.len())?;
        let left: i64 =
            sqlx::query_scalar(source.stock).bind(voucher).fetch_one(&mut *transaction).await?;
        let initial: i64 =
            sqlx::query_scalar(GRANTED_SQL).bind(voucher).fetch_one(&mut *transaction).await?;
        let (effects, resources) = effects(&mut transaction, voucher).await?;
        transaction.commit().await?;
        let account = Audit::of(&rows, initial, left, source.tables);
        Ok(DatabaseReading { rows, account, effects, resources })
    }

    /// Units of a guarded sale that are left, within 10 s.
    pub async fn left(&mut self, voucher: u64) -> Result<i64> {
        let asked = sqlx::query_scalar(GUARDED_TABLES.stock).bind(voucher);
        within(self.deadline, asked.fetch_one(&mut self.connection)).await
    }

    /// The milliseconds that a lock of the kind `mysql-table` has left, by the database's clock,
    /// within 10 s. `None` if it is free.
    pub async fn lock_lease(&mut self, name: &str) -> Result<Option<u64>> {
        let asked = sqlx::query_scalar(LEASE_SQL).bind(name.as_bytes());
        within(self.deadline, asked.fetch_optional(&mut self.connection)).await
    }

    /// Locks the stock of a guarded sale, within 10 s: none of its orders is written until that is
    /// released.
    pub async fn lock_stock(mut self, voucher: u64) -> Result<StockLock> {
        let locking = async {
            // A lock of a row counts as a write.
            let begin = "START TRANSACTION READ WRITE";
            sqlx::raw_sql(begin).execute(&mut self.connection).await?;
            let statement = format!("{} FOR UPDATE", GUARDED_TABLES.stock);
            let locked = sqlx::query_scalar::<_, i64>(AssertSqlSafe(statement)).bind(voucher);
            locked.fetch_one(&mut self.connection).await
        };
        within(self.deadline, locking).await?;
        Ok(StockLock(self))
    }
}

/// The stock of a sale, locked; it is released with the connection if it is dropped.
#[derive(Debug)]
pub struct StockLock(DatabaseReader);

impl StockLock {
    /// Lets orders be written again, within 10 s.
    pub async fn release(mut self) -> Result<()> {
        let released = sqlx::raw_sql("ROLLBACK").execute(&mut self.0.connection);
        within(self.0.deadline, released).await.map(drop)
    }
}

/// A reading that ends at its bound is no reading of all there is.
fn bounded(rows: usize) -> std::result::Result<(), sqlx::Error> {
    let why = || sqlx::Error::Protocol(format!("a voucher has {MAX_ROWS} orders or more"));
    if rows < MAX_ROWS { Ok(()) } else { Err(why()) }
}

/// What fenced holders did to a voucher, and the names of what their locks protect.
async fn effects(
    connection: &mut MySqlConnection,
    voucher: u64,
) -> std::result::Result<(Vec<Effect>, Vec<String>), sqlx::Error> {
    let there: i64 = sqlx::query_scalar(HAS_EFFECTS_SQL).fetch_one(&mut *connection).await?;
    let (mut effects, mut names) = (Vec::new(), HashMap::new());
    if there == 0 {
        return Ok((effects, Vec::new()));
    }
    let limit = i64::try_from(MAX_ROWS).unwrap_or(i64::MAX);
    let mut rows = sqlx::query(EFFECTS_SQL).bind(voucher).bind(limit).fetch(connection);
    while let Some(row) = rows.try_next().await? {
        let next = u32::try_from(names.len()).unwrap_or(u32::MAX);
        let name = row.try_get::<String, _>(1)?;
        let protects = Protects::of(&name, voucher);
        let resource = *names.entry(name).or_insert(next);
        let (seq, token, order) = (row.try_get(0)?, row.try_get(2)?, row.try_get(3)?);
        effects.push(Effect { resource, protects, seq, token, order });
    }
    bounded(effects.len())?;
    let mut names: Vec<(String, u32)> = names.into_iter().collect();
    names.sort_unstable_by_key(|(_, index)| *index);
    Ok((effects, names.into_iter().map(|(name, _)| name).collect()))
}

/// What the server answers, or the error that it did not do so in time.
async fn within<T>(
    deadline: Duration,
    asked: impl Future<Output = std::result::Result<T, sqlx::Error>>,
) -> Result<T> {
    let unreadable =
        |why: String| Error::Setup(format!("the judge cannot read the database: {why}"));
    match tokio::time::timeout(deadline, asked).await {
        Ok(answer) => answer.map_err(|error| unreadable(error.to_string())),
        Err(_) => Err(unreadable(format!("it did not answer within {deadline:?}"))),
    }
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
