//! The folder, what runs in it, and the end of both.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use uuid::Uuid;

use crate::bed_state::{BedState, MARK, create_private_folder};
use crate::database::{Database, Flavor, ReplicatedDatabase, Replication, ShardedDatabase};
use crate::error::Result;
use crate::etcd::{Etcd, EtcdOptions};
use crate::etcd_cluster::EtcdCluster;
use crate::haproxy::{Haproxy, HaproxyOptions};
use crate::logs;
use crate::nats::{Nats, NatsOptions};
use crate::packet_link::PacketLink;
use crate::program::Program;
use crate::programs::Programs;
use crate::reaper::Reaper;
use crate::redis::{Redis, RedisOptions};
use crate::redis_cluster::RedisCluster;
use crate::redis_sentinel::{RedisSentinel, SentinelOptions};
use crate::replica::{Replica, ReplicaSpec};
use crate::spawner::Spawner;
use crate::zookeeper::{ZooKeeper, ZooKeeperOptions};
use crate::zookeeper_ensemble::ZooKeeperEnsemble;

/// Sockets of the servers are in the folder, and their paths are limited to 107 bytes.
const MAX_PARENT_BYTES: usize = 48;

/// Lines of each log that are shown when a test panics.
const PANIC_TAIL_LINES: usize = 25;

/// A private folder and all processes in it. Dropping it kills them and removes the folder.
///
/// It may be shared between threads, and kept in a `static`. What a program leaves behind when it
/// exits, panics or is killed is cleaned up from outside (see the crate's page).
#[derive(Debug)]
pub struct Bed {
    inner: Arc<BedState>,
    reaper: Mutex<Reaper>,
}

/// Settings of a bed; see [`Bed::builder`].
#[derive(Debug)]
pub struct Builder {
    programs: Programs,
    ready_within: Duration,
}

/// Prints the tails of a bed's logs to stderr if it is dropped by a panic; for tests that share a
/// bed. A bed that is itself dropped by a panic does so unasked.
#[derive(Debug)]
#[must_use = "it prints nothing once it is dropped"]
pub struct LogsOnPanic<'a> {
    bed: &'a Bed,
}

impl Builder {
    /// Looks for the servers' programs only in these folders, instead of `PATH` and the usual ones.
    #[must_use]
    pub fn search_path(mut self, folders: impl IntoIterator<Item = PathBuf>) -> Self {
        self.programs = Programs::in_folders(folders.into_iter().collect());
        self
    }

    /// Takes Valkey instead of Redis: the program that `REDIS_SERVER` names, or `valkey-server`.
    ///
    /// # Errors
    /// If that is not Valkey, or there is none.
    pub fn valkey(mut self) -> Result<Self> {
        self.programs.choose_valkey()?;
        Ok(self)
    }

    /// How long each server may take until it is ready; a minute by default.
    #[must_use]
    pub fn ready_within(mut self, limit: Duration) -> Self {
        self.ready_within = limit;
        self
    }

    /// Creates the folder and what guards it.
    ///
    /// # Errors
    /// If the folder cannot be created or the system lacks `setsid` and `setpriv` (util-linux).
    pub fn start(self) -> Result<Bed> {
        let id = Uuid::new_v4().simple().to_string();
        let dir = usable_temp_folder(env::temp_dir()).join(format!("testbed-{id}"));
        let mark = format!("{MARK}={id}");
        // What guards the bed must be found even if the servers are looked for elsewhere.
        let reaper = Reaper::start(&Programs::of_the_system(), &mark, &dir)?;
        let spawner = Spawner::start()?;
        let inner = BedState::new(dir, id, self.programs, self.ready_within, spawner);
        let bed = Bed { inner: Arc::new(inner), reaper: Mutex::new(reaper) };
        for folder in [bed.dir(), &bed.inner.log_folder(), &bed.inner.temp_folder()] {
            create_private_folder(folder)?;
        }
        Ok(bed)
    }
}

impl Bed {
    /// A bed with the usual settings.
    ///
    /// # Errors
    /// As [`Builder::start`].
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// Settings for a bed.
    #[must_use]
    pub fn builder() -> Builder {
        Builder { programs: Programs::of_the_system(), ready_within: Duration::from_mins(1) }
    }

    /// The folder: configuration, data and `logs/`, readable by this user only.
    pub fn dir(&self) -> &Path {
        self.inner.dir()
    }

    /// Starts a Redis server with a password.
    ///
    /// # Errors
    /// If it is not installed or does not become ready.
    pub fn redis(&self, options: RedisOptions) -> Result<Redis> {
        Redis::start(&self.inner, options)
    }

    /// Starts several Redis servers that know nothing of one another, in the time of one.
    ///
    /// # Errors
    /// As [`Bed::redis`]; those that did start are stopped then.
    pub fn redis_many(&self, count: usize, options: RedisOptions) -> Result<Vec<Redis>> {
        Redis::start_alike(&self.inner, count, options, None)
    }

    /// Starts a Redis Cluster of `masters` masters, which have all slots, each with `replicas_each`
    /// replicas.
    ///
    /// # Errors
    /// As [`Bed::redis`]; also if the nodes do not come to agree.
    pub fn redis_cluster(&self, masters: u16, replicas_each: u16) -> Result<RedisCluster> {
        RedisCluster::start(&self.inner, masters, replicas_each)
    }

    /// Starts a Redis Cluster of masters only that speak TLS, also with clients; see
    /// [`RedisCluster::tls_url`].
    ///
    /// # Errors
    /// As [`Bed::redis_cluster`].
    pub fn redis_cluster_with_tls(&self, masters: u16) -> Result<RedisCluster> {
        RedisCluster::start_with_tls(&self.inner, masters)
    }

    /// Starts a Redis with two replicas, and three sentinels that watch them.
    ///
    /// # Errors
    /// As [`Bed::redis`]; also if they do not come to know one another.
    pub fn redis_sentinel(&self, options: SentinelOptions) -> Result<RedisSentinel> {
        RedisSentinel::start(&self.inner, options)
    }

    /// Creates and starts a database server with no database and one user with all rights.
    ///
    /// # Errors
    /// If it is not installed or does not become ready.
    pub fn database(&self, flavor: Flavor) -> Result<Database> {
        Database::start(&self.inner, flavor)
    }

    /// Starts a database server with a clock that [`Database::jump_clock`] can set.
    ///
    /// # Errors
    /// As [`Bed::database`]; also if there is no C compiler.
    pub fn database_with_clock(&self, flavor: Flavor) -> Result<Database> {
        Database::start_with_clock(&self.inner, flavor)
    }

    /// Starts a database server with a log, and a disk that [`Database::fill_disk`] can fill.
    ///
    /// # Errors
    /// As [`Bed::database_with_clock`].
    pub fn database_with_disk_space(&self, flavor: Flavor) -> Result<Database> {
        Database::start_with_disk_space(&self.inner, flavor)
    }

    /// Starts a server with a log by which another one can [follow](Database::follow) it.
    ///
    /// # Errors
    /// As [`Bed::database`].
    pub fn database_with_log(&self) -> Result<Database> {
        Database::start_with_log(&self.inner)
    }

    /// Starts a primary with that many replicas, which can
    /// [fail over](ReplicatedDatabase::fail_over).
    ///
    /// # Errors
    /// As [`Bed::database`]; also if the replicas do not replicate.
    pub fn replicated(
        &self,
        flavor: Flavor,
        replication: Replication,
        replicas: usize,
    ) -> Result<ReplicatedDatabase> {
        ReplicatedDatabase::start(&self.inner, flavor, replication, replicas)
    }

    /// Starts `MariaDB` as the nodes of a Galera cluster. Each has its own accounts; all else is
    /// written to all. With `causal_reads` a read waits for all that other nodes have committed
    /// before (`wsrep_sync_wait`).
    ///
    /// Of several nodes one can [leave](Database::leave) or be killed, and
    /// [join again](Database::join_again). A lone one cannot be restarted: after a kill it would
    /// not know whether it was the last one.
    ///
    /// # Errors
    /// As [`Bed::database`]; also if they do not become a cluster.
    pub fn galera<const NODES: usize>(&self, causal_reads: bool) -> Result<[Database; NODES]> {
        Database::start_galera(&self.inner, causal_reads)
    }

    /// Starts that many `MariaDB` servers, and one whose tables can lie on them (Spider).
    ///
    /// # Errors
    /// As [`Bed::database`]; also if the Spider plugin is not installed.
    pub fn sharded(&self, shards: usize) -> Result<ShardedDatabase> {
        ShardedDatabase::start(&self.inner, shards)
    }

    /// Starts a `ZooKeeper` server that stands alone.
    ///
    /// # Errors
    /// If it is not installed or does not become ready.
    pub fn zookeeper(&self, options: ZooKeeperOptions) -> Result<ZooKeeper> {
        ZooKeeper::start(&self.inner, options)
    }

    /// Starts a `ZooKeeper` ensemble of three servers.
    ///
    /// # Errors
    /// As [`Bed::zookeeper`]; also if they do not become an ensemble.
    pub fn zookeeper_ensemble(&self, options: ZooKeeperOptions) -> Result<ZooKeeperEnsemble> {
        ZooKeeperEnsemble::start(&self.inner, options)
    }

    /// Starts a `ZooKeeper` ensemble of three servers, and an observer that they reach directly.
    ///
    /// # Errors
    /// As [`Bed::zookeeper_ensemble`].
    pub fn zookeeper_with_observer(
        &self,
        options: ZooKeeperOptions,
    ) -> Result<(ZooKeeperEnsemble, ZooKeeper)> {
        ZooKeeperEnsemble::start_with_observer(&self.inner, options)
    }

    /// Starts an etcd server that stands alone.
    ///
    /// # Errors
    /// If it is not installed or does not become ready.
    pub fn etcd(&self, options: EtcdOptions) -> Result<Etcd> {
        Etcd::start(&self.inner, options)
    }

    /// Starts an etcd cluster of three servers.
    ///
    /// # Errors
    /// As [`Bed::etcd`]; also if they do not become a cluster.
    pub fn etcd_cluster(&self, options: EtcdOptions) -> Result<EtcdCluster> {
        EtcdCluster::start(&self.inner, options)
    }

    /// Starts a NATS server with `JetStream`.
    ///
    /// # Errors
    /// If it is not installed or does not become ready.
    pub fn nats(&self, options: &NatsOptions) -> Result<Nats> {
        Nats::start(&self.inner, options)
    }

    /// Starts a replica of a service and awaits `GET /readyz`.
    ///
    /// # Errors
    /// If the program cannot be started or does not become ready.
    pub fn replica(&self, spec: ReplicaSpec) -> Result<Replica> {
        Replica::start(&self.inner, spec)
    }

    /// Starts a program whose stdin and stdout are pipes. It is not waited for.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn program(&self, name: &str, program: &Path, args: &[&str]) -> Result<Program> {
        Program::start(&self.inner, name, program, args, false)
    }

    /// Starts a program with a clock that [`Program::jump_clock`] can set.
    ///
    /// # Errors
    /// As [`Bed::program`]; also if there is no C compiler.
    pub fn program_with_clock(&self, name: &str, program: &Path, args: &[&str]) -> Result<Program> {
        Program::start(&self.inner, name, program, args, true)
    }

    /// Starts a link to that server on which packets can be lost, in a process of that program,
    /// which must call [`packet_link_main`](crate::packet_link_main). The seed decides which ones.
    ///
    /// # Errors
    /// If there can be none on this machine ([`PacketLink::check`]).
    pub fn packet_link(&self, program: &Path, server: SocketAddr, seed: u64) -> Result<PacketLink> {
        PacketLink::start(&self.inner, program, server, seed)
    }

    /// Starts the proxy that ships with the service, in front of these replicas.
    ///
    /// # Errors
    /// If it is not installed or does not become ready.
    pub fn haproxy(&self, replicas: &[SocketAddr]) -> Result<Haproxy> {
        self.haproxy_with(&HaproxyOptions::default(), replicas)
    }

    /// As [`Bed::haproxy`], with other settings.
    ///
    /// # Errors
    /// As [`Bed::haproxy`]; also if the port is taken.
    pub fn haproxy_with(
        &self,
        options: &HaproxyOptions,
        replicas: &[SocketAddr],
    ) -> Result<Haproxy> {
        Haproxy::start(&self.inner, options, replicas)
    }

    /// The last lines of the log of every process that ever ran in this bed.
    pub fn log_tails(&self, lines: usize) -> String {
        logs::all_tails(&self.inner.log_folder(), lines)
    }

    /// A guard for a test that shares this bed with others: shows the logs if the test panics.
    pub fn logs_on_panic(&self) -> LogsOnPanic<'_> {
        LogsOnPanic { bed: self }
    }
}

impl Drop for LogsOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.bed.log_tails(PANIC_TAIL_LINES));
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        drop(self.logs_on_panic());
        self.inner.close();
        self.reaper.get_mut().unwrap_or_else(PoisonError::into_inner).finish();
        // The reaper has done this, unless it was killed.
        let _ = fs::remove_dir_all(self.inner.dir());
    }
}

/// The temporary folder of the system, or `/tmp` if a socket below that could not be opened, or if
/// the servers' own scripts and options could not name it.
fn usable_temp_folder(folder: PathBuf) -> PathBuf {
    let name = folder.as_os_str();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(byte);
    let is_usable = name.len() <= MAX_PARENT_BYTES && name.as_bytes().iter().all(is_plain);
    if is_usable { folder } else { PathBuf::from("/tmp") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_folder_is_used_if_servers_can_name_it() {
        let used = |folder: &str| usable_temp_folder(PathBuf::from(folder));
        for folder in ["/var/tmp/x-1_2.3", "/tmp"] {
            assert_eq!(used(folder), PathBuf::from(folder));
        }
        for folder in ["/tmp/a b", "/tmp/\"a\"", "/tmp/\u{e4}", &format!("/{}", "x".repeat(200))] {
            assert_eq!(used(folder), PathBuf::from("/tmp"));
        }
    }
}
