//! The scripts of the semaphores and the latch, called directly: what is sent again counts once,
//! and arguments that are missing or wrong change nothing.

use crate::support::fresh_name;
use crate::support::synchronizers::Client;
use distlock::LockName;
use redis::{RedisResult, Value};

const SET: &str = include_str!("../../lua/synchronizer_set.lua");
const DELETE: &str = include_str!("../../lua/synchronizer_delete.lua");
const NUMBER: &str = include_str!("../../lua/synchronizer_number.lua");
const TAKE: &str = include_str!("../../lua/semaphore_acquire.lua");
const GIVE: &str = include_str!("../../lua/semaphore_release.lua");
const ACQUIRE: &str = include_str!("../../lua/expirable_acquire.lua");
const RELEASE: &str = include_str!("../../lua/expirable_release.lua");
const RENEW: &str = include_str!("../../lua/expirable_renew.lua");
const AVAILABLE: &str = include_str!("../../lua/expirable_available.lua");
const COUNT_DOWN: &str = include_str!("../../lua/latch_count_down.lua");

/// What an argument is.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// It must not be empty.
    Text,
    /// Empty has a meaning.
    Free,
    /// A whole number.
    Count,
    /// One of at least 1.
    Length,
    /// The command that sends a message.
    Publish,
}
use Kind::{Count, Free, Length, Publish, Text};

const COMMAND: (&str, Kind) = ("PUBLISH", Publish);

/// A synchronizer and the callers of its scripts.
struct ScriptCaller {
    client: Client,
    name: LockName,
}

impl ScriptCaller {
    async fn new() -> Self {
        Self { client: Client::here().await, name: fresh_name() }
    }

    fn key(&self, what: &str) -> String {
        format!("{what}:{{{}}}", self.name)
    }

    async fn call<T: redis::FromRedisValue>(
        &self,
        script: &str,
        keys: &[&str],
        args: &[&str],
    ) -> RedisResult<T> {
        let keys: Vec<String> = keys
            .iter()
            .map(|key| if *key == "name" { self.name.to_string() } else { self.key(key) })
            .collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        self.client.call(script, &keys, args).await
    }

    async fn number(&self, script: &str, keys: &[&str], args: &[&str]) -> i64 {
        self.call(script, keys, args).await.expect("an answer")
    }

    /// Each of the arguments missing, then wrong; each of the keys missing, and one too many.
    async fn refuses(&self, script: &str, keys: &[&str], args: &[(&str, Kind)]) {
        let sound: Vec<&str> = args.iter().map(|(text, _)| *text).collect();
        let before = self.client.state(&self.name).await;
        let refused = async |keys: &[&str], args: &[&str]| {
            let answer: RedisResult<Value> = self.call(script, keys, args).await;
            let error = answer.expect_err(&format!("{keys:?} {args:?}"));
            assert_eq!(error.code(), Some("ERR"), "{keys:?} {args:?}: {error}");
            let after = self.client.state(&self.name).await;
            assert_eq!(after, before, "{keys:?} {args:?}");
        };
        for missing in 0..args.len() {
            let mut fewer = sound.clone();
            fewer.remove(missing);
            refused(keys, &fewer).await;
        }
        refused(keys, &[sound.as_slice(), &["1"]].concat()).await;
        refused(&keys[1..], &sound).await;
        refused(&[keys, &["one", "more"]].concat(), &sound).await;
        for (at, (_, kind)) in args.iter().enumerate() {
            let number = ["", "x", "-1", "1.5", "nan", "inf", "-inf", "1e300", "0"];
            let wrong = match kind {
                Free => &[][..],
                Text => &[""][..],
                Count => &number[..8],
                Length => &number[..],
                Publish => &["", "publish", "DEL"],
            };
            for text in wrong {
                let mut args = sound.clone();
                args[at] = text;
                refused(keys, &args).await;
            }
        }
    }
}

#[tokio::test]
async fn a_script_with_an_argument_missing_or_wrong_changes_nothing() {
    let made = ScriptCaller::new().await;
    made.refuses(
        SET,
        &["name", "channel"],
        &[("0", Text), ("limit", Text), ("3", Count), ("a", Text), COMMAND],
    )
    .await;
    let set = made.number(SET, &["name", "channel"], &["0", "permits", "5", "a", "PUBLISH"]).await;
    assert_eq!(set, 1);
    made.refuses(DELETE, &["name", "channel"], &[("1", Text), ("permits", Text), COMMAND]).await;
    made.refuses(NUMBER, &["name"], &[("permits", Text)]).await;
    made.refuses(TAKE, &["name", "latch"], &[("2", Count), ("60000", Length)]).await;
    let taken: (i64, String) =
        made.call(TAKE, &["name", "latch"], &["2", "60000"]).await.expect("an answer");
    assert_eq!(taken, (2, "a".to_owned()));
    let give = [("0", Text), ("2", Count), ("a", Free), ("60000", Length), COMMAND];
    made.refuses(GIVE, &["name", "latch", "channel"], &give).await;

    let made = ScriptCaller::new().await;
    made.number(SET, &["name", "channel"], &["0", "limit", "5", "a", "PUBLISH"]).await;
    let acquire = [("id", Text), ("60000", Length)];
    made.refuses(ACQUIRE, &["name", "permits", "latch"], &acquire).await;
    let taken: Option<i64> = made
        .call(ACQUIRE, &["name", "permits", "latch"], &["id", "60000"])
        .await
        .expect("an answer");
    assert_eq!(taken, None);
    let release = [("0", Text), ("id", Text), ("60000", Length), COMMAND];
    made.refuses(RELEASE, &["permits", "latch", "channel"], &release).await;
    made.refuses(RENEW, &["permits"], &[("id", Text), ("90000", Length)]).await;
    let nothing: RedisResult<Value> = made.call(RENEW, &[], &[]).await;
    assert_eq!(nothing.expect_err("no permits").code(), Some("ERR"));
    made.refuses(AVAILABLE, &["name", "permits"], &[]).await;
    assert_eq!(made.number(AVAILABLE, &["name", "permits"], &[]).await, 4);

    let made = ScriptCaller::new().await;
    made.number(SET, &["name", "channel"], &["0", "count", "2", "a", "PUBLISH"]).await;
    let count = [("1", Text), ("id", Text), ("60000", Length), COMMAND];
    made.refuses(COUNT_DOWN, &["name", "past", "channel"], &count).await;
}

#[tokio::test]
async fn permits_are_taken_once_and_given_back_once_however_often_that_is_sent() {
    let made = ScriptCaller::new().await;
    for _ in 0..3 {
        assert_eq!(
            made.number(SET, &["name", "channel"], &["0", "permits", "5", "a", "PUBLISH"]).await,
            1
        );
        assert_eq!(
            made.number(SET, &["name", "channel"], &["0", "permits", "7", "b", "PUBLISH"]).await,
            0
        );
    }
    let take = async |latch: &str, count: &str| -> RedisResult<(i64, String)> {
        made.call(TAKE, &["name", latch], &[count, "60000"]).await
    };
    let give = async |latch: &str, count: &str| {
        made.number(GIVE, &["name", latch, "channel"], &["0", count, "", "60000", "PUBLISH"]).await
    };
    let free =
        async || -> u32 { made.client.command(&["HGET", made.name.as_str(), "permits"]).await };
    for _ in 0..3 {
        assert_eq!(take("first", "2").await, Ok((2, "a".into())));
        assert_eq!(free().await, 3);
    }
    for _ in 0..3 {
        assert_eq!(give("first", "2").await, 1);
        assert_eq!(free().await, 5);
    }
    // What comes late, after it was given back, takes nothing.
    assert_eq!(take("first", "2").await.expect_err("it is over").code(), Some("GIVENUP"));
    // Undone as often as one likes, whether it was carried out or not.
    assert_eq!(take("second", "4").await, Ok((4, "a".into())));
    for _ in 0..3 {
        assert_eq!(give("second", "0").await, 1);
        assert_eq!(give("third", "0").await, 0);
        assert_eq!(free().await, 5);
    }
    assert_eq!(take("third", "1").await.expect_err("it was given up").code(), Some("GIVENUP"));
    // All there are, and no more than can be counted.
    assert_eq!(take("fourth", "0").await, Ok((5, "a".into())));
    assert_eq!(take("fifth", "0").await, Ok((0, "a".into())));
    assert_eq!(take("sixth", "1").await, Ok((-1, String::new())));
    let most = ["0", "2147483647", "", "60000", "PUBLISH"];
    assert_eq!(made.number(GIVE, &["name", "seventh", "channel"], &most).await, 1);
    let refused: RedisResult<i64> = made.call(GIVE, &["name", "eighth", "channel"], &most).await;
    assert_eq!(refused.expect_err("too many").code(), Some("TOOMANY"));
    assert_eq!(free().await, 2_147_483_647);
}

#[tokio::test]
async fn a_permit_is_taken_once_and_given_back_once_and_never_after_it_was_given_up() {
    let made = ScriptCaller::new().await;
    made.number(SET, &["name", "channel"], &["0", "limit", "2", "a", "PUBLISH"]).await;
    let acquire = async |id: &str, lease: &str| -> RedisResult<Option<i64>> {
        let latch = format!("latch:{id}");
        made.call(ACQUIRE, &["name", "permits", &latch], &[id, lease]).await
    };
    let release = async |id: &str, latch: &str| {
        made.number(RELEASE, &["permits", latch, "channel"], &["0", id, "60000", "PUBLISH"]).await
    };
    for _ in 0..3 {
        assert_eq!(acquire("first", "60000").await, Ok(None));
        assert_eq!(made.number(AVAILABLE, &["name", "permits"], &[]).await, 1);
    }
    for _ in 0..3 {
        assert_eq!(acquire("second", "30000").await, Ok(None), "also when none is left");
    }
    let left = acquire("third", "60000").await.expect("an answer").expect("none is left");
    assert!(left > 20_000 && left <= 30_000, "the next one to end: {left}");
    for _ in 0..3 {
        assert_eq!(release("first", "release:1").await, 1, "the first answer");
        assert_eq!(release("first", "release:2").await, 0, "another request");
    }
    assert_eq!(release("third", "latch:third").await, 0);
    assert_eq!(acquire("third", "60000").await.expect_err("given up").code(), Some("GIVENUP"));
    assert_eq!(made.number(AVAILABLE, &["name", "permits"], &[]).await, 1);

    // Renewed, and never shortened; what is not out is not renewed.
    let renewed: Vec<i64> = made
        .call(RENEW, &["permits", "permits", "other"], &["second", "90000", "x", "1", "y", "1"])
        .await
        .expect("an answer");
    assert_eq!(renewed, [1, 0, 0]);
    let shorter: Vec<i64> =
        made.call(RENEW, &["permits"], &["second", "1000"]).await.expect("an answer");
    assert_eq!(shorter, [1]);
    let key = made.key("permits");
    let left: i64 = made.client.command(&["PTTL", &key]).await;
    assert!(left > 60_000 && left <= 90_000, "the set ends with its last lease: {left}");
}

#[tokio::test]
async fn an_id_counts_once_also_after_the_latch_was_opened_and_set_anew() {
    let made = ScriptCaller::new().await;
    let set = async |count: &str, id: &str| {
        made.number(SET, &["name", "channel", "past"], &["0", "count", count, id, "PUBLISH"]).await
    };
    let down = async |id: &str| {
        made.number(COUNT_DOWN, &["name", "past", "channel"], &["1", id, "60000", "PUBLISH"]).await
    };
    assert_eq!(down("early").await, 0, "what is not there is open");
    assert_eq!(set("3", "a").await, 1);
    for _ in 0..3 {
        assert_eq!(down("first").await, 2);
        assert_eq!(down("second").await, 1);
    }
    assert_eq!(down("third").await, 0);
    let opened: bool = made.client.command(&["EXISTS", made.name.as_str()]).await;
    assert!(!opened, "an open latch is not there");
    assert_eq!(set("3", "a").await, 1, "the answer that was lost");
    let remade: bool = made.client.command(&["EXISTS", made.name.as_str()]).await;
    assert!(!remade, "and nothing else");
    assert_eq!(set("2", "b").await, 1);
    for id in ["first", "second", "third"] {
        let first_answers = [("first", 2), ("second", 1), ("third", 0)];
        let first = first_answers.iter().find(|(known, _)| *known == id).map(|(_, left)| *left);
        assert_eq!(Some(down(id).await), first, "it counted for the one before");
    }
    assert_eq!(down("fourth").await, 1);
    let past: i64 = made.client.command(&["PTTL", &made.key("past")]).await;
    assert!(past > 0, "who counted is not remembered for ever");
}
