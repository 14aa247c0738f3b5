//! `lua-release` when its server, or the way to it, fails. Each test has a Redis of its own.

use std::time::{Duration, Instant};

use crate::support::proxy::{Accident, Proxy};
use crate::support::ran::ran;
use crate::support::{
    ANSWER, LONG, Look, answered, at_once, connect_hasty, eventually, fresh_name, locks_at,
    locks_of, options,
};
use distlock::{LockError, LockKind, LockName, LockOptions, Locks, Release};
use testbed::{Bed, Redis, RedisOptions};

/// An attempt and its repetition on a new connection, with room for a busy machine.
const PROMPT_WITHIN: Duration = Duration::from_secs(2);

/// A Redis of one's own. The bed goes last.
struct OwnServer {
    redis: Redis,
    _bed: Bed,
}

impl OwnServer {
    fn start() -> Self {
        tokio::task::block_in_place(|| {
            let bed = Bed::start().expect("a private bed");
            let redis = bed.redis(RedisOptions::default()).expect("Redis is installed");
            Self { redis, _bed: bed }
        })
    }

    fn act(&self, act: impl FnOnce(&Redis) -> testbed::Result<()>) {
        tokio::task::block_in_place(|| act(&self.redis)).expect("the testbed can do that");
    }
}

async fn failure(locks: &Locks, name: &LockName, options: &LockOptions) -> LockError {
    let started = ran();
    let error = locks.lock(name, options).await.expect_err("it must fail");
    let took = ran().saturating_sub(started);
    assert!(took < PROMPT_WITHIN, "{error} after {took:?}");
    error
}

fn assert_backend(error: &LockError) {
    assert!(matches!(error, LockError::Backend(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_is_an_error_at_once_and_has_lost_its_locks_afterwards() {
    let (own, name) = (OwnServer::start(), fresh_name());
    let locks = locks_at(own.redis.url()).await;
    let before = locks.lock(&name, &at_once()).await.expect("the lock");
    own.act(|redis| redis.kill());
    for _ in 0..3 {
        assert_backend(&failure(&locks, &fresh_name(), &at_once()).await);
    }
    assert!(before.release().await.is_err(), "nobody can say whether it was released");
    own.act(|redis| redis.restart());
    // The same locks, without being made anew.
    eventually("the connection is back", async || {
        locks.lock(&fresh_name(), &at_once()).await.is_ok()
    })
    .await;
    let guard = locks.lock(&name, &at_once()).await.expect("nothing is left of the first hold");
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_at_an_emptied_server_reports_that_the_lock_was_not_held() {
    let (own, name) = (OwnServer::start(), fresh_name());
    let locks = locks_at(own.redis.url()).await;
    let guard = locks.lock(&name, &at_once()).await.expect("the lock");
    own.act(|redis| redis.restart());
    eventually("the connection is back", async || {
        locks.lock(&fresh_name(), &at_once()).await.is_ok()
    })
    .await;
    assert_eq!(guard.release().await.expect("a release"), Release::Gone);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_granted_by_a_server_that_woke_up_too_late_is_given_back() {
    // Whether the server wakes up during the cleanup, or after the cleanup was given up as well;
    // and whether it knows the script.
    for (late, seen) in [(false, true), (true, true), (false, false), (true, false)] {
        let (own, name) = (OwnServer::start(), fresh_name());
        let hasty = connect_hasty(own.redis.url()).await;
        let (locks, other) =
            (locks_of(LockKind::LuaRelease, hasty), locks_at(own.redis.url()).await);
        let look = Look::at(own.redis.url()).await;
        if seen {
            answered(async || locks.lock(&fresh_name(), &at_once()).await?.release().await).await;
        }
        own.act(|redis| redis.freeze());
        let started = Instant::now();
        assert_backend(&failure(&locks, &name, &options(Duration::ZERO, LONG)).await);
        assert!(started.elapsed() >= ANSWER, "it did not wait: {:?}", started.elapsed());
        if late {
            locks.flush().await;
        }
        own.act(|redis| redis.thaw());
        let thawed = Instant::now();
        locks.flush().await;
        let what = format!("late: {late}, script seen: {seen}");
        eventually(&what, async || look.owner(&name).await.is_none()).await;
        let guard = other.lock(&name, &at_once()).await.expect("the lock is free");
        println!("{what}: free after {:?}", thawed.elapsed());
        guard.release().await.expect("a release");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_answer_was_cut_off_is_given_back() {
    let (own, name) = (OwnServer::start(), fresh_name());
    let look = Look::at(own.redis.url()).await;
    let proxy = Proxy::before(&own.redis).await;
    let (locks, other) = (locks_at(proxy.url()).await, locks_at(own.redis.url()).await);
    for _ in 0..5 {
        proxy.plan("SET", Accident::AnswerLost);
        assert_backend(&failure(&locks, &name, &at_once()).await);
        proxy.happened().await;
        locks.flush().await;
        assert_eq!(look.owner(&name).await, None, "it is still held by nobody");
        let guard = other.lock(&name, &at_once()).await.expect("the lock is free");
        guard.release().await.expect("a release");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_request_is_refused_before_any_server_is_asked() {
    let own = OwnServer::start();
    let locks = locks_at(own.redis.url()).await;
    // The server is gone.
    own.act(|redis| redis.kill());
    assert_backend(&failure(&locks, &fresh_name(), &at_once()).await);
    let (day, ms) = (Duration::from_hours(24), Duration::from_millis(1));
    for (wait, lease, field) in [
        (Duration::ZERO, Duration::ZERO, "lease"),
        (Duration::ZERO, ms * 9, "lease"),
        (Duration::ZERO, day + ms, "lease"),
        (day + ms, LONG, "wait"),
        (Duration::MAX, Duration::MAX, "lease"),
    ] {
        match failure(&locks, &fresh_name(), &options(wait, lease)).await {
            LockError::BadRequest { field: named, .. } => assert_eq!(named, field),
            other => panic!("{wait:?} {lease:?}: {other}"),
        }
    }
    // A name is checked when it is made, without any locks.
    for bad in [String::new(), "a\r\nDEL b".into(), "\0".into(), "x".repeat(513)] {
        let refused = LockName::new(bad.as_str()).expect_err(&bad);
        assert!(matches!(refused, LockError::BadRequest { field: "lock name", .. }), "{refused}");
    }
}

/// Takes and releases a lock.
async fn turn(locks: &Locks) {
    let guard = locks.lock(&fresh_name(), &at_once()).await.expect("the lock");
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
}

/// How often the server ran a command, or answered with an error of that name.
fn count(own: &OwnServer, section: &str, line: &str) -> u64 {
    let text = tokio::task::block_in_place(|| own.redis.command(&["INFO", section]));
    let text = text.expect("an answer");
    let figures = text.lines().find_map(|it| it.strip_prefix(line));
    let number = figures.and_then(|it| it.split(['=', ',']).nth(1));
    number.map_or(0, |number| number.trim().parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_compares_and_deletes_by_itself_runs_no_script_and_others_are_asked_once() {
    let own = OwnServer::start();
    let locks = locks_at(own.redis.url()).await;
    let known = tokio::task::block_in_place(|| own.redis.command(&["COMMAND", "INFO", "delifeq"]));
    let is_known = known.expect("an answer").contains("delifeq");
    let before = count(&own, "errorstats", "errorstat_ERR:");
    for _ in 0..5 {
        turn(&locks).await;
    }
    let by_command = count(&own, "commandstats", "cmdstat_delifeq:");
    let by_script = count(&own, "commandstats", "cmdstat_evalsha:");
    let unknown = count(&own, "errorstats", "errorstat_ERR:") - before;
    let expected = if is_known { (5, 0, 0) } else { (0, 5, 1) };
    assert_eq!((by_command, by_script, unknown), expected);
    // Another server, or fewer rights: the next release is a script, and the command is not asked
    // for again.
    let rule = ["ACL", "SETUSER", "default", "-delifeq"];
    let is_taken = tokio::task::block_in_place(|| own.redis.command(&rule)).is_ok();
    assert_eq!(is_taken, is_known, "a server knows no rule about an unknown command");
    for _ in 0..3 {
        turn(&locks).await;
    }
    assert_eq!(count(&own, "commandstats", "cmdstat_evalsha:"), by_script + 3);
    assert_eq!(count(&own, "errorstats", "errorstat_NOPERM:"), u64::from(is_known));
}
