//! Real private servers on free loopback ports, for tests and the laboratory.
//!
//! A [`Bed`] owns a temporary folder (mode 0700) and every process started in it. These are
//! [`Redis`], a [`Database`] (MariaDB or MySQL), [`ZooKeeper`], [`Etcd`], [`Nats`], [`Replica`]s of
//! a program that speaks HTTP, and [`Haproxy`] in front of them. Each is a [`Process`] that can be
//! killed, frozen, thawed, stopped and restarted. Every start is awaited with a deadline, and every
//! failure carries the log's tail.
//!
//! ```no_run
//! use testbed::{Bed, Flavor, RedisOptions, ReplicaSpec};
//!
//! # fn main() -> testbed::Result<()> {
//! let bed = Bed::start()?;
//! let redis = bed.redis(RedisOptions::default())?;
//! let database = bed.database(Flavor::Any)?;
//! database.create_database("shop")?;
//! let replica = bed.replica(
//!     ReplicaSpec::new("a", "target/debug/shop")
//!         .args(["serve", "--bind", "127.0.0.1:0"])
//!         .env("DATABASE_URL", database.url("shop"))
//!         .env("REDIS_URL", redis.url()),
//! )?;
//! let proxy = bed.haproxy(&[replica.addr()])?;
//! replica.kill()?;
//! replica.restart()?;
//! println!("{}", proxy.url());
//! # Ok(())
//! # }
//! ```
//!
//! **Nothing is left behind**, however the program ends. Dropping the bed kills everything and
//! removes the folder. If the program is killed first, two things that live outside it do the same.
//! The kernel sends SIGKILL to each server when the thread that started it has ended (`spawner`). A
//! small shell process waits for the end of a pipe (`reaper`). So a bed may also live in a
//! `static`, which is never dropped.
//!
//! A [`Proxy`] is a link to a server, any one, that fails on command. A [`PacketLink`] is one on
//! which packets are lost.
//!
//! Everything blocks; from asynchronous code call it where blocking is allowed.
//!
//! Modules in reading order: `bed` (the folder and its end), `bed_state` (what servers know of it),
//! `spawner`, `reaper`, `process` (one server and what can be done to it), `probe` (readiness).
//! One file per server follows: `redis`, `redis_cluster`, `redis_sentinel`, `database`,
//! `ensemble`, `zookeeper`, `zookeeper_ensemble`, `etcd`, `etcd_cluster`, `nats`, `replica`,
//! `haproxy`, `program`. `proxy` is a way on which things go wrong, `packet_link` one that loses
//! packets; `shim` a clock that can be set and a disk that can be stalled or filled. Tools are
//! `certificates`, `mysql_wire`, `zookeeper_wire`, `zookeeper_introducer`, `forward_proxy`, `resp`,
//! `programs`, `ports`, `stopwatch`, `logs` and `error`.

#![warn(missing_debug_implementations, clippy::must_use_candidate)]

mod bed;
mod bed_state;
mod certificates;
mod database;
mod ensemble;
mod error;
mod etcd;
mod etcd_cluster;
mod evictions;
mod forward_proxy;
mod haproxy;
mod logs;
mod mysql_wire;
mod nats;
mod packet_link;
mod ports;
mod probe;
mod process;
mod program;
mod programs;
mod proxy;
mod reaper;
mod redis;
mod redis_cluster;
mod redis_sentinel;
mod redis_settings;
mod replica;
mod resp;
mod shim;
mod slot;
mod spawner;
mod stopwatch;
mod zookeeper;
mod zookeeper_ensemble;
mod zookeeper_introducer;
mod zookeeper_wire;

pub use bed::{Bed, Builder, LogsOnPanic};
pub use database::{Database, Flavor, ReplicatedDatabase, Replication, ShardedDatabase};
pub use ensemble::{Ensemble, EnsembleMember};
pub use error::{Error, Result, UnknownFlavor};
pub use etcd::{Etcd, EtcdOptions};
pub use etcd_cluster::EtcdCluster;
pub use evictions::Evictions;
pub use haproxy::{Haproxy, HaproxyOptions};
pub use nats::{Nats, NatsOptions};
pub use packet_link::{PacketCounts, PacketFaults, PacketLink, packet_link_main};
pub use process::Process;
pub use program::Program;
pub use proxy::{Action, Command, Counts, Direction, MessageDrop, Proxy, Rule, Times};
pub use redis::{Redis, RedisMaster, RedisOptions};
pub use redis_cluster::RedisCluster;
pub use redis_sentinel::{RedisSentinel, Sentinel, SentinelOptions};
pub use replica::{Replica, ReplicaSpec};
pub use stopwatch::Stopwatch;
pub use zookeeper::{ZooKeeper, ZooKeeperOptions};
pub use zookeeper_ensemble::ZooKeeperEnsemble;
