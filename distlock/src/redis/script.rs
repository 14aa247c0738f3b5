//! Scripts that run inside the server.

use redis::aio::ConnectionLike;
use redis::{
    Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, Script, ServerErrorKind, ToRedisArgs,
};

use crate::LockError;

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

    /// A call to be sent with others: by the text, or by the digest to a server that knows it.
    pub(crate) fn command(&self, whole: bool, keys: &[&str], args: impl ToRedisArgs) -> Cmd {
        let (name, script) =
            if whole { ("EVAL", self.code) } else { ("EVALSHA", self.digest.as_str()) };
        command(name, script, keys, args)
    }

    /// Why a call failed. If the user may not run a command of the script, Redis before 7.2 tells
    /// only the line, so the command is looked up there.
    pub(crate) fn failure(&self, error: RedisError) -> LockError {
        let detail = error.detail().unwrap_or_default();
        let line = detail.rsplit_once("@user_script:").map(|(_, line)| line.trim_end_matches('.'));
        let line = line.and_then(|line| line.parse::<usize>().ok()?.checked_sub(1));
        let code = line.and_then(|line| self.code.lines().nth(line));
        let command = code.and_then(|code| code.split("call('").nth(1)?.split('\'').next());
        match (LockError::from(error), command) {
            (LockError::AccessDenied(why), Some(command)) if why.contains("this command") => {
                LockError::AccessDenied(format!("{why} ('{}')", command.to_lowercase()))
            }
            (error, _) => error,
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
