//! The scripts of `redisson`, called directly: what is sent again counts once, and arguments that
//! are missing or wrong change nothing.

use crate::support::redisson::RawRedis;
use crate::support::{fresh_name, server};
use distlock::LockName;
use redis::{RedisResult, Script};

const OWNER: &str = "285475da-9152-4c83-822a-67ee2f116a79:52";
const OTHER: &str = "285475da-9152-4c83-822a-67ee2f116a79:53";
/// An owner that may hold the lock already, and a new one.
const KNOWN: &str = "1";
const FRESH: &str = "0";

/// A lock and the callers of its scripts.
struct ScriptCaller {
    raw: RawRedis,
    name: LockName,
}

impl ScriptCaller {
    async fn new() -> Self {
        Self { raw: RawRedis::at(server().url()).await, name: fresh_name() }
    }

    fn latch(&self, id: &str) -> String {
        format!("latch:{{{}}}:{id}", self.name)
    }

    fn channel(&self) -> String {
        format!("channel:{{{}}}", self.name)
    }

    async fn call<T: redis::FromRedisValue>(
        &self,
        script: &str,
        keys: &[&str],
        args: &[&str],
    ) -> RedisResult<T> {
        let script = Script::new(script);
        let mut call = script.prepare_invoke();
        call.key(keys).arg(args);
        call.invoke_async(&mut self.raw.0.clone()).await
    }

    async fn acquire(&self, owner: &str, known: &str, id: &str) -> RedisResult<Option<i64>> {
        let keys = [self.name.as_str(), &self.latch(id)];
        self.call(ACQUIRE, &keys, &["60000", owner, known, "60000"]).await
    }

    async fn release(&self, owner: &str, id: &str) -> i64 {
        let keys = [self.name.as_str(), &self.channel(), &self.latch(&format!("release:{id}"))];
        let answer = self.call(RELEASE, &keys, &["0", "60000", owner, "60000", "PUBLISH"]).await;
        answer.expect("an answer")
    }

    async fn abandon(&self, owner: &str, known: &str, id: &str) -> i64 {
        let keys = [self.name.as_str(), &self.channel(), &self.latch(id)];
        let answer = self.call(ABANDON, &keys, &["0", owner, known, "60000", "PUBLISH"]).await;
        answer.expect("an answer")
    }

    async fn count(&self) -> u64 {
        self.raw.holds(&self.name).await.get(OWNER).copied().unwrap_or(0)
    }

    /// All that the server knows of this lock.
    async fn state(&self) -> Vec<(String, Option<String>)> {
        let mut state = Vec::new();
        for key in self.raw.keys(&self.name).await {
            let dump: Option<redis::Value> = self.raw.command(&["DUMP", &key]).await;
            state.push((key, dump.map(|value| format!("{value:?}"))));
        }
        state.sort();
        state
    }
}

const ACQUIRE: &str = include_str!("../../lua/redisson_acquire.lua");
const RELEASE: &str = include_str!("../../lua/redisson_release.lua");
const ABANDON: &str = include_str!("../../lua/redisson_abandon.lua");
const FORCE_UNLOCK: &str = include_str!("../../lua/redisson_force_unlock.lua");
const RENEW: &str = include_str!("../../lua/renew.lua");

#[tokio::test]
async fn an_acquisition_that_is_sent_again_counts_once() {
    let lock = ScriptCaller::new().await;
    for _ in 0..3 {
        assert_eq!(lock.acquire(OWNER, FRESH, "first").await, Ok(None));
        assert_eq!(lock.count().await, 1);
    }
    for _ in 0..3 {
        assert_eq!(lock.acquire(OWNER, KNOWN, "second").await, Ok(None));
        assert_eq!(lock.count().await, 2);
    }
    assert_eq!(lock.acquire(OWNER, KNOWN, "third").await, Ok(None));
    assert_eq!(lock.count().await, 3);
    let left = lock.acquire(OTHER, FRESH, "other").await.expect("an answer").expect("busy");
    assert!(left > 30_000 && left <= 60_000, "{left}");
}

#[tokio::test]
async fn an_owner_that_re_enters_without_a_hold_takes_nothing() {
    let lock = ScriptCaller::new().await;
    lock.acquire(OWNER, FRESH, "first").await.expect("the lock");
    lock.acquire(OWNER, KNOWN, "second").await.expect("the lock");
    // Lost: then the latch of an entry that was counted is of no use any more.
    lock.raw.command::<()>(&["DEL", lock.name.as_str()]).await;
    for held_by_other in [false, true] {
        if held_by_other {
            lock.acquire(OTHER, FRESH, "other").await.expect("the lock");
        }
        let before = lock.state().await;
        for id in ["second", "third"] {
            let error = lock.acquire(OWNER, KNOWN, id).await.expect_err("its hold is gone");
            assert_eq!(error.code(), Some("LOST"), "{error}");
        }
        assert_eq!(lock.state().await, before);
    }
}

#[tokio::test]
async fn a_release_that_is_sent_again_gets_the_first_answer_and_counts_once() {
    let lock = ScriptCaller::new().await;
    lock.acquire(OWNER, FRESH, "first").await.expect("the lock");
    lock.acquire(OWNER, KNOWN, "second").await.expect("the lock");
    for _ in 0..3 {
        assert_eq!(lock.release(OWNER, "second").await, 0);
        assert_eq!(lock.count().await, 1);
    }
    assert_eq!(lock.release(OTHER, "other").await, -2);
    for _ in 0..3 {
        assert_eq!(lock.release(OWNER, "first").await, 1);
        assert_eq!(lock.count().await, 0);
    }
    // Also when another owner has it by then.
    lock.acquire(OTHER, FRESH, "third").await.expect("the lock");
    assert_eq!(lock.release(OWNER, "first").await, 1);
    assert_eq!(lock.release(OWNER, "fourth").await, -2);
    assert_eq!(lock.release(OTHER, "third").await, 1);
    assert_eq!(lock.release(OTHER, "fifth").await, -1);
}

#[tokio::test]
async fn an_abandoned_attempt_is_undone_once_and_takes_nothing_later() {
    let lock = ScriptCaller::new().await;
    // Carried out before, or on its way still.
    for carried_out in [true, false] {
        if carried_out {
            lock.acquire(OWNER, FRESH, "first").await.expect("the lock");
        }
        for round in 0..2 {
            let undone = lock.abandon(OWNER, FRESH, "first").await;
            assert_eq!(undone, i64::from(carried_out && round == 0));
            let refused = lock.acquire(OWNER, FRESH, "first").await.expect_err("it was given up");
            assert_eq!(refused.code(), Some("GIVENUP"), "{refused}");
            assert_eq!(lock.count().await, 0);
        }
        lock.raw.command::<()>(&["DEL", &lock.latch("first")]).await;
    }
    lock.acquire(OWNER, FRESH, "outer").await.expect("the lock");
    for carried_out in [true, false] {
        if carried_out {
            lock.acquire(OWNER, KNOWN, "inner").await.expect("the lock");
            assert_eq!(lock.count().await, 2);
        }
        for round in 0..2 {
            let undone = lock.abandon(OWNER, KNOWN, "inner").await;
            assert_eq!(undone, i64::from(carried_out && round == 0));
            lock.acquire(OWNER, KNOWN, "inner").await.expect_err("it was given up");
            assert_eq!(lock.count().await, 1, "the outer hold stays");
        }
        lock.raw.command::<()>(&["DEL", &lock.latch("inner")]).await;
    }
    assert_eq!(lock.abandon(OTHER, FRESH, "other").await, 0, "it is not theirs");
    assert_eq!(lock.count().await, 1);
}

#[tokio::test]
async fn renewal_answers_for_each_lock_and_never_shortens_a_lease() {
    let (mine, gone, others, string) = (
        ScriptCaller::new().await,
        ScriptCaller::new().await,
        ScriptCaller::new().await,
        ScriptCaller::new().await,
    );
    mine.acquire(OWNER, FRESH, "first").await.expect("the lock");
    others.acquire(OTHER, FRESH, "first").await.expect("the lock");
    string.raw.command::<()>(&["SET", string.name.as_str(), "another kind"]).await;
    let locks = [&string, &mine, &gone, &others, &mine];
    let keys: Vec<_> = locks.iter().map(|lock| lock.name.as_str()).collect();
    let args = |lease| keys.iter().flat_map(|_| [OWNER, lease]).collect::<Vec<_>>();
    for (lease, least, most) in [("90000", 60_001, 90_000), ("1000", 60_001, 90_000)] {
        let answers: Vec<i64> = mine.call(RENEW, &keys, &args(lease)).await.expect("an answer");
        assert_eq!(answers, [0, 1, 0, 0, 1]);
        let left = mine.raw.lease(&mine.name).await.expect("a lease").as_millis();
        assert!(left >= least && left <= most, "{left}");
    }
    let left = others.raw.lease(&others.name).await.expect("a lease").as_millis();
    assert!(left <= 60_000, "somebody else's lease was renewed");
    mine.raw.command::<()>(&["PERSIST", mine.name.as_str()]).await;
    mine.call::<Vec<i64>>(RENEW, &keys, &args("1000")).await.expect("an answer");
    assert!(mine.raw.lease(&mine.name).await.is_some(), "it has an end again");
}

/// What a script may be given in place of a sound argument: none of it is a number, a flag or
/// a command that publishes.
const WRONG: [&str; 8] = ["", "-1", "0.5", "nan", "inf", "1e300", "much", "\0"];

/// A script, its keys, its arguments, and those of them that any text will do for.
type Call<'a> = (&'a str, &'a Vec<&'a str>, &'a [&'a str], &'a [usize]);

#[tokio::test]
async fn arguments_that_are_missing_or_wrong_change_nothing() {
    let lock = ScriptCaller::new().await;
    lock.acquire(OWNER, FRESH, "first").await.expect("the lock");
    let (name, channel, latch) = (lock.name.as_str(), lock.channel(), lock.latch("second"));
    let (two, three) = (vec![name, &latch], vec![name, &channel, &latch]);
    // Each script with sound arguments, and those of them that any text will do for.
    let scripts: [Call; 5] = [
        (ACQUIRE, &two, &["90000", OWNER, KNOWN, "60000"], &[1]),
        (RELEASE, &three, &["0", "90000", OWNER, "60000", "PUBLISH"], &[0, 2]),
        (ABANDON, &three, &["0", OWNER, FRESH, "60000", "PUBLISH"], &[0, 1]),
        (FORCE_UNLOCK, &vec![name, &channel], &["0", "PUBLISH", OWNER], &[0, 2]),
        (RENEW, &vec![name], &[OWNER, "90000"], &[0]),
    ];
    let before = lock.state().await;
    for (script, keys, args, texts) in scripts {
        for missing in 0..=args.len() {
            let (keys, args) = match missing.checked_sub(1) {
                None => (&keys[1..], args),
                Some(left) => (&keys[..], &args[..left]),
            };
            refused(&lock, script, keys, args).await;
        }
        refused(&lock, script, &[keys, &["more"][..]].concat(), args).await;
        refused(&lock, script, keys, &[args, &["more"]].concat()).await;
        for place in 0..args.len() {
            for wrong in WRONG {
                if wrong.is_empty() || !texts.contains(&place) {
                    let mut args = args.to_vec();
                    args[place] = wrong;
                    refused(&lock, script, keys, &args).await;
                }
            }
        }
        assert_eq!(lock.state().await, before, "{script}");
    }
}

async fn refused(lock: &ScriptCaller, script: &str, keys: &[&str], args: &[&str]) {
    let answer: RedisResult<redis::Value> = lock.call(script, keys, args).await;
    let error = answer.expect_err(&format!("{keys:?} {args:?} of {script}"));
    assert!(error.to_string().contains("arguments"), "{error} for {keys:?} {args:?}");
}

#[tokio::test]
async fn a_key_of_another_type_changes_nothing() {
    let lock = ScriptCaller::new().await;
    lock.raw.command::<()>(&["SET", lock.name.as_str(), "another kind"]).await;
    let (name, channel, latch) = (lock.name.as_str(), lock.channel(), lock.latch("first"));
    let before = lock.state().await;
    for (script, keys, args) in [
        (ACQUIRE, vec![name, &latch], vec!["60000", OWNER, FRESH, "60000"]),
        (RELEASE, vec![name, &channel, &latch], vec!["0", "60000", OWNER, "60000", "PUBLISH"]),
        (ABANDON, vec![name, &channel, &latch], vec!["0", OWNER, FRESH, "60000", "PUBLISH"]),
        (FORCE_UNLOCK, vec![name, &channel], vec!["0", "PUBLISH", OWNER]),
    ] {
        let answer: RedisResult<redis::Value> = lock.call(script, &keys, &args).await;
        assert_eq!(answer.expect_err(script).code(), Some("WRONGTYPE"), "{script}");
        assert_eq!(lock.state().await, before, "{script}");
    }
}
