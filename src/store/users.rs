//! Users.

use sqlx::{MySql, MySqlPool, QueryBuilder, Row};

use super::{Session, StoreError};
use crate::domain::{Phone, Role, UserId};

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
    pub async fn of_phone(&self, phone: &Phone) -> Result<(UserId, Role), StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let query = sqlx::query(
            "INSERT INTO users (phone) VALUES (?) ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id)",
        );
        let id = UserId(session.execute(query.bind(phone.as_str())).await?.last_insert_id());
        let row = session.fetch_one(sqlx::query("SELECT role FROM users WHERE id = ?").bind(id.0));
        let role = role_of(row.await?.try_get(0)?)?;
        Ok((id, role))
    }

    /// Phone and role of a user.
    pub async fn find(&self, id: UserId) -> Result<Option<(Phone, Role)>, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let query = sqlx::query("SELECT phone, role FROM users WHERE id = ?").bind(id.0);
        let Some(row) = session.fetch_optional(query).await? else { return Ok(None) };
        let phone = Phone::new(row.try_get(0)?);
        let phone = phone.map_err(|error| StoreError::Unexpected(format!("phone {error}")))?;
        Ok(Some((phone, role_of(row.try_get(1)?)?)))
    }

    /// Creates users of that role with the phones; the ids, in the order of the phones.
    pub async fn create(&self, phones: &[Phone], role: Role) -> Result<Vec<UserId>, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let mut ids = Vec::with_capacity(phones.len());
        for batch in phones.chunks(Self::BATCH) {
            let mut insert = QueryBuilder::<MySql>::new("INSERT INTO users (phone, role) ");
            insert.push_values(batch, |mut row, phone| {
                row.push_bind(phone.as_str()).push_bind(role.as_str());
            });
            session.execute(insert.build()).await?;
            let mut select = QueryBuilder::<MySql>::new("SELECT id FROM users WHERE phone IN (");
            let mut list = select.separated(", ");
            for phone in batch {
                list.push_bind(phone.as_str());
            }
            select.push(") ORDER BY id");
            for row in session.fetch_all(select.build()).await? {
                ids.push(UserId(row.try_get(0)?));
            }
        }
        Ok(ids)
    }
}

fn role_of(name: &str) -> Result<Role, StoreError> {
    Role::from_name(name).ok_or_else(|| StoreError::Unexpected("unknown role".into()))
}
