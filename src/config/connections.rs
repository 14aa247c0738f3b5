//! Flags of `seckill serve` for its client connections.

use std::time::Duration;

use clap::Args;

/// Bounds of the connections of a replica.
#[derive(Debug, Args)]
pub struct ConnectionArgs {
    /// Most open client connections: 1 to 100000. More wait in the kernel's queue. Raise it
    /// together with the hard limit of open files; a replica raises the soft one itself.
    #[arg(long, env = "MAX_CONNECTIONS", default_value_t = 8192,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_connections: u32,
    /// Seconds that a client may read nothing of an answer before its connection is closed: 1 to
    /// 3600. Raise it only for clients that pause for longer.
    #[arg(long, env = "WRITE_TIMEOUT_S", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub write_timeout_s: u32,
}

impl ConnectionArgs {
    /// How long a write may make no progress.
    pub fn write_timeout(&self) -> Duration {
        Duration::from_secs(self.write_timeout_s.into())
    }
}
