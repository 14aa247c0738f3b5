//! Idempotent calls of scripts: each request has an id, and the script remembers its answer for it.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{AsyncConnectionConfig, FromRedisValue, RedisError, RedisResult, ToRedisArgs};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::RedisServer;
use super::script::LuaScript;
use crate::LockError;

/// How long a request without an answer is sent again while its caller waits.
pub(crate) const CALL_RETRY_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the server remembers the answer for an id: longer than any repetition takes.
pub(crate) const LATCH_TTL: Duration = Duration::from_mins(2);

/// The most detached calls in flight.
pub(crate) const MAX_FRESH_CONNECTIONS: usize = 8;

/// How long a latch waits to be deleted together with others, and how many at most. Under load the
/// task that makes the batch full deletes it. A timer every few milliseconds would wake another
/// thread each time and halve the throughput of a lone task.
const DELETE_DELAY: Duration = Duration::from_millis(100);
const MAX_PENDING_LATCHES: usize = 64;

/// How long the server may take to answer these, or to accept their connections.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause before a request is sent again doubles from the first to the second of these.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// What scripts answer once and for all.
const FINAL_ERRORS: [&str; 4] = ["WRONGTYPE", "TOOMANY", "GIVENUP", "ERR"];

/// An answer.
pub(crate) struct CallResult<T> {
    pub(crate) value: T,
    /// When it was sent, the last time.
    pub(crate) sent: Instant,
    /// Whether the request was sent more than once: an earlier one may still be under way.
    pub(crate) again: bool,
}

/// A request without a good answer.
pub(crate) struct CallError {
    error: RedisError,
    /// Whether an earlier sending of the same request may have been carried out.
    again: bool,
}

impl CallError {
    /// Whether the server may have acted. What it says itself, it says instead of acting; and a
    /// server that refused the connection was not asked.
    pub(crate) fn may_have_acted(&self) -> bool {
        self.again || (self.error.code().is_none() && !self.error.is_connection_refusal())
    }

    /// Whether it is of no use to send the request again.
    pub(crate) fn is_final(&self) -> bool {
        self.error.code().is_some_and(|code| FINAL_ERRORS.contains(&code))
    }
}

impl From<CallError> for LockError {
    fn from(failure: CallError) -> Self {
        match failure.error.code() {
            Some("TOOMANY") => {
                let limit = "must not be more than 2147483647 in all".into();
                Self::BadRequest { field: "permits", limit }
            }
            _ => failure.error.into(),
        }
    }
}

/// Calls a script. A connection that was lost costs one repetition.
pub(crate) async fn idempotent_call<T: FromRedisValue>(
    server: &RedisServer,
    script: &LuaScript,
    keys: &[&str],
    args: impl ToRedisArgs,
) -> Result<CallResult<T>, CallError> {
    let mut connection = server.connection();
    let sent = Instant::now();
    let first = script.call(&mut connection, keys, &args).await;
    let Some(again) = may_have_acted_if_dropped(&first) else {
        return to_result(first, sent, false);
    };
    let sent = Instant::now();
    to_result(script.call(&mut connection, keys, &args).await, sent, again)
}

/// Deletes latches of requests whose every sending was answered. The answer is not awaited: a latch
/// that stays ends by itself.
pub(crate) async fn delete_latches(server: &RedisServer, latches: impl ToRedisArgs) {
    let mut command = redis::cmd("DEL");
    command.arg(latches).set_no_response(true);
    if let Err(error) = command.exec_async(&mut server.connection()).await {
        tracing::debug!(%error, "latch not deleted; it expires");
    }
}

/// Calls a script that must run although its caller was dropped. It uses a connection of its own,
/// because the shared one may be half open. It sends the script's text, because a server that is
/// hung now could not ask for it later.
pub(crate) async fn call_on_fresh_connection<T: FromRedisValue>(
    server: &RedisServer,
    script: &LuaScript,
    keys: &[&str],
    args: impl ToRedisArgs,
) -> Result<CallResult<T>, CallError> {
    let shared = server.synchronizers();
    // The semaphore is never closed; if it were, the call would continue unbounded.
    let _slot = shared.last_calls.acquire().await;
    let sent = Instant::now();
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(RESPONSE_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT));
    let shared = server.connection();
    let answer = match shared.own(keys[0], &config).await {
        Ok(mut connection) => script.call_whole(&mut connection, keys, &args).await,
        Err(error) => Err(error),
    };
    let answer = answer.inspect_err(|failure| shared.seen(failure));
    to_result(answer, sent, false)
}

/// If the connection was lost: whether the server may have acted.
fn may_have_acted_if_dropped<T>(answer: &RedisResult<T>) -> Option<bool> {
    let error = answer.as_ref().err()?;
    error.is_connection_dropped().then(|| !error.is_connection_refusal())
}

fn to_result<T>(
    answer: RedisResult<T>,
    sent: Instant,
    again: bool,
) -> Result<CallResult<T>, CallError> {
    match answer {
        Ok(value) => Ok(CallResult { value, sent, again }),
        Err(error) => Err(CallError { error, again }),
    }
}

/// Sends a request until it is answered, for at most `time`.
pub(crate) async fn retry_until_answered<
    T,
    F: Future<Output = Result<CallResult<T>, CallError>>,
>(
    time: Duration,
    send: impl Fn() -> F,
) -> Result<CallResult<T>, CallError> {
    let (deadline, mut pause, mut again) = (Instant::now() + time, RETRY_PAUSE.0, false);
    loop {
        match send().await {
            Ok(answer) => return Ok(CallResult { again: again || answer.again, ..answer }),
            Err(failure) => {
                again |= failure.may_have_acted();
                if failure.is_final() || Instant::now() + pause > deadline {
                    return Err(CallError { again, ..failure });
                }
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(RETRY_PAUSE.1);
    }
}

/// Latches of answered requests, which are deleted together.
#[derive(Clone)]
pub(crate) struct LatchDeleter {
    server: RedisServer,
    pending: Arc<Mutex<PendingLatches>>,
}

#[derive(Default)]
struct PendingLatches {
    latches: Vec<String>,
    /// The task that will send it to the server. Its runtime may end before.
    deletion: Option<AbortHandle>,
}

impl LatchDeleter {
    pub(crate) fn on(server: &RedisServer) -> Self {
        Self { server: server.clone(), pending: Arc::default() }
    }

    /// Deletes a latch after [`DELETE_DELAY`], together with others.
    pub(crate) async fn delete_later(&self, latch: &str) {
        if self.server.connection().is_cluster() {
            // Each is in the slot of its lock.
            return delete_latches(&self.server, latch).await;
        }
        if let Some(latches) = self.take_if_full(latch) {
            delete_latches(&self.server, latches).await;
        }
    }

    /// With this one, if they are enough.
    fn take_if_full(&self, latch: &str) -> Option<Vec<String>> {
        let mut pending = self.pending();
        pending.latches.push(latch.to_owned());
        if pending.deletion.as_ref().is_none_or(AbortHandle::is_finished) {
            pending.deletion = Some(tokio::spawn(self.clone().delete_after_delay()).abort_handle());
        }
        (pending.latches.len() >= MAX_PENDING_LATCHES).then(|| std::mem::take(&mut pending.latches))
    }

    async fn delete_after_delay(self) {
        sleep(DELETE_DELAY).await;
        // What comes from now on starts another one.
        let PendingLatches { latches, .. } = std::mem::take(&mut *self.pending());
        if !latches.is_empty() {
            delete_latches(&self.server, latches).await;
        }
    }

    fn pending(&self) -> MutexGuard<'_, PendingLatches> {
        // One more or none cannot be left half done by a panic.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
