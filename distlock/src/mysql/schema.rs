//! The tables of the `mysql` kinds: one statement a file, in the folder that the service's
//! migrations run as well. Each may run twice, also at the same time as another.

use sqlx::MySqlPool;

use super::session::{MySqlSession, StatementError};
use crate::LockError;

/// Every step: the name of its file without the ending, and its statement.
pub const SCHEMA: &[(&str, &str)] = &[
    ("8001_lock_holders", include_str!("../../sql/8001_lock_holders.sql")),
    ("8002_lock_floors", include_str!("../../sql/8002_lock_floors.sql")),
    ("8003_lock_floor_rows", include_str!("../../sql/8003_lock_floor_rows.sql")),
    ("8004_lock_rows", include_str!("../../sql/8004_lock_rows.sql")),
    ("8005_lock_tokens", include_str!("../../sql/8005_lock_tokens.sql")),
    ("8006_lock_fence", include_str!("../../sql/8006_lock_fence.sql")),
];

/// The table that is made last: where it exists, the others do too.
const LAST_TABLE_SQL: &str = "SELECT 1 FROM lock_fence LIMIT 0";

/// Makes the tables that are missing, for programs that do not migrate. Changes nothing if they
/// are there, and needs no right to make any then. Fails with [`LockError::NoConnection`] or
/// [`LockError::Backend`].
pub async fn ensure_schema(pool: &MySqlPool) -> Result<(), LockError> {
    let mut session = MySqlSession::open(pool).await?;
    if session.raw(LAST_TABLE_SQL).await.is_ok() {
        return Ok(());
    }
    for (name, sql) in SCHEMA {
        session.raw(sql).await.map_err(|failure| match failure {
            StatementError::Answer { number, text } => {
                LockError::Backend(format!("schema {name}: {number}: {text}"))
            }
            failure => failure.into(),
        })?;
    }
    Ok(())
}
