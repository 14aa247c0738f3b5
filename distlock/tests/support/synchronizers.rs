//! What the tests of the semaphores and the latch share.

use std::time::Duration;

use distlock::RedisConnection;
use distlock::{LockName, RedisServer};
use redis::{FromRedisValue, RedisResult, Script, ToRedisArgs};
use testbed::{Action, Bed, Command, Proxy, Redis, RedisOptions, Rule, Times};

use super::{connect, connect_hasty, server};

/// What a lost message may cost, as documented.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// For a busy machine.
pub(crate) const SLACK: Duration = Duration::from_secs(5);
/// A wait that does not end in a test.
pub(crate) const PATIENT: Duration = Duration::from_secs(20);

/// Each of them loses an answer, or the question, or both sides the other.
pub(crate) const ACCIDENTS: [Action; 7] = [
    Action::CutAnswer,
    Action::ResetAnswer,
    Action::LoseAnswer,
    Action::CutRequest,
    Action::LoseRequest,
    Action::CutBoth,
    Action::DelayAnswer(Duration::from_millis(700)),
];

/// What is a process of its own as far as Redis can see.
pub(crate) async fn process() -> RedisServer {
    connect(server().url()).await
}

/// A Redis of one's own, with a way to it that can be broken. The bed goes last.
pub(crate) struct OwnServer {
    pub(crate) redis: Redis,
    pub(crate) proxy: Proxy,
    _bed: Bed,
}

impl OwnServer {
    pub(crate) fn start() -> Self {
        Self::with(RedisOptions::default())
    }

    pub(crate) fn with(options: RedisOptions) -> Self {
        tokio::task::block_in_place(|| {
            let bed = Bed::start().expect("a private bed");
            let redis = bed.redis(options).expect("Redis is installed");
            let proxy = Proxy::before(redis.addr()).expect("a port");
            Self { redis, proxy, _bed: bed }
        })
    }

    /// Another process, which goes through the proxy.
    pub(crate) async fn process(&self) -> RedisServer {
        connect(&self.proxy.instead_of(self.redis.addr(), self.redis.url())).await
    }

    /// One that goes through the proxy, and takes half a second without an answer for silence.
    pub(crate) async fn hasty(&self) -> RedisServer {
        connect_hasty(&self.proxy.instead_of(self.redis.addr(), self.redis.url())).await
    }

    /// One that goes straight to the server.
    pub(crate) async fn undisturbed(&self) -> RedisServer {
        connect(self.redis.url()).await
    }

    /// The next scripts with this number of keys meet that fault.
    pub(crate) fn arm(&self, keys: &'static str, accident: Action, times: Times) -> Rule {
        self.proxy.arm(scripts(keys), accident, times)
    }

    /// Counts the scripts with this number of keys.
    pub(crate) fn watch(&self, keys: &'static str) -> Rule {
        self.proxy.watch(scripts(keys))
    }

    pub(crate) fn act(&self, act: impl FnOnce(&Redis) -> testbed::Result<()>) {
        tokio::task::block_in_place(|| act(&self.redis)).expect("the testbed can do that");
    }
}

fn scripts(keys: &'static str) -> Command {
    Command::redis("").when(move |parts| {
        parts[0].to_ascii_uppercase().starts_with(b"EVAL") && parts[2] == keys.as_bytes()
    })
}

/// What another client of the server sees and does.
#[derive(Clone)]
pub(crate) struct Client(RedisConnection);

impl Client {
    pub(crate) async fn at(url: &str) -> Self {
        Self(connect(url).await.connection())
    }

    pub(crate) async fn here() -> Self {
        Self::at(server().url()).await
    }

    pub(crate) async fn command<T: FromRedisValue>(&self, words: impl ToRedisArgs) -> T {
        let mut command = redis::Cmd::new();
        command.arg(words).query_async(&mut self.0.clone()).await.expect("an answer")
    }

    pub(crate) async fn call<T: FromRedisValue>(
        &self,
        script: &str,
        keys: &[&str],
        args: &[&str],
    ) -> RedisResult<T> {
        let script = Script::new(script);
        let mut call = script.prepare_invoke();
        call.key(keys).arg(args);
        call.invoke_async(&mut self.0.clone()).await
    }

    /// All keys in which that name stands.
    pub(crate) async fn keys(&self, name: &LockName) -> Vec<String> {
        self.command(&["KEYS", &format!("*{name}*")]).await
    }

    /// All that the server knows of that name.
    pub(crate) async fn state(&self, name: &LockName) -> Vec<(String, String)> {
        let mut state = Vec::new();
        for key in self.keys(name).await {
            let dump: redis::Value = self.command(&["DUMP", &key]).await;
            state.push((key, format!("{dump:?}")));
        }
        state.sort();
        state
    }

    /// How many processes are subscribed to the channel of that prefix and name.
    pub(crate) async fn subscribers(&self, prefix: &str, name: &LockName) -> usize {
        let channel = format!("{prefix}:{{{name}}}");
        let count: (String, usize) = self.command(&["PUBSUB", "NUMSUB", &channel]).await;
        count.1
    }
}
