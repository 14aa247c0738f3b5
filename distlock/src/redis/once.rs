//! Requests that count once, however often they are sent: each has an id of its own, and the
//! scripts behind them remember what they did for it.

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
pub(super) const SOON: Duration = Duration::from_millis(500);
/// How long the server remembers what it did for an id: longer than anybody sends it again.
pub(super) const REMEMBERED: Duration = Duration::from_mins(2);

/// How many requests may be under way for which nobody waits any more.
pub(super) const LAST_CALLS: usize = 8;

/// How long latches wait for others that are forgotten with them, and how many at most. Where many
/// locks are released the server is told by whoever makes it so many: a timer that ends every few
/// milliseconds wakes another thread each time, which costs a lone task half of its locks.
const MOMENT: Duration = Duration::from_millis(100);
const MOST: usize = 64;

/// How long the server may take to answer these, or to accept their connections.
const ANSWER: Duration = Duration::from_secs(1);
/// The pause before a request is sent again doubles from the first to the second of these.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// What scripts answer once and for all.
const FINAL: [&str; 4] = ["WRONGTYPE", "TOOMANY", "GIVENUP", "ERR"];

/// An answer.
pub(super) struct Answered<T> {
    pub(super) value: T,
    /// When it was sent, the last time.
    pub(super) sent: Instant,
    /// Whether the request was sent more than once: an earlier one may still be under way.
    pub(super) again: bool,
}

/// A request without a good answer.
pub(super) struct Failure {
    error: RedisError,
    /// Whether an earlier sending of the same request may have been carried out.
    again: bool,
}

impl Failure {
    /// Whether the server may have acted. What it says itself, it says instead of acting; and a
    /// server that refused the connection was not asked.
    pub(super) fn may_have_acted(&self) -> bool {
        self.again || (self.error.code().is_none() && !self.error.is_connection_refusal())
    }

    /// Whether it is of no use to send the request again.
    pub(super) fn is_final(&self) -> bool {
        self.error.code().is_some_and(|code| FINAL.contains(&code))
    }
}

impl From<Failure> for LockError {
    fn from(failure: Failure) -> Self {
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
pub(super) async fn call<T: FromRedisValue>(
    server: &RedisServer,
    script: &LuaScript,
    keys: &[&str],
    args: impl ToRedisArgs,
) -> Result<Answered<T>, Failure> {
    let mut connection = server.connection();
    let sent = Instant::now();
    let first = script.call(&mut connection, keys, &args).await;
    let Some(again) = lost(&first) else { return answered(first, sent, false) };
    let sent = Instant::now();
    answered(script.call(&mut connection, keys, &args).await, sent, again)
}

/// Each sending of these requests was answered, so nobody will ask again what was done for them.
/// Nobody waits for this either: a latch that stays ends by itself.
pub(super) async fn forget(server: &RedisServer, latches: impl ToRedisArgs) {
    let mut command = redis::cmd("DEL");
    command.arg(latches).set_no_response(true);
    if let Err(error) = command.exec_async(&mut server.connection()).await {
        tracing::debug!(%error, "a latch is left to its time");
    }
}

/// The same for what nobody waits for any more, and must be done all the same: by a connection of
/// its own, because the usual one may be half open; and with the whole script, because a server
/// that is hung now will have no way to ask for it when it wakes up.
pub(super) async fn call_at_last<T: FromRedisValue>(
    server: &RedisServer,
    script: &LuaScript,
    keys: &[&str],
    args: impl ToRedisArgs,
) -> Result<Answered<T>, Failure> {
    let shared = server.synchronizers();
    // Nobody closes it, and if somebody did, it would bound nothing any more.
    let _slot = shared.last_calls.acquire().await;
    let sent = Instant::now();
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ANSWER))
        .set_response_timeout(Some(ANSWER));
    let shared = server.connection();
    let answer = match shared.own(keys[0], &config).await {
        Ok(mut connection) => script.call_whole(&mut connection, keys, &args).await,
        Err(error) => Err(error),
    };
    let answer = answer.inspect_err(|failure| shared.seen(failure));
    answered(answer, sent, false)
}

/// If the connection was lost: whether the server may have acted.
fn lost<T>(answer: &RedisResult<T>) -> Option<bool> {
    let error = answer.as_ref().err()?;
    error.is_connection_dropped().then(|| !error.is_connection_refusal())
}

fn answered<T>(answer: RedisResult<T>, sent: Instant, again: bool) -> Result<Answered<T>, Failure> {
    match answer {
        Ok(value) => Ok(Answered { value, sent, again }),
        Err(error) => Err(Failure { error, again }),
    }
}

/// Sends a request until it is answered, or for so long.
pub(super) async fn persist<T, F: Future<Output = Result<Answered<T>, Failure>>>(
    time: Duration,
    send: impl Fn() -> F,
) -> Result<Answered<T>, Failure> {
    let (deadline, mut pause, mut again) = (Instant::now() + time, PAUSE.0, false);
    loop {
        match send().await {
            Ok(answer) => return Ok(Answered { again: again || answer.again, ..answer }),
            Err(failure) => {
                again |= failure.may_have_acted();
                if failure.is_final() || Instant::now() + pause > deadline {
                    return Err(Failure { again, ..failure });
                }
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

/// Latches of requests that were answered and are made often: they are forgotten together.
#[derive(Clone)]
pub(super) struct Together {
    server: RedisServer,
    forgotten: Arc<Mutex<Forgotten>>,
}

#[derive(Default)]
struct Forgotten {
    latches: Vec<String>,
    /// The task that is about to tell the server. Its runtime may end before.
    telling: Option<AbortHandle>,
}

impl Together {
    pub(super) fn on(server: &RedisServer) -> Self {
        Self { server: server.clone(), forgotten: Arc::default() }
    }

    /// As [`forget`], in a moment.
    pub(super) async fn forget(&self, latch: &str) {
        if self.server.connection().is_cluster() {
            // Each is in the slot of its lock.
            return forget(&self.server, latch).await;
        }
        if let Some(latches) = self.gathered(latch) {
            forget(&self.server, latches).await;
        }
    }

    /// With this one, if they are enough.
    fn gathered(&self, latch: &str) -> Option<Vec<String>> {
        let mut forgotten = self.forgotten();
        forgotten.latches.push(latch.to_owned());
        if forgotten.telling.as_ref().is_none_or(AbortHandle::is_finished) {
            forgotten.telling = Some(tokio::spawn(self.clone().tell()).abort_handle());
        }
        (forgotten.latches.len() >= MOST).then(|| std::mem::take(&mut forgotten.latches))
    }

    async fn tell(self) {
        sleep(MOMENT).await;
        // What comes from now on starts another one.
        let Forgotten { latches, .. } = std::mem::take(&mut *self.forgotten());
        if !latches.is_empty() {
            forget(&self.server, latches).await;
        }
    }

    fn forgotten(&self) -> MutexGuard<'_, Forgotten> {
        // One more or none cannot be left half done by a panic.
        self.forgotten.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
