//! Logins of hm-dianping: codes and tokens in Redis, users in `tb_user`. A code or a token that one
//! replica gave out is good at each other one.

use std::collections::HashMap;
use std::time::Duration;

use redis::{AsyncCommands, Script, SetExpiry, SetOptions};
use sqlx::{MySqlPool, Row};

use crate::domain::UserId;
use crate::store::{RedisConnection, Session, StoreError};

/// How long a token lives after its last use, in seconds.
const TOKEN_LIFE_S: i64 = 1800;

/// A user as the token's hash has it.
#[derive(Debug, Clone)]
pub struct DianpingUser {
    /// The user's id.
    pub id: UserId,
    /// The name that others see.
    pub nick_name: String,
    /// The address of the user's picture; may be empty.
    pub icon: String,
}

/// Codes, tokens and users.
#[derive(Clone)]
pub struct DianpingLogins {
    pool: MySqlPool,
    redis: RedisConnection,
    redeem: Script,
}

impl DianpingLogins {
    /// Those of that database and that Redis.
    pub fn new(pool: MySqlPool, redis: RedisConnection) -> Self {
        let redeem = Script::new(include_str!("../../../lua/login/redeem_plain_code.lua"));
        Self { pool, redis, redeem }
    }

    /// Keeps the code of a phone, instead of an earlier one.
    pub async fn set_code(
        &self,
        phone: &str,
        code: &str,
        life: Duration,
    ) -> Result<(), StoreError> {
        let life = SetOptions::default().with_expiration(SetExpiry::EX(life.as_secs()));
        Ok(self.redis.clone().set_options(code_key(phone), code, life).await?)
    }

    /// Forgets a code that reached no phone.
    pub async fn void_code(&self, phone: &str) -> Result<(), StoreError> {
        Ok(self.redis.clone().del(code_key(phone)).await?)
    }

    /// Whether the code is right; a right one is used up.
    pub async fn redeem(&self, phone: &str, code: &str) -> Result<bool, StoreError> {
        let mut redis = self.redis.clone();
        let right: i64 =
            self.redeem.key(code_key(phone)).arg(code).invoke_async(&mut redis).await?;
        Ok(right == 1)
    }

    /// The user of that phone, created with that name at the first login.
    pub async fn user_of(&self, phone: &str, name: &str) -> Result<DianpingUser, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let find = "SELECT CAST(id AS UNSIGNED), COALESCE(nick_name, ''), \
             COALESCE(icon, '') FROM tb_user \
             WHERE phone = ? ORDER BY id LIMIT 1";
        let mut row = session.fetch_optional(sqlx::query(find).bind(phone)).await?;
        if row.is_none() {
            let insert = "INSERT INTO tb_user (phone, nick_name) VALUES (?, ?) \
                 ON DUPLICATE KEY UPDATE id = id";
            session.execute(sqlx::query(insert).bind(phone).bind(name)).await?;
            row = session.fetch_optional(sqlx::query(find).bind(phone)).await?;
        }
        let row = row.ok_or(StoreError::Conflict)?;
        Ok(DianpingUser {
            id: UserId(row.try_get(0)?),
            nick_name: row.try_get(1)?,
            icon: row.try_get(2)?,
        })
    }

    /// Keeps a token.
    pub async fn set_token(&self, token: &str, user: &DianpingUser) -> Result<(), StoreError> {
        let key = token_key(token);
        let DianpingUser { id, nick_name, icon } = user;
        let fields = [("id", &id.to_string()), ("nickName", nick_name), ("icon", icon)];
        let mut pipe = redis::pipe();
        pipe.atomic();
        for (name, value) in fields {
            pipe.hset(&key, name, value).ignore();
        }
        pipe.expire(&key, TOKEN_LIFE_S).ignore();
        Ok(pipe.query_async(&mut self.redis.clone()).await?)
    }

    /// The user of a token, whose life begins again.
    pub async fn user_of_token(&self, token: &str) -> Result<Option<DianpingUser>, StoreError> {
        let key = token_key(token);
        let mut pipe = redis::pipe();
        pipe.atomic().hgetall(&key).expire(&key, TOKEN_LIFE_S).ignore();
        let (mut fields,): (HashMap<String, String>,) =
            pipe.query_async(&mut self.redis.clone()).await?;
        let Some(id) = fields.get("id").and_then(|id| id.parse().ok()) else { return Ok(None) };
        let mut field = |name| fields.remove(name).unwrap_or_default();
        Ok(Some(DianpingUser { id, nick_name: field("nickName"), icon: field("icon") }))
    }

    /// Ends a token.
    pub async fn end_token(&self, token: &str) -> Result<(), StoreError> {
        Ok(self.redis.clone().del(token_key(token)).await?)
    }
}

fn code_key(phone: &str) -> String {
    format!("login:code:{phone}")
}

fn token_key(token: &str) -> String {
    format!("login:token:{token}")
}
