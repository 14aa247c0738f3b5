//! Finding out how a transaction ended whose COMMIT was never answered.
//!
//! The old connection is killed first, so that a COMMIT still on its way can no longer arrive.
//! Then the order is read by its primary key *with a lock*: such a read waits for a transaction
//! that is just ending, and so cannot see "not yet there". (If the server was restarted meanwhile,
//! the number may belong to another connection of ours; its transaction then fails cleanly. On
//! another server, after a failover, nothing is killed.)
//!
//! On another node of Galera such a read shows nothing. A transaction of a lost node may come
//! seconds later, when the others have agreed on what it sent, and that of a frozen node after its
//! thaw. So the order's row is written and taken back there, in a transaction. All nodes certify
//! both in one order: the old one is there before, or every node refuses it.
//!
//! A semi-synchronous primary that is killed while a COMMIT waits for its replica may have that
//! transaction when it starts again, and shows it. So where COMMIT waits for a replica, what is
//! found there is believed only after a change of one's own: its COMMIT is answered when a replica
//! has both.

use std::time::Duration;

use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, MySqlPool, Row};
use tokio::time::{Instant, sleep, timeout_at};

use super::primary::TAKES_WRITES;
use super::session::{SERVER_IDENTITY, Statement};
use super::{CommitError, ConnectionIdentity, SaleTables, Session, StoreError, Transaction};
use crate::domain::{OrderId, OrderStatus};

/// How long to continue asking. The caller waits for as long, and the lock is not released; a lease
/// that is shorter than this ends meanwhile, and then only the database's guards are left.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(30);
/// `KILL` of a connection that has ended already, and of one that is another account's: after a
/// restart its number may belong to that.
const NOT_THERE: [&str; 2] = ["1094", "1095"];
/// A row if that connection is a semi-synchronous primary's that waits for a replica.
const WAITS_FOR_REPLICA: &str = "SELECT 1 FROM information_schema.PROCESSLIST \
     WHERE ID = ? AND STATE LIKE 'Waiting for semi-sync ACK%'";

/// A row if COMMIT waits for a replica there. `MariaDB` and `MySQL` name it differently.
const IS_SEMI_SYNCHRONOUS: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
     ('rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled') AND Value = 'ON'";

/// What was found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// The orders are in the database.
    Committed,
    /// None of them is, and none ever will be.
    Absent,
    /// The database did not answer for 30 s.
    Unknown,
}

/// Finds out whether the transaction on that connection wrote those orders to that table.
pub async fn resolve(
    pool: &MySqlPool,
    table: &'static str,
    connection: &ConnectionIdentity,
    orders: &[OrderId],
) -> Resolution {
    let mut patience = Patience::of(orders);
    while patience.lasts().await {
        match patience.bound(look(pool, table, connection, orders)).await {
            Ok(true) => return Resolution::Committed,
            Ok(false) => return Resolution::Absent,
            Err(error) => tracing::debug!(%error, ?orders, "the outcome is still unknown"),
        }
    }
    Resolution::Unknown
}

/// Reads the state of an order that the transaction on that connection should pay or cancel.
/// `None` if the database did not answer for 30 s.
pub async fn resolve_status(
    pool: &MySqlPool,
    tables: &SaleTables,
    connection: &ConnectionIdentity,
    order: OrderId,
) -> Option<OrderStatus> {
    let orders = [order];
    let mut patience = Patience::of(&orders);
    while patience.lasts().await {
        match patience.bound(look_at_status(pool, tables, connection, order)).await {
            Ok(status) => return Some(status),
            Err(error) => tracing::debug!(%error, %order, "the outcome is still unknown"),
        }
    }
    None
}

/// How long to continue asking, and how long to wait in between.
struct Patience<'a> {
    orders: &'a [OrderId],
    deadline: Instant,
    pause: Duration,
}

impl<'a> Patience<'a> {
    fn of(orders: &'a [OrderId]) -> Self {
        Self { orders, deadline: Instant::now() + RESOLVE_TIMEOUT, pause: Duration::ZERO }
    }

    /// Whether to ask once more, after a pause.
    async fn lasts(&mut self) -> bool {
        sleep(self.pause).await;
        self.pause = (self.pause * 2).clamp(Duration::from_millis(20), Duration::from_secs(1));
        let lasts = Instant::now() < self.deadline;
        if !lasts {
            tracing::error!(orders = ?self.orders, "the outcome of orders stayed unknown");
        }
        lasts
    }

    /// Cuts a look off at the end of the time.
    async fn bound<T>(
        &self,
        look: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let late = Err(StoreError::TimedOut { server: "database" });
        timeout_at(self.deadline, look).await.unwrap_or(late)
    }
}

async fn look_at_status(
    pool: &MySqlPool,
    tables: &SaleTables,
    connection: &ConnectionIdentity,
    order: OrderId,
) -> Result<OrderStatus, StoreError> {
    let (mut session, is_elsewhere) = kill(pool, connection).await?;
    if is_elsewhere {
        drop(session);
        if let Some(status) = rewrite_on_galera(pool, tables, order).await? {
            return Ok(status);
        }
        session = Session::open(pool).await?;
    }
    let row = session.fetch_one(sqlx::query(tables.lock_status).bind(order.0)).await?;
    drop(session);
    await_replica(pool, tables.orders, order).await?;
    status_of(&row)
}

/// The status in a row of `lock_status`.
pub(super) fn status_of(row: &MySqlRow) -> Result<OrderStatus, StoreError> {
    let status = OrderStatus::from_names(row.try_get(0)?, row.try_get(1)?);
    status.ok_or_else(|| StoreError::Unexpected("unknown status of an order".into()))
}

/// Ends that connection, and gives another one to look with; also whether that leads to another
/// server. A COMMIT that waits for its replica is
/// left alone: killed, it would be there without the replica, and be lost with its server. So is
/// the connection that has the number at another server.
pub(super) async fn kill(
    pool: &MySqlPool,
    connection: &ConnectionIdentity,
) -> Result<(Session, bool), StoreError> {
    let mut session = Session::open(pool).await?;
    // A primary that was demoted since lacks what its successor has.
    let writable = session.fetch_one(sqlx::query(TAKES_WRITES)).await?;
    if writable.try_get::<i64, _>(0)? != 1 {
        session.discard();
        return Err(StoreError::TimedOut { server: "database" });
    }
    let server = session.fetch_one(sqlx::query(SERVER_IDENTITY)).await?;
    if server.try_get::<String, _>(0)? != connection.server {
        return Ok((session, true));
    }
    let waits = sqlx::query(WAITS_FOR_REPLICA).bind(connection.id);
    if session.fetch_optional(waits).await?.is_some() {
        return Err(StoreError::TimedOut { server: "database" });
    }
    // KILL takes no parameter; a number is safe to print.
    let kill = format!("KILL {}", connection.id);
    match session.execute(sqlx::query(AssertSqlSafe(kill))).await {
        Ok(_) => {}
        Err(StoreError::Unexpected(text)) if NOT_THERE.iter().any(|it| text.starts_with(it)) => {}
        Err(error) => return Err(error),
    }
    Ok((session, false))
}

async fn look(
    pool: &MySqlPool,
    table: &'static str,
    connection: &ConnectionIdentity,
    orders: &[OrderId],
) -> Result<bool, StoreError> {
    let Some((first, others)) = orders.split_first() else { return Ok(false) };
    let (mut session, is_elsewhere) = kill(pool, connection).await?;
    if is_elsewhere {
        drop(session);
        if let Some(is_there) = insert_on_galera(pool, table, *first).await? {
            return Ok(is_there);
        }
        session = Session::open(pool).await?;
    }
    let lock_order = format!("SELECT id FROM {table} WHERE id = ? FOR UPDATE");
    let mut lock = async |order: &OrderId| {
        let query = sqlx::query(AssertSqlSafe(lock_order.clone())).bind(order.0);
        session.fetch_optional(query).await.map(|row| row.is_some())
    };
    let is_there = lock(first).await?;
    for other in others {
        if lock(other).await? != is_there {
            return Err(StoreError::Unexpected("a transaction is there in part".into()));
        }
    }
    drop(session);
    if is_there {
        await_replica(pool, table, *first).await?;
    }
    Ok(is_there)
}

/// Waits until a replica has what this server had of that order, if COMMIT waits for one there.
async fn await_replica(
    pool: &MySqlPool,
    table: &'static str,
    order: OrderId,
) -> Result<(), StoreError> {
    let mut tx = Transaction::open(pool).await?;
    if tx.fetch_optional(sqlx::query(IS_SEMI_SYNCHRONOUS)).await?.is_none() {
        tx.rollback().await;
        return Ok(());
    }
    rewrite(&mut tx, table, order).await?;
    commit(tx).await
}

/// Inserts an order and deletes it again. Afterwards no transaction of another node can insert it.
/// Returns whether it is there instead; nothing if the server is no node of Galera.
async fn insert_on_galera(
    pool: &MySqlPool,
    table: &'static str,
    order: OrderId,
) -> Result<Option<bool>, StoreError> {
    let mut tx = Transaction::open(pool).await?;
    if !tx.is_on_galera() {
        tx.rollback().await;
        return Ok(None);
    }
    // No user has the number of an order, so no buyer has this row. IGNORE leaves out the rest.
    let insert = format!("INSERT IGNORE INTO {table} (id, user_id) VALUES (?, ?)");
    let insert = sqlx::query(AssertSqlSafe(insert)).bind(order.0).bind(order.0);
    if tx.execute(insert).await?.rows_affected() == 0 {
        // IGNORE leaves out a row that breaks a rule of the table, too.
        let select = format!("SELECT id FROM {table} WHERE id = ? FOR UPDATE");
        let row = tx.fetch_optional(sqlx::query(AssertSqlSafe(select)).bind(order.0)).await?;
        tx.rollback().await;
        return row.map(|_| Some(true)).ok_or_else(untried);
    }
    let delete = format!("DELETE FROM {table} WHERE id = ? AND user_id = ?");
    let delete = sqlx::query(AssertSqlSafe(delete)).bind(order.0).bind(order.0);
    change_one(&mut tx, delete).await?;
    commit(tx).await.map(|()| Some(false))
}

/// Changes an order and changes it back, on a node of Galera. Afterwards no transaction of another
/// node that began before can change it. Returns its status, as it was in that transaction; nothing
/// if the server is no node of Galera. An order that this node has not got yet is an error.
async fn rewrite_on_galera(
    pool: &MySqlPool,
    tables: &SaleTables,
    order: OrderId,
) -> Result<Option<OrderStatus>, StoreError> {
    let mut tx = Transaction::open(pool).await?;
    if !tx.is_on_galera() {
        tx.rollback().await;
        return Ok(None);
    }
    let row = tx.fetch_optional(sqlx::query(tables.lock_status).bind(order.0)).await?;
    let status = status_of(&row.ok_or_else(untried)?)?;
    rewrite(&mut tx, tables.orders, order).await?;
    commit(tx).await.map(|()| Some(status))
}

/// Changes the row of an order, and changes it back.
async fn rewrite(
    tx: &mut Transaction,
    table: &'static str,
    order: OrderId,
) -> Result<(), StoreError> {
    let buyer = format!("SELECT CAST(user_id AS UNSIGNED) FROM {table} WHERE id = ? FOR UPDATE");
    let row = tx.fetch_optional(sqlx::query(AssertSqlSafe(buyer)).bind(order.0)).await?;
    let buyer: u64 = row.ok_or_else(untried)?.try_get(0)?;
    // No user has the number of an order. The second is no difference to that buyer: alone, it
    // changes nothing.
    for user_id in [order.0, buyer] {
        let update = format!("UPDATE {table} SET user_id = ? WHERE id = ?");
        let update = sqlx::query(AssertSqlSafe(update)).bind(user_id).bind(order.0);
        change_one(tx, update).await?;
    }
    Ok(())
}

/// Fails unless the statement has found one row.
async fn change_one(tx: &mut Transaction, statement: Statement<'_>) -> Result<(), StoreError> {
    let rows = tx.execute(statement).await?.rows_affected();
    if rows == 1 { Ok(()) } else { Err(untried()) }
}

fn untried() -> StoreError {
    StoreError::Unexpected("the order's row cannot be written to see who is first".into())
}

/// Commits a transaction that may be repeated: whether a lost COMMIT arrived does not matter.
async fn commit(tx: Transaction) -> Result<(), StoreError> {
    tx.commit().await.map_err(|error| match error {
        CommitError::Refused(error) => error,
        CommitError::Unknown(_) => StoreError::TimedOut { server: "database" },
    })
}
