//! A number of units in the database that locks and fencing tokens protect.
//!
//! What is done to it looks at no lock: it is what a process does that looked just before it was
//! paused.

use conformance::protocol::Failure;
use distlock::mysql::{FenceError, LockTransaction, raise_fence};
use distlock::{LockName, Token};
use sqlx::{MySqlConnection, MySqlPool};

const READ: &str = "SELECT units FROM stock WHERE name = ?";
const WRITE: &str = "UPDATE stock SET units = ? WHERE name = ?";

/// The stock of a name.
pub(crate) struct Stock<'a> {
    pub(crate) pool: &'a MySqlPool,
    pub(crate) name: &'a str,
    /// What is shown to its fence; none if it has no fence.
    pub(crate) token: Option<Token>,
}

impl Stock<'_> {
    /// Reads the units, or replaces them: none if the fence refuses the token.
    pub(crate) async fn touch(&self, units: Option<i64>) -> Result<Option<i64>, Failure> {
        // Rolled back where it is dropped.
        let mut transaction = self.pool.begin().await?;
        if !self.passes(&mut transaction).await? {
            return Ok(None);
        }
        let units = match units {
            None => {
                let read = sqlx::query_scalar(READ).bind(self.name);
                read.fetch_one(&mut *transaction).await?
            }
            Some(units) => {
                let write = sqlx::query(WRITE).bind(units).bind(self.name);
                write.execute(&mut *transaction).await?;
                units
            }
        };
        transaction.commit().await?;
        Ok(Some(units))
    }

    async fn passes(&self, connection: &mut MySqlConnection) -> Result<bool, Failure> {
        let Some(token) = self.token else { return Ok(true) };
        match raise_fence(connection, &LockName::new(self.name)?, token).await {
            Ok(()) => Ok(true),
            Err(FenceError::Stale { .. }) => Ok(false),
            Err(FenceError::Lock(error)) => Err(error.into()),
            Err(FenceError::Database(error)) => Err(error.into()),
        }
    }
}

/// Takes one unit out of the stock of a name in that transaction, and commits it. What is left.
pub(crate) async fn sell_inside(transaction: LockTransaction, name: &str) -> Result<i64, Failure> {
    let mut connection = transaction.into_connection();
    let units = sqlx::query_scalar::<_, i64>(READ).bind(name).fetch_one(&mut *connection);
    let left = units.await? - 1;
    let write = sqlx::query(WRITE).bind(left).bind(name).execute(&mut *connection);
    write.await?;
    sqlx::raw_sql("COMMIT").execute(&mut *connection).await?;
    Ok(left)
}
