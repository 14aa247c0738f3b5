//! Users.

use sqlx::{MySql, MySqlPool, QueryBuilder, Row};
use time::PrimitiveDateTime;

use super::revocations::unix_ms;
use super::{Session, StoreError};
use crate::domain::{Phone, Role, UserId};

/// A user who logs in.
#[derive(Debug)]
pub struct LoginUser {
    /// The user's id.
    pub id: UserId,
    /// What the user may do.
    pub role: Role,
    /// When the token of this login is issued: now by the database's clock, and after every
    /// revocation, in ms since 1970.
    pub issued_ms: i64,
}

/// The users.
#[derive(Clone)]
pub struct Users {
    pool: MySqlPool,
}

impl Users {
    /// The most users that one statement creates.
    const BATCH: usize = 1000;

    /// The users of that database.
    pub fn new(pool: MySqlPool) -> Self {
        Self { pool }
    }

    /// The user of that phone, created at the first login.
    pub async fn of_phone(&self, phone: &Phone) -> Result<LoginUser, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let query = sqlx::query(
            "INSERT INTO users (phone, phone_state) VALUES (?, 'e164') \
             ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id)",
        );
        let id = UserId(session.execute(query.bind(phone.as_str())).await?.last_insert_id());
        // Its row records the user's deletion.
        session.execute(token_subjects_of([id.0]).build()).await?;
        // A statement that deletes the user goes first, or revokes this login's token as well.
        let query = sqlx::query(
            "SELECT u.role, UTC_TIMESTAMP(3), (SELECT MAX(r.not_before) FROM token_revocations r \
             WHERE r.user_id IN (u.id, 0)) FROM users u WHERE u.id = ? LOCK IN SHARE MODE",
        );
        let row = session.fetch_optional(query.bind(id.0)).await?.ok_or(StoreError::Conflict)?;
        let (now, revoked): (_, Option<PrimitiveDateTime>) = (row.try_get(1)?, row.try_get(2)?);
        let after = revoked.map_or(i64::MIN, |moment| unix_ms(moment) + 1);
        let issued_ms = unix_ms(now).max(after);
        Ok(LoginUser { id, role: role_of(row.try_get(0)?)?, issued_ms })
    }

    /// What a user may do now.
    pub async fn role(&self, id: UserId) -> Result<Option<Role>, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let query = sqlx::query("SELECT role FROM users WHERE id = ?").bind(id.0);
        let row = session.fetch_optional(query).await?;
        row.map(|row| role_of(row.try_get(0)?)).transpose()
    }

    /// The user of that phone.
    pub async fn id_of(&self, phone: &Phone) -> Result<Option<UserId>, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let query = sqlx::query("SELECT id FROM users WHERE phone = ?").bind(phone.as_str());
        let row = session.fetch_optional(query).await?;
        row.map(|row| Ok(UserId(row.try_get(0)?))).transpose()
    }

    /// Now by the database's clock, in ms since 1970.
    pub async fn now_ms(&self) -> Result<i64, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let row = session.fetch_one(sqlx::query("SELECT UTC_TIMESTAMP(3)")).await?;
        Ok(unix_ms(row.try_get(0)?))
    }

    /// Phone and role of a user.
    pub async fn find(&self, id: UserId) -> Result<Option<(Phone, Role)>, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let query = sqlx::query("SELECT phone, role FROM users WHERE id = ?").bind(id.0);
        let Some(row) = session.fetch_optional(query).await? else { return Ok(None) };
        Ok(Some((Phone::from_stored(row.try_get(0)?), role_of(row.try_get(1)?)?)))
    }

    /// Creates users of that role with the phones; the ids, in the order of the phones.
    pub async fn create(&self, phones: &[Phone], role: Role) -> Result<Vec<UserId>, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let mut ids = Vec::with_capacity(phones.len());
        for batch in phones.chunks(Self::BATCH) {
            let mut insert =
                QueryBuilder::<MySql>::new("INSERT INTO users (phone, phone_state, role) ");
            insert.push_values(batch, |mut row, phone| {
                row.push_bind(phone.as_str()).push("'e164'").push_bind(role.as_str());
            });
            session.execute(insert.build()).await?;
            let mut select = QueryBuilder::<MySql>::new("SELECT id FROM users WHERE phone IN (");
            let mut list = select.separated(", ");
            for phone in batch {
                list.push_bind(phone.as_str());
            }
            select.push(") ORDER BY id");
            let first = ids.len();
            for row in session.fetch_all(select.build()).await? {
                ids.push(UserId(row.try_get(0)?));
            }
            let new = ids[first..].iter().map(|id| id.0);
            session.execute(token_subjects_of(new).build()).await?;
        }
        Ok(ids)
    }
}

/// The statement that gives users, at least one, the rows that record their deletion.
pub(super) fn token_subjects_of(users: impl IntoIterator<Item = u64>) -> QueryBuilder<MySql> {
    let mut insert = QueryBuilder::new("INSERT INTO token_subjects (subject, user_id) ");
    insert.push_values(users, |mut row, id| {
        row.push_bind(id).push_bind(id);
    });
    insert.push(" ON DUPLICATE KEY UPDATE subject = VALUES(subject)");
    insert
}

fn role_of(name: &str) -> Result<Role, StoreError> {
    Role::from_name(name).ok_or_else(|| StoreError::Unexpected("unknown role".into()))
}
