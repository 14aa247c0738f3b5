//! Deletes a key if it has a given value: by the server's command for that, else by a script.
//!
//! Valkey 9 has the command `DELIFEQ`, which costs the server less than a script. The first answer
//! says whether a server has it and lets this user call it; the script is called from then on if
//! not. So it is if another server comes in its place later. The command does not say whether a key
//! that it left has another value or is gone. Then the script is asked, which repeats the
//! comparison.
//!
//! Tests: `tests/redis/lua_release.rs`.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis::{RedisError, RedisResult};

use super::RedisConnection;
use super::script::LuaScript;

const SCRIPT: &str = include_str!("../../lua/release_if_owner.lua");

/// The comparison and deletion, for all keys of a server.
pub(crate) struct CompareAndDelete {
    script: LuaScript,
    uses_script: AtomicBool,
}

impl CompareAndDelete {
    pub(crate) fn new() -> Self {
        Self { script: LuaScript::new(SCRIPT), uses_script: AtomicBool::new(false) }
    }

    /// Returns 1 if the key was deleted, 0 if it has another value, -1 if there is none.
    pub(crate) async fn call(
        &self,
        connection: &mut RedisConnection,
        key: &str,
        value: &str,
    ) -> RedisResult<i64> {
        if !self.uses_script.load(Relaxed) {
            let mut command = redis::cmd("DELIFEQ");
            match command.arg(key).arg(value).query_async(connection).await {
                Ok(1) => return Ok(1),
                Ok(_) => {}
                Err(error) if is_unavailable(&error) => self.uses_script.store(true, Relaxed),
                Err(error) => return Err(error),
            }
        }
        self.script.call(connection, &[key], value).await
    }

    /// As `call`, by the script's text. A server that is hung now may carry this out later, and
    /// could not ask for the text then.
    pub(crate) async fn call_whole(
        &self,
        connection: &mut RedisConnection,
        key: &str,
        value: &str,
    ) -> RedisResult<i64> {
        self.script.call_whole(connection, &[key], value).await
    }
}

/// Whether the server does not know the command, or the user may not call it. Proxies have words of
/// their own for commands that they do not know, all behind the same code.
fn is_unavailable(error: &RedisError) -> bool {
    matches!(error.code(), Some("ERR" | "NOPERM"))
}
