//! The proxy that breaks things: each fault is seen from both sides, and counted.

#[path = "../support/mod.rs"]
mod support;

mod commands;
mod messages;
mod mysql;
mod mysql_client;
mod redis_client;
mod way;

use std::sync::LazyLock;
use std::time::Duration;

use testbed::{Bed, Database, Flavor, Proxy, Redis, RedisOptions};

/// Longer than anything here takes, on a busy machine too.
const LIMIT: Duration = Duration::from_secs(10);

/// Servers that all tests share. Each test uses keys and tables of its own.
struct Servers {
    redis: Redis,
    database: LazyLock<Database>,
}

static BED: LazyLock<Bed> = LazyLock::new(|| Bed::start().unwrap());

static SERVERS: LazyLock<Servers> = LazyLock::new(|| Servers {
    redis: BED.redis(RedisOptions::default()).unwrap(),
    database: LazyLock::new(|| {
        let database = BED.database(Flavor::MariaDb).unwrap();
        database.create_database("shop").unwrap();
        database
    }),
});

/// A proxy in front of the shared Redis.
fn before_redis() -> Proxy {
    Proxy::before(SERVERS.redis.addr()).unwrap()
}

fn await_that(what: &str, done: impl FnMut() -> bool) {
    support::await_that(what, LIMIT, done);
}
