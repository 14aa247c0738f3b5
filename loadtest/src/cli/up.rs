//! `loadtest up`: its flags.

use clap::Args;
use loadtest_judge::setting::{Guards, Scope};
use loadtest_lab::cell_axes::{CellAxes, PurchaseMode};
use loadtest_lab::cluster::find_program;
use loadtest_lab::lock::{ExtraServers, Lock};
use loadtest_measure::error::Result;

use super::private::{EnsembleSize, PrivateArgs};
use super::{EXIT_CODES, stop_on_signal};
use crate::up::UpConfig;

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct UpArgs {
    #[command(flatten)]
    private: PrivateArgs,
    /// Kind of the lock around a purchase
    #[arg(long, value_name = "LOCK", default_value = "redisson")]
    lock: Lock,
    /// What the lock is held for: all purchases of a user, or of a voucher
    #[arg(long, value_name = "SCOPE", default_value = "user")]
    scope: Scope,
    /// Whether the unique key and the stock condition are enforced; `off` leaves only the lock
    #[arg(long, value_name = "GUARDS", default_value = "on")]
    guards: Guards,
    /// Number of replicas behind HAProxy
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=16))]
    replicas: u16,
    /// When replicas answer a purchase: after the COMMIT, or at admission with a ticket
    #[arg(long, alias = "path", value_name = "MODE", default_value = "direct")]
    mode: PurchaseMode,
    /// Start an etcd as well, for `seckill lock run --kind etcd`
    #[arg(long)]
    etcd: bool,
    /// Start a NATS server as well, for `seckill lock run --kind nats`
    #[arg(long)]
    nats: bool,
    /// Send this many buyers, 1 to 100000, to the open voucher, each with three simultaneous
    /// requests, and print the result
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    crowd: Option<u32>,
    /// Serve the race board too: two cells side by side, live in a browser on this machine. It
    /// starts two more deployments when its page is first opened, on one server of each sort
    #[arg(long)]
    board: bool,
    /// Port of the page [default: 8080, or another one if that is in use]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
}

/// Returns when the cluster has been taken down.
pub(super) async fn run(args: UpArgs) -> Result<bool> {
    let UpArgs { private, lock, scope, guards, replicas, mode, .. } = args;
    let UpArgs { etcd, nats, crowd, board, port, .. } = args;
    let wanted = [
        (private.zookeeper == Some(EnsembleSize::One), ExtraServers::ZooKeeper),
        (etcd, ExtraServers::Etcd),
        (nats, ExtraServers::Nats),
    ];
    let lock_servers =
        wanted.into_iter().filter_map(|(is_wanted, kind)| is_wanted.then_some(kind)).collect();
    let up = UpConfig {
        servers: private.servers(),
        topology: private.topology()?,
        program: find_program(private.seckill.as_deref())?,
        axes: CellAxes { lock, scope, guards, replicas },
        mode,
        lock_servers,
        port,
        crowd: crowd.map(|buyers| buyers as usize),
        board,
    };
    up.run(&stop_on_signal()?).await.map(|()| true)
}
