//! Whether the user of Redis may do what this configuration needs, and whether Redis writes at all.
//!
//! Each command is queued in a transaction that is never executed, on a connection of its own. The
//! server checks the rights to a command, its keys and its channels when it queues the command, so
//! nothing is ever written. On a cluster each master is asked.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisResult, Value};

use super::{OrderCounter, RedisConnection, RedisKeys, StoreError};

/// What stands for `*` in the keys that are asked for.
const PROBE: &str = "rights-probe";
/// A script that writes nothing and, having no flag `no-writes`, is executed only where writes are.
/// It has no key, so any master of a cluster executes it. Redis before 7 answers a plain `ERR`.
const WRITE_SCRIPT: &str = "#!lua\nreturn 1";
/// Why a Redis that answers refuses each write: it is a replica, memory is full, the disk failed,
/// too few replicas follow it.
const WRITE_REFUSALS: [&str; 4] = ["READONLY", "OOM", "MISCONF", "NOREPLICAS"];

/// Commands on keys and channels of one prefix, separated by semicolons. In a command `K` stands
/// for a key, `C` for a channel.
#[derive(Clone, Copy)]
struct RequiredRights<'a> {
    keys: &'a str,
    channels: &'static str,
    commands: &'static str,
}

const SERVER: RequiredRights<'static> =
    RequiredRights { keys: "", channels: "", commands: "PING; SCRIPT LOAD s; TIME" };
const EVICTION: RequiredRights<'static> =
    RequiredRights { keys: "", channels: "", commands: "INFO memory" };
const REPLICATION: RequiredRights<'static> =
    RequiredRights { keys: "", channels: "", commands: "INFO replication; WAIT 1 1" };
const ORDER_IDS: RequiredRights<'static> =
    RequiredRights { keys: "icr:order:*", channels: "", commands: "INCRBY K 1; EXPIRE K 1" };
const LOGIN: RequiredRights<'static> = RequiredRights {
    keys: "login:*",
    channels: "",
    commands: "EVAL s 1 K; EVALSHA s 1 K; HDEL K f; HGET K f; HGETALL K; HSET K f v; PEXPIRE K 1",
};
const DIANPING: [RequiredRights<'static>; 2] = [
    RequiredRights { keys: "login:*", channels: "", commands: "GET K; SET K v; DEL K; EXPIRE K 1" },
    RequiredRights { keys: "seckill:stock:*", channels: "", commands: "SET K v" },
];
const LIMITS: RequiredRights<'static> = RequiredRights {
    keys: "limit:*",
    channels: "",
    commands: "EVAL s 1 K; EVALSHA s 1 K; DEL K; GET K; SET K v",
};
/// Housekeeping takes these locks whatever `--lock` says.
const REDISSON: RequiredRights<'static> = RequiredRights {
    keys: "lock:*",
    channels: "redisson_lock__channel:*",
    commands: "EVAL s 1 K; EVALSHA s 1 K; DEL K; EXISTS K; HEXISTS K f; HGET K f; HINCRBY K f 1; \
        HVALS K; PEXPIRE K 1; PTTL K; PUBLISH C m; SUBSCRIBE C; UNSUBSCRIBE C",
};
const REDISSON_LATCHES: [RequiredRights<'static>; 3] = [
    RequiredRights { keys: "redisson_lock_latch:*", channels: "", commands: LATCH },
    RequiredRights { keys: "redisson_unlock_latch:*", channels: "", commands: LATCH },
    // Redisson's scripts are given their channel as a key.
    RequiredRights { keys: "redisson_lock__channel:*", channels: "", commands: "EVALSHA s 1 K" },
];
const LATCH: &str = "GET K; SET K v; DEL K";
const SET_LOCKS: RequiredRights<'static> =
    RequiredRights { keys: "lock:*", channels: "", commands: "SET K v; GET K; DEL K; PTTL K" };
const SETNX_LOCKS: RequiredRights<'static> = RequiredRights {
    keys: "lock:*",
    channels: "",
    commands: "SETNX K v; GET K; GETSET K v; DEL K; PEXPIRE K 1; PTTL K",
};
const FAIR: RequiredRights<'static> = RequiredRights {
    keys: "distlock_fair*",
    channels: "distlock_fair_channel:*",
    commands: "EVAL s 1 K; EVALSHA s 1 K; DEL K; EXISTS K; GET K; LINDEX K 0; LPOP K; LREM K 0 v; \
        PEXPIRE K 1; PEXPIREAT K 1; RPUSH K v; SET K v; ZADD K 1 v; ZRANGE K 0 0; ZREM K v; \
        ZREMRANGEBYSCORE K 0 0; ZSCORE K v; PUBLISH C m; SUBSCRIBE C; UNSUBSCRIBE C",
};
const READ_WRITE: RequiredRights<'static> = RequiredRights {
    keys: "distlock_rw_*",
    channels: "distlock_rw_*",
    commands: "EVAL s 1 K; EVALSHA s 1 K; DEL K; EXISTS K; GET K; PEXPIRE K 1; PEXPIREAT K 1; \
        RENAME K K; SET K v; ZADD K 1 v; ZRANGE K 0 0; ZRANGEBYSCORE K 0 0; ZREM K v; \
        ZREMRANGEBYSCORE K 0 0; ZSCORE K v; PUBLISH C m; SUBSCRIBE C; UNSUBSCRIBE C",
};
const QUEUE: RequiredRights<'static> = RequiredRights {
    keys: "{v:*",
    channels: "",
    commands: "EVAL s 1 K; EVALSHA s 1 K; DEL K; EXISTS K; HDEL K f; HGET K f; HINCRBY K f 1; \
        HLEN K; HMGET K f; HSET K f v; PEXPIRE K 1; PEXPIREAT K 1; PTTL K; SET K v; XACK K g 1; \
        XADD K * f v; XAUTOCLAIM K g c 1 0; XCLAIM K g c 1 1; XDEL K 1; XGROUP CREATE K g 0; \
        XGROUP DELCONSUMER K g c; XLEN K; XPENDING K g; XREADGROUP GROUP g c STREAMS K >",
};
const STREAMS: RequiredRights<'static> = RequiredRights {
    keys: "streams:*",
    channels: "",
    commands: "EVAL s 1 K; EVALSHA s 1 K; PEXPIRE K 1; ZADD K 1 v; ZCARD K; ZREM K v; \
        ZREMRANGEBYSCORE K 0 0; ZSCORE K v",
};
const REQUESTS: RequiredRights<'static> =
    RequiredRights { keys: "request:*", channels: "", commands: "GET K; SET K v" };

/// What of Redis a configuration uses.
#[derive(Debug, Clone)]
pub struct RedisUse {
    /// The keys of the lock around a purchase, if they are in this Redis.
    pub lock: Option<RedisKeys>,
    /// How many replicas must confirm it.
    pub confirmations: u32,
    /// Whether purchases are queued.
    pub is_queued: bool,
    /// The counter of hm-dianping's orders, if its API is served.
    pub dianping: Option<OrderCounter>,
    /// Whether the eviction policy is looked at.
    pub checks_eviction: bool,
}

impl RedisUse {
    fn needs<'a>(&self, counter: Option<&'a str>) -> impl Iterator<Item = RequiredRights<'a>> {
        let of_lock: &[RequiredRights<'static>] = match self.lock {
            // A hash is as housekeeping's locks are, whose rights are needed anyway.
            None | Some(RedisKeys::Hash) => &[],
            Some(RedisKeys::Set) => &[SET_LOCKS],
            Some(RedisKeys::SetNx | RedisKeys::Timestamp) => &[SETNX_LOCKS],
            Some(RedisKeys::Fair) => &[FAIR],
            Some(RedisKeys::ReadWrite) => &[READ_WRITE],
        };
        let is_used: [(bool, &'static [RequiredRights<'static>]); 7] = [
            (true, &[SERVER, ORDER_IDS, LOGIN, LIMITS, REDISSON]),
            (true, &REDISSON_LATCHES),
            (true, of_lock),
            (self.confirmations > 0, &[REPLICATION]),
            (self.is_queued, &[QUEUE, REQUESTS, STREAMS]),
            (self.checks_eviction, &[EVICTION]),
            (self.dianping.is_some(), &DIANPING),
        ];
        let used = is_used.into_iter().filter(|(is_used, _)| *is_used);
        let used = used.flat_map(|(_, needs)| needs).copied();
        used.chain(counter.map(|keys| RequiredRights { keys, ..ORDER_IDS }))
    }
}

/// The rights that a configuration needs, on its Redis.
#[derive(Clone)]
pub struct RedisRights {
    connection: RedisConnection,
    uses: RedisUse,
}

impl RedisRights {
    /// Asks no server yet.
    pub fn new(connection: RedisConnection, uses: RedisUse) -> Self {
        Self { connection, uses }
    }

    /// What is missing, as a sentence; `None` if nothing is. Fails if a server does not connect or
    /// answer `within` that time.
    pub async fn missing(&self, within: Duration) -> Result<Option<String>, StoreError> {
        let mut missing = BTreeSet::new();
        for server in self.connection.servers().await? {
            self.ask(connect(&server, within).await?, &mut missing).await?;
        }
        if missing.is_empty() {
            return Ok(None);
        }
        let missing: Vec<_> = missing.into_iter().collect();
        Ok(Some(format!("the Redis user lacks these rights: {}", missing.join(" "))))
    }

    /// Why a server refuses to write, as a sentence; `None` if each one writes. Fails if a server
    /// does not connect or answer `within` that time.
    pub async fn refused_writes(&self, within: Duration) -> Result<Option<String>, StoreError> {
        let mut codes = BTreeSet::new();
        for server in self.connection.servers().await? {
            let script = redis::cmd("EVAL").arg(WRITE_SCRIPT).arg(0).to_owned();
            let mut connection = connect(&server, within).await?;
            let answer = connection.send_packed_command(&script).await?;
            if let Value::ServerError(error) = &answer
                && WRITE_REFUSALS.contains(&error.code())
            {
                codes.insert(error.code().to_owned());
            }
        }
        let codes: Vec<_> = codes.into_iter().collect();
        Ok((!codes.is_empty()).then(|| format!("Redis refuses writes: {}", codes.join(" "))))
    }

    /// Adds what one server refuses, as the ACL rules that would allow it.
    async fn ask(
        &self,
        mut connection: MultiplexedConnection,
        missing: &mut BTreeSet<String>,
    ) -> RedisResult<()> {
        // The first transaction is empty, to see that one can be executed. The second ends with the
        // connection.
        for (name, rule) in [("MULTI", "+multi"), ("EXEC", "+exec"), ("MULTI", "+multi")] {
            let answer = connection.send_packed_command(&redis::cmd(name)).await?;
            if refusal(&answer).is_some() {
                missing.insert(rule.to_owned());
                return Ok(());
            }
            answer.extract_error()?;
        }
        let counter = self.uses.dianping.as_ref().map(OrderCounter::pattern);
        let needs = self.uses.needs(counter.as_deref());
        let questions: Vec<_> = needs.flat_map(RequiredRights::questions).collect();
        let mut commands = Pipeline::with_capacity(questions.len());
        for (need, text) in &questions {
            commands.add_command(need.command(text));
        }
        let answers = connection.send_packed_commands(&commands, 0, questions.len()).await?;
        for ((need, text), answer) in questions.iter().zip(&answers) {
            missing.extend(refusal(answer).map(|why| need.rule(text, &why)));
        }
        Ok(())
    }
}

/// A connection of its own, whose answers have a time limit.
async fn connect(server: &RedisConnection, within: Duration) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(within))
        .set_response_timeout(Some(within));
    server.own("", &config).await
}

/// What the server says of a right that is missing.
fn refusal(answer: &Value) -> Option<String> {
    let Value::ServerError(error) = answer else { return None };
    let details = error.details().unwrap_or_default();
    // EXEC answers EXECABORT where it is refused itself. A command may be renamed, or unknown to a
    // server that is like Redis.
    let is_refusal = ["NOPERM", "EXECABORT"].contains(&error.code())
        || error.code() == "ERR" && details.starts_with("unknown command");
    is_refusal.then(|| details.to_owned())
}

impl RequiredRights<'_> {
    fn commands(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.commands.split("; ")
    }

    fn questions(self) -> impl Iterator<Item = (Self, &'static str)> {
        self.commands().map(move |text| (self, text))
    }

    fn command(&self, text: &str) -> Cmd {
        let mut command = Cmd::new();
        for word in text.split(' ') {
            match word {
                "K" => command.arg(self.keys.replace('*', PROBE)),
                "C" => command.arg(self.channels.replace('*', PROBE)),
                word => command.arg(word),
            };
        }
        command
    }

    /// The rule that would allow a command, which was refused with these words.
    fn rule(&self, text: &str, why: &str) -> String {
        if why.contains(" channel") {
            format!("&{}", self.channels)
        } else if why.contains(" key") {
            format!("~{}", self.keys)
        } else {
            command_rule(text)
        }
    }
}

/// `+script|load` for `SCRIPT LOAD s`.
fn command_rule(text: &str) -> String {
    let mut words = text.split(' ');
    let name = words.next().unwrap_or_default();
    match words.next() {
        Some(second) if ["SCRIPT", "XGROUP"].contains(&name) => format!("+{name}|{second}"),
        _ => format!("+{name}"),
    }
    .to_lowercase()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Reads of a lock by waiters and losers that name its holder. `deploy/redis.acl` has these
    /// rights, and no start demands them: without them no holder is named.
    const HOLDERS: RequiredRights<'static> = RequiredRights {
        keys: "lock:*",
        channels: "",
        commands: "TYPE K; STRLEN K; HLEN K; HKEYS K; HSTRLEN K f; LRANGE K 0 0",
    };

    /// Looks for deadlocks of jobs, which no start demands: without them a replica counts none.
    const DEADLOCKS: RequiredRights<'static> =
        RequiredRights { keys: "distlock_waits", channels: "", commands: "HGETALL K; HDEL K f" };

    const ALL: [&[RequiredRights<'static>]; 6] = [
        &[SERVER, EVICTION, REPLICATION, ORDER_IDS, LOGIN, LIMITS, REDISSON],
        &REDISSON_LATCHES,
        &[SET_LOCKS, SETNX_LOCKS, FAIR, READ_WRITE],
        &[QUEUE, REQUESTS, STREAMS],
        &[HOLDERS, DEADLOCKS],
        &DIANPING,
    ];

    #[test]
    fn the_acl_that_ships_allows_what_is_needed_and_nothing_else() {
        let shipped = include_str!("../../deploy/redis.acl");
        let rules = shipped.lines().filter(|line| !line.starts_with('#'));
        let shipped: BTreeSet<_> = rules.flat_map(str::split_whitespace).collect();
        let mut needed: BTreeSet<_> = ["+multi".to_owned(), "+exec".to_owned()].into();
        for need in ALL.into_iter().flatten() {
            needed.extend(need.commands().map(command_rule));
            let patterns = [('~', need.keys), ('&', need.channels)];
            let patterns = patterns.into_iter().filter(|(_, pattern)| !pattern.is_empty());
            needed.extend(patterns.map(|(sign, pattern)| format!("{sign}{pattern}")));
        }
        assert_eq!(shipped, needed.iter().map(String::as_str).collect());
    }

    /// The commands in the scripts of a folder whose names begin so.
    fn commands_of(folder: &str, begins: &str) -> BTreeSet<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua").join(folder);
        let mut commands = BTreeSet::new();
        for file in fs::read_dir(folder).expect("a folder of scripts") {
            let file = file.expect("a script");
            if file.file_name().to_string_lossy().starts_with(begins) {
                let code = fs::read_to_string(file.path()).expect("a script");
                let calls = code.split("call('").skip(1);
                commands
                    .extend(calls.filter_map(|call| call.split('\'').next()).map(str::to_owned));
            }
        }
        assert!(!commands.is_empty(), "no script begins with {begins}");
        commands
    }

    #[test]
    fn what_scripts_call_is_asked_for() {
        for (folder, begins, needs) in [
            ("login", "", &[LOGIN, DIANPING[0]][..]),
            ("limit", "take", &[LIMITS]),
            ("limit", "give_back", &[LIMITS]),
            ("limit", "stream", &[STREAMS]),
            ("sale", "", &[QUEUE]),
            ("lock", "redisson_", &[REDISSON, REDISSON_LATCHES[0], REDISSON_LATCHES[1]]),
            ("lock", "renew.lua", &[REDISSON]),
            ("lock", "fair_", &[FAIR]),
            ("lock", "rw_", &[READ_WRITE]),
            ("lock", "renew_holds", &[FAIR]),
            ("lock", "renew_holds", &[READ_WRITE]),
            ("lock", "release_if_owner", &[SET_LOCKS]),
        ] {
            let texts = needs.iter().chain([&SERVER]).flat_map(RequiredRights::commands);
            let asked: Vec<_> = texts.filter_map(|text| text.split(' ').next()).collect();
            for command in commands_of(folder, begins) {
                assert!(asked.contains(&&*command), "{folder}/{begins}: {command}");
            }
        }
    }

    #[test]
    fn the_acl_of_the_inspector_allows_what_it_uses_and_nothing_else() {
        let shipped = include_str!("../../deploy/redis-inspector.acl");
        let rules = shipped.lines().filter(|line| !line.starts_with('#'));
        let shipped = rules.flat_map(str::split_whitespace).filter_map(|it| it.strip_prefix('+'));
        let shipped = shipped.map(|it| it.split('|').next().unwrap_or(it));
        // Those that it sends itself, and by which its scripts wake a waiter.
        let sent = "ping info scan eval evalsha pttl zrange lrange publish";
        let mut used: BTreeSet<_> = sent.split(' ').map(str::to_owned).collect();
        for script in [
            "inspect_keys",
            "release_if_owner",
            "redisson_force_unlock",
            "fair_release",
            "rw_release",
        ] {
            used.extend(commands_of("lock", script).iter().map(|it| it.to_lowercase()));
        }
        // Only processes that wait store something there.
        let stores = ["HSET", "PEXPIRE"];
        let read = commands_of("lock", "exchange_waits");
        let read = read.iter();
        used.extend(read.filter(|it| !stores.contains(&it.as_str())).map(|it| it.to_lowercase()));
        assert_eq!(shipped.map(str::to_owned).collect::<BTreeSet<_>>(), used);
    }
}
