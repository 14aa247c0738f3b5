//! Scripts that run inside the server.

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, FromRedisValue, RedisResult, Script, ServerErrorKind, ToRedisArgs};

/// A script, called by its digest; a server that does not know it is sent the whole.
pub(crate) struct LuaScript {
    code: &'static str,
    digest: String,
}

impl LuaScript {
    pub(crate) fn new(code: &'static str) -> Self {
        Self { code, digest: Script::new(code).get_hash().to_owned() }
    }

    /// Calls it. Unlike redis-rs's own `Script`, which loads an unknown script and asks for it once
    /// more, this needs no third round trip, and cannot be overtaken by another SCRIPT FLUSH.
    pub(crate) async fn call<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
        keys: &[&str],
        args: impl ToRedisArgs,
    ) -> RedisResult<T> {
        match command("EVALSHA", &self.digest, keys, &args).query_async(connection).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                command("EVAL", self.code, keys, &args).query_async(connection).await
            }
            outcome => outcome,
        }
    }

    /// Sends the whole script: for what must be carried out by a server that is hung now, and will
    /// have no way to ask for it when it wakes up.
    pub(crate) async fn call_whole<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
        keys: &[&str],
        args: impl ToRedisArgs,
    ) -> RedisResult<T> {
        command("EVAL", self.code, keys, &args).query_async(connection).await
    }
}

fn command(name: &str, script: &str, keys: &[&str], args: impl ToRedisArgs) -> Cmd {
    // Grown word by word it would be moved several times.
    let mut command = Cmd::with_capacity(16, name.len() + script.len() + 256);
    command.arg(name);
    command.arg(script).arg(keys.len()).arg(keys).arg(args);
    command
}
