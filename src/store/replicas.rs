//! What the running replicas do with their locks: those that differ do not exclude each other.

use sqlx::{MySqlPool, Row};
use uuid::Uuid;

use super::{Session, StoreError};

/// A replica that was not seen for this long is forgotten.
const FORGOTTEN_AFTER_S: u32 = 15;

/// This replica's entry.
#[derive(Clone)]
pub struct Replicas {
    pool: MySqlPool,
    id: String,
    name: String,
    settings: String,
}

impl Replicas {
    /// An entry for this process with its settings (lock kind, scope, guards, writer).
    pub fn new(pool: MySqlPool, name: String, settings: String) -> Self {
        Self { pool, id: Uuid::new_v4().to_string(), name, settings }
    }

    /// Shows that this replica lives, and finds one that started earlier with other settings:
    /// its name and settings.
    pub async fn heartbeat(&self) -> Result<Option<(String, String)>, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let seen = sqlx::query(
            "INSERT INTO replicas (id, name, settings, started_at, seen_at) \
             VALUES (?, ?, ?, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3)) \
             ON DUPLICATE KEY UPDATE seen_at = UTC_TIMESTAMP(3)",
        )
        .bind(&self.id)
        .bind(&self.name)
        .bind(&self.settings);
        session.execute(seen).await?;
        let other = sqlx::query(
            "SELECT other.name, other.settings FROM replicas other \
             JOIN replicas me ON me.id = ? \
             WHERE other.settings <> me.settings \
               AND (other.started_at, other.id) < (me.started_at, me.id) \
               AND other.seen_at > UTC_TIMESTAMP(3) - INTERVAL ? SECOND \
             ORDER BY other.started_at LIMIT 1",
        )
        .bind(&self.id)
        .bind(FORGOTTEN_AFTER_S);
        let row = session.fetch_optional(other).await?;
        row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).transpose()
    }

    /// Removes this replica and those that were forgotten.
    pub async fn leave(&self) -> Result<(), StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let query = sqlx::query(
            "DELETE FROM replicas \
             WHERE id = ? OR seen_at < UTC_TIMESTAMP(3) - INTERVAL ? SECOND",
        )
        .bind(&self.id)
        .bind(FORGOTTEN_AFTER_S);
        session.execute(query).await.map(drop)
    }
}
