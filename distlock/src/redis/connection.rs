//! The connection on which commands are sent: all of a process share it.

mod steady;

use redis::aio::{ConnectionLike, ConnectionManagerConfig};
use redis::{Client, Cmd, Pipeline, RedisFuture, RedisResult, Value};

use steady::Steady;

/// A connection to Redis that is made anew when it ends or falls silent. Cheap to clone; clones use
/// the same socket.
#[derive(Clone)]
pub struct RedisConnection(Steady);

impl RedisConnection {
    /// Connects with the first command. `config` says how long an answer may take.
    pub fn later(client: Client, config: ConnectionManagerConfig) -> RedisResult<Self> {
        Ok(Self(Steady::later(client, config)?))
    }

    /// Connects now; fails if the server does not answer.
    pub async fn now(client: Client, config: ConnectionManagerConfig) -> RedisResult<Self> {
        Ok(Self(Steady::now(client, config).await?))
    }

    /// For connections of one's own.
    pub(crate) fn client(&self) -> &Client {
        self.0.client()
    }
}

impl ConnectionLike for RedisConnection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            if command.is_no_response() {
                return self.0.manager().send_packed_command(command).await;
            }
            let send = |mut manager: redis::aio::ConnectionManager| async move {
                manager.send_packed_command(command).await
            };
            self.0.send(send).await
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let send = |mut manager: redis::aio::ConnectionManager| async move {
                manager.send_packed_commands(pipeline, offset, count).await
            };
            self.0.send(send).await
        })
    }

    fn get_db(&self) -> i64 {
        self.client().get_connection_info().redis_settings().db()
    }
}
