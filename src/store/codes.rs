//! One-time login codes, in Redis. Each is good with its own challenge only, so that a stranger who
//! asks for codes of a phone, or guesses at them, leaves those of its owner alone.

use std::time::Duration;

use redis::{AsyncCommands, Script};

use super::{RedisConnection, StoreError};
use crate::domain::Phone;

/// How long codes live and what they stand.
#[derive(Debug, Clone, Copy)]
pub struct CodeRules {
    /// How long a code is good for.
    pub life: Duration,
    /// The wrong try that voids a code.
    pub tries: u32,
    /// The most codes of a phone at a time.
    pub live: u32,
}

/// The login codes.
#[derive(Clone)]
pub struct Codes {
    connection: RedisConnection,
    rules: CodeRules,
    issue: Script,
    redeem: Script,
}

/// A try to log in.
#[derive(Clone, Copy)]
pub struct LoginAttempt<'a> {
    /// Whose code it is.
    pub phone: &'a Phone,
    /// What the answer to the request for a code said.
    pub challenge: &'a str,
    /// The code.
    pub code: &'a str,
}

impl Codes {
    /// Codes in that Redis.
    pub fn new(connection: RedisConnection, rules: CodeRules) -> Self {
        Self {
            connection,
            rules,
            issue: Script::new(include_str!("../../lua/login/issue_code.lua")),
            redeem: Script::new(include_str!("../../lua/login/redeem_code.lua")),
        }
    }

    /// How long a code is good for.
    pub fn life(&self) -> Duration {
        self.rules.life
    }

    /// Remembers a code. If the phone has as many as it may, how long until the first of them ends.
    pub async fn issue(&self, new: LoginAttempt<'_>) -> Result<Option<Duration>, StoreError> {
        let life_ms = u64::try_from(self.rules.life.as_millis()).unwrap_or(u64::MAX);
        let wait_ms: u64 = self
            .issue
            .key(key(new.phone))
            .arg(new.challenge)
            .arg(new.code)
            .arg(life_ms)
            .arg(self.rules.live)
            .invoke_async(&mut self.connection.clone())
            .await?;
        Ok((wait_ms > 0).then(|| Duration::from_millis(wait_ms)))
    }

    /// Forgets a code that reached no phone.
    pub async fn void(&self, phone: &Phone, challenge: &str) -> Result<(), StoreError> {
        Ok(self.connection.clone().hdel(key(phone), challenge).await?)
    }

    /// Whether the code is right. A wrong try counts, a right one leaves the code as it is.
    pub async fn check(&self, attempt: LoginAttempt<'_>) -> Result<bool, StoreError> {
        self.redeem(attempt, false).await
    }

    /// Uses the code up; of simultaneous attempts one does.
    pub async fn use_up(&self, attempt: LoginAttempt<'_>) -> Result<bool, StoreError> {
        self.redeem(attempt, true).await
    }

    async fn redeem(&self, attempt: LoginAttempt<'_>, use_up: bool) -> Result<bool, StoreError> {
        let right: i64 = self
            .redeem
            .key(key(attempt.phone))
            .arg(attempt.challenge)
            .arg(attempt.code)
            .arg(self.rules.tries)
            .arg(u8::from(use_up))
            .invoke_async(&mut self.connection.clone())
            .await?;
        Ok(right == 1)
    }
}

fn key(phone: &Phone) -> String {
    format!("login:codes:{{{}}}", phone.as_str())
}
