//! One-time login codes, in Redis: five minutes, five tries, ten codes a day and phone.

use std::time::Duration;

use redis::Script;

use super::{RedisConnection, StoreError};
use crate::domain::Phone;

/// How long a code is good for.
pub const CODE_LIFE: Duration = Duration::from_mins(5);
const TRIES: u32 = 5;
/// How many codes a phone gets a day.
pub const CODES_A_DAY: u32 = 10;

/// Whether a code was issued.
#[derive(Debug, PartialEq, Eq)]
pub enum Issued {
    /// It was.
    Yes,
    /// The phone had its codes for today; again after this time.
    TooMany(Duration),
}

/// The login codes.
#[derive(Clone)]
pub struct Codes {
    connection: RedisConnection,
    issue: Script,
    redeem: Script,
}

impl Codes {
    /// Codes in that Redis.
    pub fn new(connection: RedisConnection) -> Self {
        Self {
            connection,
            issue: Script::new(include_str!("../../lua/login/issue_code.lua")),
            redeem: Script::new(include_str!("../../lua/login/redeem_code.lua")),
        }
    }

    /// Remembers a code for a phone; an earlier one is void.
    pub async fn issue(&self, phone: &Phone, code: &str) -> Result<Issued, StoreError> {
        let refused_s: i64 = self
            .issue
            .key(code_key(phone))
            .key(format!("login:issued:{{{}}}", phone.as_str()))
            .arg(code)
            .arg(CODE_LIFE.as_secs())
            .arg(CODES_A_DAY)
            .invoke_async(&mut self.connection.clone())
            .await?;
        Ok(match u64::try_from(refused_s) {
            Ok(0) | Err(_) => Issued::Yes,
            Ok(seconds) => Issued::TooMany(Duration::from_secs(seconds)),
        })
    }

    /// Whether that is the phone's code. A right one is used up; the fifth wrong one voids it.
    pub async fn redeem(&self, phone: &Phone, code: &str) -> Result<bool, StoreError> {
        let right: i64 = self
            .redeem
            .key(code_key(phone))
            .arg(code)
            .arg(TRIES)
            .invoke_async(&mut self.connection.clone())
            .await?;
        Ok(right == 1)
    }
}

fn code_key(phone: &Phone) -> String {
    format!("login:code:{{{}}}", phone.as_str())
}
