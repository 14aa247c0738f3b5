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

    /// Calls the script. redis-rs's own `Script` loads an unknown script and calls it again. This
    /// needs no third round trip, and another SCRIPT FLUSH cannot come in between.
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

    /// Calls the script by its text, for calls that a hung server must carry out later: it could
    /// not ask for the text then.
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
