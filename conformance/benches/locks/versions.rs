//! What took part, and when its writes are on disk.

use conformance::{Servers, StartedServers, ZOOKEEPER_SYNC};
use loadtest_measure::database_settings::DatabaseSettings;
use loadtest_measure::error::Result;
use loadtest_measure::machine::{version_of, zookeeper_version};
use loadtest_measure::server_settings::ServerSettings;
use serde::Serialize;
use testbed::{Database, Redis, ZooKeeper};

use crate::cell::broken;

/// What Maven builds the JVM's programs with.
const POM: &str = include_str!("../../interop/pom.xml");

/// Versions, with the settings that figures depend on; none of what no row needed.
#[derive(Debug, Serialize)]
pub(crate) struct Versions {
    distlock: &'static str,
    redis: Option<String>,
    database: Option<String>,
    zookeeper: Option<String>,
    etcd: Option<String>,
    nats: Option<String>,
    redisson: Option<&'static str>,
}

impl Versions {
    /// Those of the servers that run, and Redisson's if it has been measured.
    pub(crate) async fn read(servers: &Servers, with_redisson: bool) -> Self {
        let StartedServers { redis, database, zookeeper, etcd, nats } = servers.started();
        let database = match database {
            Some(database) => Some(database_says(database).await),
            None => None,
        };
        let etcd = match etcd {
            Some(etcd) => Some(version_of(etcd.pid(), "etcd", "--version").await),
            None => None,
        };
        let nats = match nats {
            Some(nats) => Some(version_of(nats.pid(), "nats-server", "--version").await),
            None => None,
        };
        Self {
            distlock: env!("CARGO_PKG_VERSION"),
            redis: redis.map(redis_says).map(or_unknown),
            database: database.map(or_unknown),
            zookeeper: zookeeper.map(zookeeper_says).map(or_unknown),
            etcd,
            nats,
            redisson: redisson().filter(|_| with_redisson),
        }
    }

    /// In words.
    pub(crate) fn text(&self) -> String {
        let peers = [
            ("Redis", self.redis.as_deref()),
            ("Redisson", self.redisson),
            ("the database", self.database.as_deref()),
            ("ZooKeeper", self.zookeeper.as_deref()),
            ("etcd", self.etcd.as_deref()),
            ("NATS", self.nats.as_deref()),
        ];
        let told = peers.into_iter().filter_map(|(name, told)| Some((name, told?)));
        told.fold(format!("distlock {}", self.distlock), |text, (name, told)| {
            format!("{text}, {name} {told}")
        })
    }
}

/// What was measured is worth having without it.
fn or_unknown(told: Result<String>) -> String {
    told.unwrap_or_else(|error| format!("of an unknown version ({})", error.sentence()))
}

fn redis_says(redis: &Redis) -> Result<String> {
    let info = redis.command(&["INFO", "server"]).map_err(broken("Redis"))?;
    let figure = |name: &str| info.lines().find_map(|line| line.trim().strip_prefix(name));
    let valkey = figure("valkey_version:").map(|version| format!("(Valkey) {version}"));
    let version = valkey.or_else(|| figure("redis_version:").map(str::to_owned));
    let version = version.unwrap_or_else(|| "of an unknown version".to_owned());
    let settings = ServerSettings::default().with_redis(redis).map_err(broken("Redis"))?;
    Ok(format!("{version} ({})", settings.redis()))
}

async fn database_says(database: &Database) -> Result<String> {
    let server = DatabaseSettings::read(&database.url("information_schema")).await?;
    let settings = ServerSettings::default().with_database(&server).database();
    Ok(format!("{} ({settings})", server.version))
}

fn zookeeper_says(zookeeper: &ZooKeeper) -> Result<String> {
    let told = zookeeper.four_letter_word("srvr").map_err(broken("ZooKeeper"))?;
    Ok(format!("{} ({ZOOKEEPER_SYNC})", zookeeper_version(&told)))
}

/// The version that is built unless a profile says otherwise.
fn redisson() -> Option<&'static str> {
    let (_, rest) = POM.split_once("<redisson.version>")?;
    rest.split_once('<').map(|(version, _)| version)
}
