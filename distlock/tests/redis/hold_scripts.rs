//! The scripts of `fair` and `read-write`, called by hand. They answer a repeated call, and change
//! nothing when a key or an argument is missing or wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::{Look, server};
use distlock::RedisConnection;
use redis::{AsyncCommands, FromRedisValue, RedisResult, Value};
use uuid::Uuid;

/// What an argument means: a value that is right, and values that are wrong.
#[derive(Clone, Copy)]
enum Arg {
    Owner,
    Request,
    Ms(&'static str),
    Channel,
    Hold,
    Publish,
}

impl Arg {
    fn right(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Request => "request",
            Self::Ms(ms) => ms,
            Self::Channel => "channel:",
            Self::Hold => "request:owner",
            Self::Publish => "PUBLISH",
        }
    }

    fn wrong(self) -> &'static [&'static str] {
        match self {
            Self::Owner | Self::Channel | Self::Hold => &[""],
            Self::Request => &["", ":", "a:b"],
            Self::Publish => &["", "publish", "DEL"],
            Self::Ms(_) => &["", "x", "-1", "1.5", "1e300", "nan", "inf", "1 ms"],
        }
    }
}

struct Spec {
    name: &'static str,
    text: &'static str,
    keys: usize,
    args: &'static [Arg],
}

macro_rules! spec {
    ($name:literal, $keys:literal, [$($arg:expr),+]) => {
        Spec {
            name: $name,
            text: include_str!(concat!("../../lua/", $name, ".lua")),
            keys: $keys,
            args: const { &[$($arg),+] },
        }
    };
}

use Arg::{Channel, Hold, Ms, Owner, Publish, Request};

const FAIR_ACQUIRE: Spec =
    spec!("fair_acquire", 4, [Owner, Request, Ms("60000"), Ms("1500"), Channel, Publish]);
const FAIR_RELEASE: Spec =
    spec!("fair_release", 4, [Owner, Request, Ms("10000"), Channel, Publish]);
const READ: Spec = spec!("rw_read", 6, [Owner, Request, Ms("60000"), Ms("1500")]);
const WRITE: Spec = spec!("rw_write", 6, [Owner, Request, Ms("60000"), Ms("1500")]);
const RW_RELEASE: Spec =
    spec!("rw_release", 6, [Owner, Request, Ms("10000"), Channel, Channel, Publish]);
const RENEW: Spec = spec!("renew_holds", 1, [Hold, Ms("60000")]);

/// Each with the script that fills its keys.
const SCRIPTS: [(&Spec, &Spec); 6] = [
    (&FAIR_ACQUIRE, &FAIR_ACQUIRE),
    (&FAIR_RELEASE, &FAIR_ACQUIRE),
    (&READ, &WRITE),
    (&WRITE, &READ),
    (&RW_RELEASE, &WRITE),
    (&RENEW, &FAIR_ACQUIRE),
];

/// Each with the script by which another owner is kept out, and the one that frees it.
const KINDS: [(&Spec, &Spec, &Spec); 3] = [
    (&FAIR_ACQUIRE, &FAIR_ACQUIRE, &FAIR_RELEASE),
    (&READ, &WRITE, &RW_RELEASE),
    (&WRITE, &WRITE, &RW_RELEASE),
];

/// Keys that no other call has, and a connection.
struct Scene {
    connection: RedisConnection,
    keys: Vec<String>,
}

impl Scene {
    async fn new() -> Self {
        let tag = Uuid::new_v4();
        let keys = (0..7).map(|key| format!("{key}:{{{tag}}}")).collect();
        Self { connection: Look::at(server().url()).await.connection(), keys }
    }

    async fn call<T: FromRedisValue>(
        &self,
        spec: &Spec,
        keys: &[String],
        args: &[&str],
    ) -> RedisResult<T> {
        redis::cmd("EVAL")
            .arg(spec.text)
            .arg(keys.len())
            .arg(keys)
            .arg(args)
            .query_async(&mut self.connection.clone())
            .await
    }

    /// The script's answer for that owner and request, with a latch of the request's own.
    async fn run(&self, spec: &Spec, owner: &str, request: &str) -> i64 {
        let mut keys = self.keys[..spec.keys].to_vec();
        if let Some(latch) = keys.last_mut() {
            latch.push_str(request);
        }
        let rest = spec.args[2..].iter().map(|arg| arg.right());
        let args: Vec<_> = [owner, request].into_iter().chain(rest).collect();
        self.call(spec, &keys, &args).await.expect(spec.name)
    }

    /// Makes the keys of two waiting and one holding request of another owner.
    async fn fill(&self, spec: &Spec) {
        for request in ["a", "b", "c"] {
            self.run(spec, request, request).await;
        }
    }

    async fn dump(&self) -> BTreeMap<&str, Option<Vec<u8>>> {
        let mut dumps = BTreeMap::new();
        for key in &self.keys {
            let dump: Option<Vec<u8>> = redis::cmd("DUMP")
                .arg(key)
                .query_async(&mut self.connection.clone())
                .await
                .expect("an answer");
            dumps.insert(key.as_str(), dump);
        }
        dumps
    }

    async fn assert_only_latches(&self) {
        for (key, dump) in self.dump().await {
            assert_eq!(dump, None, "{key} is left");
        }
    }

    async fn lease(&self, key: usize) -> Duration {
        let ms: i64 = self.connection.clone().pttl(&self.keys[key]).await.expect("an answer");
        Duration::from_millis(u64::try_from(ms).expect("the key is there and ends"))
    }
}

/// All lists that lack one element, or have one too many.
fn of_wrong_length<T: Clone>(right: &[T], another: T) -> Vec<Vec<T>> {
    let without = |gone| right.iter().enumerate().filter(move |(at, _)| *at != gone);
    let mut lists: Vec<Vec<T>> =
        (0..right.len()).map(|gone| without(gone).map(|(_, one)| one.clone()).collect()).collect();
    lists.push(right.iter().cloned().chain([another]).collect());
    lists
}

#[tokio::test]
async fn a_script_changes_nothing_when_an_argument_is_missing_or_wrong() {
    for (spec, filler) in SCRIPTS {
        let scene = Scene::new().await;
        scene.fill(filler).await;
        let before = scene.dump().await;
        let keys = &scene.keys[..spec.keys];
        let right: Vec<_> = spec.args.iter().map(|arg| arg.right()).collect();
        let mut calls = Vec::new();
        for args in of_wrong_length(&right, "more") {
            calls.push((keys.to_vec(), args));
        }
        for keys in of_wrong_length(keys, scene.keys[spec.keys].clone()) {
            calls.push((keys, right.clone()));
        }
        for (at, arg) in spec.args.iter().enumerate() {
            for wrong in arg.wrong() {
                let mut args = right.clone();
                args[at] = wrong;
                calls.push((keys.to_vec(), args));
            }
        }
        for (keys, args) in calls {
            let answer: RedisResult<Value> = scene.call(spec, &keys, &args).await;
            let error = answer.expect_err(&format!("{}: {} {args:?}", spec.name, keys.len()));
            assert!(error.to_string().contains("arguments: "), "{}: {error}", spec.name);
            assert_eq!(scene.dump().await, before, "{} {args:?}", spec.name);
        }
        // The same call with everything right is carried out.
        let answer: RedisResult<Value> = scene.call(spec, keys, &right).await;
        answer.expect(spec.name);
    }
}

#[tokio::test]
async fn a_script_changes_nothing_when_a_key_is_of_another_type() {
    for (spec, filler) in SCRIPTS {
        let right: Vec<_> = spec.args.iter().map(|arg| arg.right()).collect();
        for at in 0..spec.keys {
            let scene = Scene::new().await;
            scene.fill(filler).await;
            let mut connection = scene.connection.clone();
            connection.del::<_, ()>(&scene.keys[at]).await.expect("an answer");
            let hash = connection.hset::<_, _, _, ()>(&scene.keys[at], "field", 1);
            hash.await.expect("an answer");
            let before = scene.dump().await;
            let answer: RedisResult<Value> =
                scene.call(spec, &scene.keys[..spec.keys], &right).await;
            let what = format!("{}, key {at}: {answer:?}", spec.name);
            match answer {
                Err(error) => assert_eq!(error.code(), Some("WRONGTYPE"), "{what}"),
                // A hold whose key is of another type is gone.
                Ok(Value::Array(list)) => assert_eq!(list, [Value::Int(0)], "{what}"),
                // A latch of whatever type is a latch.
                Ok(answer) => {
                    assert!(answer == Value::Int(-1) && at + 1 == spec.keys, "{what}");
                }
            }
            assert_eq!(scene.dump().await, before, "{what}");
        }
    }
}

#[tokio::test]
async fn an_acquire_that_is_sent_again_counts_once() {
    for (take, other, free) in KINDS {
        let scene = Scene::new().await;
        for request in ["first", "first", "again", "first", "again"] {
            assert_eq!(scene.run(take, "owner", request).await, 0, "{}", take.name);
        }
        // A waiter stands in the queue once, too.
        for _ in 0..3 {
            assert!(scene.run(other, "other", "waiter").await > 0, "{}", take.name);
        }
        if take.name == FAIR_ACQUIRE.name {
            let waiters: u64 = scene.connection.clone().llen(&scene.keys[1]).await.expect("a list");
            assert_eq!(waiters, 1);
        }
        assert_eq!(scene.run(free, "owner", "again").await, 1, "{}", take.name);
        assert!(scene.run(other, "other", "waiter").await > 0, "{}", take.name);
        assert_eq!(scene.run(free, "owner", "first").await, 1, "{}", take.name);
        assert_eq!(scene.run(other, "other", "waiter").await, 0, "{}", take.name);
        assert_eq!(scene.run(free, "other", "waiter").await, 1, "{}", take.name);
        scene.assert_only_latches().await;
    }
}

#[tokio::test]
async fn a_release_that_is_sent_again_gets_the_first_answer_and_does_nothing() {
    for (take, other, free) in KINDS {
        let scene = Scene::new().await;
        assert_eq!(scene.run(take, "owner", "first").await, 0, "{}", take.name);
        assert_eq!(scene.run(free, "owner", "first").await, 1, "{}", take.name);
        assert_eq!(scene.run(other, "other", "successor").await, 0, "{}", take.name);
        for _ in 0..2 {
            assert_eq!(scene.run(free, "owner", "first").await, 1, "{}", take.name);
            assert_eq!(scene.run(free, "owner", "never").await, 0, "{}", take.name);
        }
        assert_eq!(scene.run(free, "other", "successor").await, 1, "{}", take.name);
        assert_eq!(scene.run(free, "owner", "neither").await, -1, "{}", take.name);
        assert_eq!(scene.run(free, "owner", "never").await, 0, "{}", take.name);
    }
}

#[tokio::test]
async fn an_acquire_that_arrives_after_its_release_takes_nothing() {
    for (take, _, free) in KINDS {
        let scene = Scene::new().await;
        assert_eq!(scene.run(free, "owner", "abandoned").await, -1, "{}", take.name);
        assert_eq!(scene.run(take, "owner", "abandoned").await, -1, "{}", take.name);
        scene.assert_only_latches().await;
    }
}

#[tokio::test]
async fn a_short_hold_beside_a_long_one_shortens_nothing_and_a_long_one_ends_with_itself() {
    for (take, key) in [(&FAIR_ACQUIRE, 0), (&READ, 1), (&WRITE, 0)] {
        let scene = Scene::new().await;
        let long = async |request: &str, lease: &'static str| {
            let mut keys = scene.keys[..take.keys].to_vec();
            keys[take.keys - 1].push_str(request);
            let mut args: Vec<_> = take.args.iter().map(|arg| arg.right()).collect();
            (args[1], args[2]) = (request, lease);
            scene.call::<i64>(take, &keys, &args).await.expect(take.name)
        };
        assert_eq!(long("outer", "20000").await, 0);
        assert_eq!(long("inner", "100").await, 0);
        assert!(scene.lease(key).await > Duration::from_secs(15), "{}", take.name);
        assert_eq!(long("longest", "60000").await, 0);
        assert!(scene.lease(key).await > Duration::from_secs(50), "{}", take.name);
        let free = if take.keys == 4 { &FAIR_RELEASE } else { &RW_RELEASE };
        assert_eq!(scene.run(free, "owner", "longest").await, 1);
        let left = scene.lease(key).await;
        assert!(left > Duration::from_secs(15) && left <= Duration::from_secs(20), "{left:?}");

        let renew = async |hold: &str, lease: &str| {
            let keys = &scene.keys[key..=key];
            scene.call::<Vec<i64>>(&RENEW, keys, &[hold, lease]).await.expect("renewal")
        };
        assert_eq!(renew("outer:owner", "100").await, [1], "{}", take.name);
        assert!(scene.lease(key).await > Duration::from_secs(15), "{}", take.name);
        assert_eq!(renew("outer:owner", "60000").await, [1], "{}", take.name);
        assert!(scene.lease(key).await > Duration::from_secs(50), "{}", take.name);
        assert_eq!(renew("longest:owner", "60000").await, [0], "it was released");
        assert_eq!(scene.run(free, "owner", "outer").await, 1);
    }
}
