//! What processes publish of their waiting tasks, in one hash of a Redis server.

use futures_util::future::BoxFuture;
use uuid::Uuid;

use super::RedisServer;
use super::script::LuaScript;
use crate::deadlock_detector::{WaitExchange, WaitRecord};
use crate::{LockError, RedisConnection};

/// The hash.
const KEY: &str = "distlock_waits";
/// How long a record is valid.
const VALIDITY_MS: u64 = 1000;
/// The most processes that publish at a time; the waits of others are not seen.
const MAX_PROCESSES: usize = 256;

/// Publishes in a Redis server, whatever servers the locks are on.
pub struct RedisWaitExchange {
    connection: RedisConnection,
    script: LuaScript,
}

impl RedisWaitExchange {
    /// All processes that name this server and database find each other.
    #[must_use]
    pub fn new(server: &RedisServer) -> Self {
        let script = LuaScript::new(include_str!("../../lua/exchange_waits.lua"));
        Self { connection: server.connection(), script }
    }
}

impl WaitExchange for RedisWaitExchange {
    fn exchange<'a>(
        &'a self,
        record: Option<&'a WaitRecord>,
    ) -> BoxFuture<'a, Result<Vec<WaitRecord>, LockError>> {
        Box::pin(async move {
            let (process, sequence, text) = match record {
                Some(one) => (one.process.to_string(), one.sequence, one.text.as_str()),
                None => (String::new(), 0, ""),
            };
            let args = (process, VALIDITY_MS, sequence, text, MAX_PROCESSES);
            let mut connection = self.connection.clone();
            let fields: Vec<String> = self
                .script
                .call(&mut connection, &[KEY], args)
                .await
                .map_err(|error| self.script.failure(error))?;
            let records = fields.chunks_exact(3).filter_map(|fields| {
                let (process, sequence) = (Uuid::parse_str(&fields[0]), fields[1].parse());
                Some(WaitRecord {
                    process: process.ok()?,
                    sequence: sequence.ok()?,
                    text: fields[2].clone(),
                })
            });
            Ok(records.collect())
        })
    }
}
