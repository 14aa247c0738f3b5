//! `loadtest up`: its flags.

use clap::Args;

use super::{EXIT_CODES, PrivateArgs, stop_on_signal};
use crate::error::Result;
use crate::lab::cluster::find_program;
use crate::lab::lock::Lock;
use crate::lab::place::{Path, Place};
use crate::lab::predict::{Guards, Scope};
use crate::up::Up;

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct UpArgs {
    #[command(flatten)]
    private: PrivateArgs,
    /// Lock around a purchase
    #[arg(long, value_name = "LOCK", default_value = "redisson")]
    lock: Lock,
    /// What the lock is held for
    #[arg(long, value_name = "SCOPE", default_value = "user")]
    scope: Scope,
    /// Whether the database's unique key and stock condition guard the sale as well
    #[arg(long, value_name = "GUARDS", default_value = "on")]
    guards: Guards,
    /// Replicas
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=16))]
    replicas: u16,
    /// When replicas answer a purchase
    #[arg(long, value_name = "PATH", default_value = "direct")]
    path: Path,
    /// Start a ZooKeeper as well, for `seckill lock run --kind zookeeper`
    #[arg(long)]
    zookeeper: bool,
    /// Send this many buyers, 1 to 100000, for the open voucher, each with three simultaneous
    /// requests, and print what came of it
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    crowd: Option<u32>,
    /// Port of the page [default: 8080, or another one if that is in use]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
}

/// Returns when the cluster has been taken down.
pub(super) async fn run(args: UpArgs) -> Result<bool> {
    let UpArgs { private, lock, scope, guards, replicas, path, zookeeper, crowd, port } = args;
    let up = Up {
        flavor: private.flavor(),
        program: find_program(private.seckill.as_deref())?,
        place: Place { lock, scope, guards, replicas },
        path,
        zookeeper,
        port,
        crowd: crowd.map(|buyers| buyers as usize),
    };
    up.run(&stop_on_signal()?).await.map(|()| true)
}
