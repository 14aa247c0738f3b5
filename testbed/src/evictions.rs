//! Which keys a Redis evicts, by their names: its own notices, which it sends to subscribers.
//!
//! The notices of a moment stand before a word of ours on the same channel, so that reading up to
//! that word needs no time-out. A server that loses its listeners (a restart) reports nothing more,
//! and the next question is an error.

use crate::error::{Error, Result};
use crate::redis::Redis;
use crate::resp::{Failure, RespConnection};

/// Stands behind all notices so far; no key is called so.
const READ_MARK: &str = "\u{1}so far";

/// Listens to what a Redis evicts from one of its logical databases.
#[derive(Debug)]
pub struct Evictions<'a> {
    redis: &'a Redis,
    connection: RespConnection,
    channel: String,
}

impl<'a> Evictions<'a> {
    /// From now on.
    ///
    /// # Errors
    /// As [`Redis::command`].
    pub fn of(redis: &'a Redis, database: u16) -> Result<Self> {
        redis.command(&["CONFIG", "SET", "notify-keyspace-events", "Ee"])?;
        let channel = format!("__keyevent@{database}__:evicted");
        let connection = redis.connect().and_then(|mut connection| {
            connection.command(&["SUBSCRIBE", &channel])?;
            Ok(connection)
        });
        let connection = connection.map_err(|failure| broken(redis, &failure))?;
        Ok(Self { redis, connection, channel })
    }

    /// Names of the keys that were evicted since this was asked last.
    ///
    /// # Errors
    /// As [`Redis::command`].
    pub fn since_last(&mut self) -> Result<Vec<String>> {
        self.redis.command(&["PUBLISH", &self.channel, READ_MARK])?;
        let mut names = Vec::new();
        loop {
            let notice = self.connection.read().map_err(|failure| broken(self.redis, &failure))?;
            // `message`, the channel, the name.
            match notice.splitn(3, '\n').nth(2).unwrap_or_default() {
                READ_MARK => return Ok(names),
                name => names.push(name.to_owned()),
            }
        }
    }
}

fn broken(redis: &Redis, failure: &Failure) -> Error {
    let (name, command) = (redis.name().to_owned(), "SUBSCRIBE".to_owned());
    Error::Redis { name, command, message: failure.to_string() }
}
