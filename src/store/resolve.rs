//! Finding out how a transaction ended whose COMMIT was never answered.
//!
//! The old connection is killed first, so that a COMMIT still on its way can no longer arrive.
//! Then the order is read by its primary key *with a lock*: such a read waits for a transaction
//! that is just ending, and so cannot see "not yet there". (If the server was restarted meanwhile,
//! the number may belong to another connection of ours; its transaction then fails cleanly.)

use std::time::Duration;

use sqlx::{AssertSqlSafe, MySqlPool};
use tokio::time::{Instant, sleep};

use super::{SaleTables, Session, StoreError};
use crate::domain::OrderId;

/// How long to go on asking. The caller waits for as long, and the lock is not released; a lease
/// that is shorter than this ends meanwhile, and then only the database's guards are left.
const PATIENCE: Duration = Duration::from_secs(30);
/// `KILL` of a connection that is already gone.
const NO_SUCH_THREAD: &str = "1094";

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

/// Finds out whether the transaction on that connection wrote those orders.
pub async fn resolve(
    pool: &MySqlPool,
    tables: &SaleTables,
    connection_id: u64,
    orders: &[OrderId],
) -> Resolution {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(20);
    while Instant::now() < deadline {
        match look(pool, tables, connection_id, orders).await {
            Ok(true) => return Resolution::Committed,
            Ok(false) => return Resolution::Absent,
            Err(error) => tracing::debug!(%error, ?orders, "the outcome is still unknown"),
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
    tracing::error!(?orders, "the outcome of orders stayed unknown");
    Resolution::Unknown
}

async fn look(
    pool: &MySqlPool,
    tables: &SaleTables,
    connection_id: u64,
    orders: &[OrderId],
) -> Result<bool, StoreError> {
    let mut session = Session::open(pool).await?;
    // KILL takes no parameter; a number is safe to print.
    let kill = format!("KILL {connection_id}");
    match session.execute(sqlx::query(AssertSqlSafe(kill))).await {
        Ok(_) => {}
        Err(StoreError::Unexpected(text)) if text.starts_with(NO_SUCH_THREAD) => {}
        Err(error) => return Err(error),
    }
    let Some((first, others)) = orders.split_first() else { return Ok(false) };
    let row = session.fetch_optional(sqlx::query(tables.lock_order).bind(first.0)).await?;
    for order in others {
        let other = sqlx::query(tables.lock_order).bind(order.0);
        if session.fetch_optional(other).await?.is_some() != row.is_some() {
            return Err(StoreError::Unexpected("a transaction is there in part".into()));
        }
    }
    Ok(row.is_some())
}
