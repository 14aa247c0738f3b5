//! The servers of a private cluster: which programs, and how many of each.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use loadtest_lab::cluster::{ServerPrograms, find_program};
use loadtest_lab::runner::ClusterSpec;
use loadtest_lab::topology::Topology;
use loadtest_measure::error::{Error, Result};
use testbed::Flavor;

#[derive(Debug, Default, Args)]
pub(super) struct PrivateArgs {
    /// Database: one server [default: the one that is installed], or several, with `matrix`,
    /// `compare` and `up` alone; `galera` and `sharded` are MariaDB's. `sharded` is two shards
    /// behind a front. On these the guards are on and orders are exact; not atomic there, and so
    /// without a cell, are payments, `--fenced` and the lock `mysql-row`. A shard that is lost in
    /// COMMIT may leave an Idempotency-Key without its order
    #[arg(long, visible_alias = "database", value_name = "DATABASE")]
    db: Option<Db>,
    /// Redis: one server [default], or several, with `matrix`, `compare` and `up` alone. `valkey`
    /// is one Valkey: the program that `REDIS_SERVER` names, or `valkey-server`
    #[arg(long, value_name = "REDIS")]
    redis: Option<RedisServers>,
    /// Servers of ZooKeeper, or of etcd for the lock `etcd`: 1 or 3, with `matrix`, `compare` and
    /// `up` alone. `up --zookeeper` starts one ZooKeeper for `seckill lock run --kind zookeeper`,
    /// whatever the lock is
    #[arg(long, value_name = "NUMBER", num_args = 0..=1, default_missing_value = "1")]
    pub(super) zookeeper: Option<EnsembleSize>,
    /// The seckill program [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    pub(super) seckill: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Db {
    /// One MySQL
    Mysql,
    /// One MariaDB
    Mariadb,
    /// A primary with a semi-synchronous replica
    SemiSync,
    /// A primary with an asynchronous replica
    Async,
    /// Three Galera nodes
    Galera,
    /// Two shards and their front, by the engine Spider
    Sharded,
}

impl Db {
    fn topology(self) -> Topology {
        match self {
            Self::Mysql | Self::Mariadb => Topology::Single,
            Self::SemiSync => Topology::SemiSync,
            Self::Async => Topology::Async,
            Self::Galera => Topology::Galera,
            Self::Sharded => Topology::Sharded,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RedisServers {
    /// What `REDIS_SERVER` names, or `redis-server`
    Single,
    /// A master with two replicas and three sentinels
    Sentinel,
    /// A Redis Cluster of three masters
    Cluster,
    /// One Valkey
    Valkey,
}

impl RedisServers {
    fn topology(self) -> Topology {
        match self {
            Self::Single | Self::Valkey => Topology::Single,
            Self::Sentinel => Topology::Sentinel,
            Self::Cluster => Topology::RedisCluster,
        }
    }
}

/// How many servers vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum EnsembleSize {
    /// One server
    #[value(name = "1")]
    One,
    /// Three servers
    #[value(name = "3")]
    Three,
}

impl EnsembleSize {
    fn topology(self) -> Topology {
        match self {
            Self::One => Topology::Single,
            Self::Three => Topology::Ensemble,
        }
    }
}

impl PrivateArgs {
    /// The programs of the servers.
    pub(super) fn servers(&self) -> ServerPrograms {
        let flavor = match self.db {
            None | Some(Db::SemiSync | Db::Async) => Flavor::Any,
            Some(Db::Mysql) => Flavor::MySql,
            Some(Db::Mariadb | Db::Galera | Db::Sharded) => Flavor::MariaDb,
        };
        ServerPrograms { flavor, valkey: self.redis == Some(RedisServers::Valkey) }
    }

    /// How many of each server there are. A deployment has several of one, or of all three.
    pub(super) fn topology(&self) -> Result<Topology> {
        let each = [
            self.redis.map(RedisServers::topology),
            self.db.map(Db::topology),
            self.zookeeper.map(EnsembleSize::topology),
        ];
        let several: Vec<Topology> =
            each.into_iter().flatten().filter(|it| !it.is_single()).collect();
        match several[..] {
            [] => Ok(Topology::Single),
            [one] => Ok(one),
            [Topology::Sentinel, Topology::SemiSync, Topology::Ensemble] => {
                Ok(Topology::Replicated)
            }
            _ => {
                let names: Vec<&str> = several.iter().map(|topology| topology.name()).collect();
                let what = format!(
                    "no deployment has {} together: choose several servers by one of --redis, \
                     --database and --zookeeper, or all of --redis sentinel --database semi-sync \
                     --zookeeper 3",
                    names.join(" and ")
                );
                Err(Error::Usage(what))
            }
        }
    }

    /// As [`Self::parts`], for a command that names the servers of each cell itself.
    pub(super) fn parts_without_topology(&self) -> Result<ClusterSpec> {
        let db = match self.db {
            Some(Db::Galera | Db::Sharded) => Some(Db::Mariadb),
            one => one.filter(|db| db.topology().is_single()),
        };
        let redis = self.redis.filter(|redis| redis.topology().is_single());
        Self { db, redis, zookeeper: None, seckill: self.seckill.clone() }.parts()
    }

    /// As [`Self::parts`], for a command that runs on one server of each.
    pub(super) fn parts_of_one_server(&self) -> Result<ClusterSpec> {
        if self.topology()?.is_single() {
            return self.parts();
        }
        let what = "only matrix, compare and up run on several servers: leave out --zookeeper, and \
                    choose mysql or mariadb, and single or valkey";
        Err(Error::Usage(what.to_owned()))
    }

    /// What clusters are made of; the program is there.
    pub(super) fn parts(&self) -> Result<ClusterSpec> {
        let program = find_program(self.seckill.as_deref())?;
        let chosen = [
            ("--db", self.db.as_ref().map(name)),
            ("--redis", self.redis.as_ref().map(name)),
            ("--zookeeper", self.zookeeper.as_ref().map(name)),
            ("--seckill", self.seckill.as_ref().map(|path| path.display().to_string())),
        ];
        let chosen = chosen.into_iter().filter_map(|(flag, value)| Some((flag, value?))).collect();
        Ok(ClusterSpec { servers: self.servers(), program, chosen })
    }
}

/// The name on the command line.
fn name(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        private: PrivateArgs,
    }

    fn parsed(flags: &str) -> PrivateArgs {
        Line::try_parse_from(flags.split(' ')).expect(flags).private
    }

    #[test]
    fn servers_of_one_sort_or_of_all_three_are_a_topology() {
        for (flags, expected) in [
            ("-", Topology::Single),
            ("- --redis single --db mariadb --zookeeper 1", Topology::Single),
            ("- --redis valkey --zookeeper", Topology::Single),
            ("- --redis sentinel", Topology::Sentinel),
            ("- --redis cluster --database mysql", Topology::RedisCluster),
            ("- --redis valkey --database semi-sync", Topology::SemiSync),
            ("- --database async", Topology::Async),
            ("- --zookeeper 3", Topology::Ensemble),
            ("- --zookeeper 3 --db semi-sync --redis sentinel", Topology::Replicated),
        ] {
            assert_eq!(parsed(flags).topology().expect(flags), expected, "{flags}");
        }
        for flags in ["- --redis sentinel --db galera", "- --redis cluster --zookeeper 3"] {
            let error = parsed(flags).topology().expect_err(flags);
            assert!(error.exit_code() == 2 && error.to_string().contains(" together"), "{error}");
        }
    }

    #[test]
    fn what_was_chosen_is_repeated_by_name_and_a_topology_is_not_that_of_a_command_for_one_server()
    {
        let seckill = std::env::current_exe().expect("this program").display().to_string();
        let flags = |rest: &str| parsed(&format!("- --seckill {seckill} {rest}"));
        let parts = flags("--redis valkey --db mysql").parts_of_one_server().expect("one of each");
        let chosen: Vec<_> = parts.chosen.iter().map(|(flag, value)| (*flag, &value[..])).collect();
        assert_eq!(chosen, [("--db", "mysql"), ("--redis", "valkey"), ("--seckill", &seckill)]);
        assert!(parts.servers.valkey);
        let cell = flags("--redis sentinel").parts_without_topology().expect("its program");
        assert_eq!(cell.chosen.len(), 1, "each cell names its servers");
        assert_eq!(flags("--zookeeper 3").parts_of_one_server().expect_err("three").exit_code(), 2);
    }
}
