//! Tokens that are refused before they end.
//!
//! All moments are the database's, those of issued tokens too, so clocks of replicas do not matter.
//! A revocation is at least 2 ms after the one before it, and a login's token 1 ms after it. So a
//! login right after a logout holds, also in the same millisecond.

use sqlx::{MySql, MySqlConnection, MySqlPool, QueryBuilder, Row};
use time::PrimitiveDateTime;

use super::{Session, StoreError};
use crate::domain::UserId;

/// A moment after every token: what revokes the tokens that are still to be issued, too.
const NO_EXPIRY: &str = "TIMESTAMP '9000-01-01 00:00:00'";
const NOW: &str = "UTC_TIMESTAMP(3)";
/// Stands for all users in the table.
const ALL_USERS: u64 = 0;
/// Deleted users whose tokens one call revokes at most.
const DELETED_AT_ONCE: u32 = 10_000;
/// Rows that have ended and that one call removes at most.
const REMOVED_AT_ONCE: u32 = 10_000;

/// Tokens that were issued up to a moment are refused.
#[derive(Debug, Clone, Copy)]
pub struct Revocation {
    /// Whose tokens; of all users if `None`.
    pub user: Option<UserId>,
    /// That moment, in ms since 1970.
    pub not_before_ms: i64,
    /// When that was decided, likewise.
    pub made_ms: i64,
}

/// The table of revocations.
#[derive(Clone)]
pub struct RevocationTable {
    pool: MySqlPool,
}

impl RevocationTable {
    /// The table in that database.
    pub fn new(pool: MySqlPool) -> Self {
        Self { pool }
    }

    /// Revokes the tokens that were issued so far: of that user, or of all.
    pub async fn revoke(&self, user: Option<UserId>) -> Result<(), StoreError> {
        let mut session = Session::open(&self.pool).await?;
        session
            .execute(revocation_of([user.map_or(ALL_USERS, |user| user.0)], NOW).build())
            .await
            .map(drop)
    }

    /// Revokes the tokens of users that were deleted. Ids are not used again, unless an
    /// asynchronous replica took over, so tokens of any moment are refused: a login may be under
    /// way.
    pub async fn revoke_deleted(&self) -> Result<(), StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let query = sqlx::query("SELECT subject FROM token_subjects WHERE user_id IS NULL LIMIT ?");
        let rows = session.fetch_all(query.bind(DELETED_AT_ONCE)).await?;
        if rows.is_empty() {
            return Ok(());
        }
        let subjects = rows.iter().map(|row| row.try_get::<u64, _>(0));
        let subjects = subjects.collect::<Result<Vec<_>, _>>()?;
        session.execute(revocation_of(subjects.iter().copied(), NO_EXPIRY).build()).await?;
        let mut delete = QueryBuilder::<MySql>::new(
            "DELETE FROM token_subjects WHERE user_id IS NULL AND subject IN (",
        );
        let mut list = delete.separated(", ");
        for subject in subjects {
            list.push_bind(subject);
        }
        delete.push(")");
        session.execute(delete.build()).await.map(drop)
    }

    /// At most that many revocations that were made within those seconds, the latest first.
    pub async fn within(&self, seconds: u32, most: u32) -> Result<Vec<Revocation>, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let query = sqlx::query(
            "SELECT user_id, not_before, made_at FROM token_revocations \
             WHERE made_at >= UTC_TIMESTAMP(3) - INTERVAL ? SECOND \
             ORDER BY made_at DESC LIMIT ?",
        );
        let rows = session.fetch_all(query.bind(seconds).bind(most)).await?;
        rows.iter()
            .map(|row| {
                let user: u64 = row.try_get(0)?;
                let (not_before, made) = (row.try_get(1)?, row.try_get(2)?);
                let user = (user != ALL_USERS).then_some(UserId(user));
                Ok(Revocation { user, not_before_ms: unix_ms(not_before), made_ms: unix_ms(made) })
            })
            .collect()
    }

    /// Removes revocations that are older than any token can be.
    pub async fn remove_older_than(&self, seconds: u32) -> Result<(), StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let query = sqlx::query(
            "DELETE FROM token_revocations \
             WHERE made_at < UTC_TIMESTAMP(3) - INTERVAL ? SECOND LIMIT ?",
        );
        session.execute(query.bind(seconds).bind(REMOVED_AT_ONCE)).await.map(drop)
    }
}

/// Revokes all tokens of these users, in the connection's transaction: an old replica may still
/// issue some. At least one user.
pub(super) async fn revoke_for_ever(
    users: impl IntoIterator<Item = u64>,
    connection: &mut MySqlConnection,
) -> Result<(), sqlx::Error> {
    revocation_of(users, NO_EXPIRY).build().execute(connection).await.map(drop)
}

/// Revokes all tokens of the users who are set aside, also of those whom an earlier run set aside.
/// Users that are revoked already keep their rows.
pub(super) async fn revoke_set_aside(connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
    let mut insert = QueryBuilder::<MySql>::new(format!(
        "INSERT INTO token_revocations (user_id, not_before, made_at) \
         SELECT id, {NO_EXPIRY}, {NOW} FROM users WHERE phone_state = 'set_aside' \
         ORDER BY id ON DUPLICATE KEY UPDATE \
         made_at = IF(not_before < {NO_EXPIRY}, {NOW}, made_at), \
         not_before = GREATEST({NO_EXPIRY}, not_before)"
    ));
    insert.build().execute(connection).await.map(drop)
}

/// The statement that revokes the tokens of these users that were issued up to a moment, an
/// expression of SQL: at least one user.
fn revocation_of(
    users: impl IntoIterator<Item = u64>,
    moment: &'static str,
) -> QueryBuilder<MySql> {
    let mut insert =
        QueryBuilder::new("INSERT INTO token_revocations (user_id, not_before, made_at) ");
    insert.push_values(users, |mut row, user| {
        row.push_bind(user).push(moment).push(NOW);
    });
    insert.push(format!(
        " ON DUPLICATE KEY UPDATE \
         not_before = GREATEST({moment}, not_before + INTERVAL 2000 MICROSECOND), made_at = {NOW}"
    ));
    insert
}

/// Milliseconds since 1970 of a `DATETIME` in UTC.
pub(super) fn unix_ms(moment: PrimitiveDateTime) -> i64 {
    let moment = moment.assume_utc();
    moment.unix_timestamp() * 1000 + i64::from(moment.millisecond())
}
