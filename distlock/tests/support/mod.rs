//! What the tests of the Redis kinds share: a server, connections as a service makes them, and
//! names that no other test uses.

// Each test program compiles this file and uses a part of it.
#![allow(dead_code, reason = "not every test program uses all of it")]

pub(crate) mod cluster;
pub(crate) mod dropped;
pub(crate) mod proxy;
pub(crate) mod ran;
pub(crate) mod scene;
pub(crate) mod synchronizers;
pub(crate) mod told;

use std::sync::{Arc, OnceLock};
pub(crate) mod redisson;

#[cfg(feature = "mysql")]
pub(crate) mod mysql;

use std::time::{Duration, Instant};

use distlock::{
    Backends, Guard, Lease, LockError, LockKind, LockName, LockOptions, Locker, Locks,
    RedisConnection, RedisServer, Release, locker,
};
use redis::AsyncCommands;
use redis::aio::ConnectionManagerConfig;
use testbed::{Bed, Redis, RedisOptions};
use uuid::Uuid;

/// How long a command may take where a test judges silence.
pub(crate) const ANSWER: Duration = Duration::from_millis(500);
/// How long it may take everywhere else: a server may stand still for a moment.
const PATIENCE: Duration = Duration::from_secs(10);
/// A lease that does not end in a test.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// The server of this test program; the bed takes it down when the process ends.
pub(crate) fn server() -> &'static Redis {
    static SERVER: OnceLock<(Bed, Redis)> = OnceLock::new();
    &SERVER
        .get_or_init(|| {
            let bed = Bed::start().expect("a private bed");
            let redis = bed.redis(RedisOptions::default()).expect("Redis is installed");
            (bed, redis)
        })
        .1
}

pub(crate) async fn connect(url: &str) -> RedisServer {
    connect_with(url, PATIENCE).await
}

/// A connection whose commands fail after [`ANSWER`], for servers that are silent on purpose.
pub(crate) async fn connect_hasty(url: &str) -> RedisServer {
    connect_with(url, ANSWER).await
}

/// A connection that may take so long to be made, and on which a command may.
pub(crate) async fn connect_with(url: &str, answer: Duration) -> RedisServer {
    let config = ConnectionManagerConfig::new()
        .set_connection_timeout(Some(answer))
        .set_response_timeout(Some(answer))
        .set_number_of_retries(1)
        .set_min_delay(Duration::from_millis(20))
        .set_max_delay(Duration::from_millis(200));
    let until = Instant::now() + PATIENCE;
    loop {
        match RedisServer::connect(url, config.clone()).await {
            Ok(server) => return server,
            // A server that stands still for a moment is asked again.
            Err(error) => assert!(Instant::now() < until, "no connection: {error}"),
        }
    }
}

/// The locks of what is another process as far as Redis can see.
pub(crate) async fn locks_at(url: &str) -> Locks {
    locks_of(LockKind::LuaRelease, connect(url).await)
}

/// The locks of that kind, by that connection.
pub(crate) fn locks_of(kind: LockKind, server: RedisServer) -> Locks {
    let backends = Backends { redis: Some(server), ..Backends::default() };
    Locks::new(locker(kind, &backends).expect("a locker"))
}

/// The locks of a mechanism that the registry does not make.
pub(crate) fn locks_by(locker: impl Locker) -> Locks {
    Locks::new(Arc::new(locker))
}

pub(crate) async fn locks() -> Locks {
    locks_at(server().url()).await
}

pub(crate) fn fresh_name() -> LockName {
    LockName::new(format!("lock:test:{}", Uuid::new_v4())).expect("a name")
}

pub(crate) fn options(wait: Duration, lease: Duration) -> LockOptions {
    LockOptions::new(wait, Lease::Fixed(lease))
}

/// Fails at once if the lock is held.
pub(crate) fn at_once() -> LockOptions {
    options(Duration::ZERO, LONG)
}

/// Waits for long.
pub(crate) fn patient() -> LockOptions {
    options(Duration::from_secs(30), LONG)
}

/// What the server knows. It may stand still for a moment: a look does not judge its speed.
#[derive(Clone)]
pub(crate) struct Look(RedisConnection);

impl Look {
    pub(crate) async fn at(url: &str) -> Self {
        Self(connect_with(url, Duration::from_secs(10)).await.connection())
    }

    pub(crate) async fn owner(&self, name: &LockName) -> Option<String> {
        self.0.clone().get(name.as_str()).await.expect("an answer")
    }

    /// How long the key will be there; `None` if it is not.
    pub(crate) async fn lease(&self, name: &LockName) -> Option<Duration> {
        let ms: i64 = self.0.clone().pttl(name.as_str()).await.expect("an answer");
        u64::try_from(ms).ok().map(Duration::from_millis)
    }

    pub(crate) async fn set(&self, name: &LockName, owner: &str) {
        self.0.clone().set::<_, _, ()>(name.as_str(), owner).await.expect("an answer");
    }

    pub(crate) async fn delete(&self, name: &LockName) {
        self.0.clone().del::<_, ()>(name.as_str()).await.expect("an answer");
    }

    /// Replaces the key by one of another type.
    pub(crate) async fn make_hash(&self, name: &LockName) {
        self.delete(name).await;
        let mut connection = self.0.clone();
        connection.hset::<_, _, _, ()>(name.as_str(), "owner", 1).await.expect("an answer");
    }

    pub(crate) async fn is_hash(&self, name: &LockName) -> bool {
        let field: Option<u8> =
            self.0.clone().hget(name.as_str(), "owner").await.expect("an answer");
        field == Some(1)
    }

    pub(crate) async fn flush_scripts(&self) {
        let mut connection = self.0.clone();
        redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut connection).await.expect("an answer");
    }

    pub(crate) fn connection(&self) -> RedisConnection {
        self.0.clone()
    }
}

/// The answer to a call: one that a server was silent about, or too late for, is made again.
pub(crate) async fn answered<T>(mut call: impl AsyncFnMut() -> Result<T, LockError>) -> T {
    let mut deadline = None;
    loop {
        match call().await {
            Err(LockError::Backend(why)) => is_tried_again(&mut deadline, &why).await,
            Err(error) if has_slow_answers(&error) => {
                is_tried_again(&mut deadline, &error.to_string()).await;
            }
            answer => return answer.expect("an answer"),
        }
    }
}

/// The lock, which is free, or comes free in time.
pub(crate) async fn granted(locks: &Locks, name: &LockName, options: &LockOptions) -> Guard {
    let (mut deadline, mut is_unanswered) = (None, false);
    loop {
        match locks.lock(name, options).await {
            Err(LockError::Backend(why)) => {
                is_unanswered = true;
                is_tried_again(&mut deadline, &why).await;
                locks.flush().await;
            }
            // What is left of an attempt without an answer is given back, or its lease ends.
            Err(LockError::TimedOut { .. }) if is_unanswered => {
                is_tried_again(&mut deadline, "it is busy").await;
            }
            Err(error) if has_slow_answers(&error) => {
                is_tried_again(&mut deadline, &error.to_string()).await;
            }
            outcome => return outcome.expect("the lock"),
        }
    }
}

/// Whether the last answers were too slow for the lease: they are forgotten after a second.
fn has_slow_answers(error: &LockError) -> bool {
    matches!(error, LockError::BadRequest { field: "lease", limit }
        if limit.contains("two round trips"))
}

/// From the first failure on, for no longer than a server may stand still.
async fn is_tried_again(deadline: &mut Option<Instant>, why: &str) {
    let now = Instant::now();
    assert!(now < *deadline.get_or_insert(now + PATIENCE), "{why}");
    tokio::time::sleep(Duration::from_millis(5)).await;
}

/// What another owner is told of a lock that is held.
pub(crate) async fn assert_busy(locks: &Locks, name: &LockName, options: &LockOptions, what: &str) {
    let busy = answered(async || match locks.lock(name, options).await {
        Err(LockError::TimedOut { .. }) => Ok(true),
        outcome => outcome.map(|_| false),
    });
    assert!(busy.await, "{what}: two hold {name}");
}

/// A release that was answered has released; the other is carried out later.
pub(crate) fn assert_released(outcome: Result<Release, LockError>, what: &str) {
    match outcome {
        Ok(outcome) => assert_eq!(outcome, Release::Released, "{what}"),
        Err(LockError::Backend(_)) => {}
        Err(other) => panic!("{what}: {other}"),
    }
}

/// Measures once, and if that was not as it has to be, three more times, which all have to be. A
/// server or this process may stand still for a moment; a defect comes again.
pub(crate) async fn but_for_one_standstill(mut measured: impl AsyncFnMut() -> Result<(), String>) {
    let Err(first) = measured().await else { return };
    println!("measured again: {first}");
    for again in 1..=3 {
        if let Err(why) = measured().await {
            panic!("{first}; repetition {again}: {why}");
        }
    }
}

/// Waits until the condition holds; panics with `what` after 10 s.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds().await {
        assert!(Instant::now() < deadline, "not within 10 s: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
