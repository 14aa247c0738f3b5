//! Flags of `seckill serve` that say when a purchase is answered.

use std::time::Duration;

use clap::Args;

use super::serve::{LOCK, Serve};
use crate::sale::{InjectedBug, OnLost, PurchaseMode, Scope, Writer};
use crate::store::{RedisConnection, StreamLeases};

/// The most entries in the stream of a voucher by default.
pub(super) const QUEUE_LENGTH: usize = 100_000;
/// The only lock that goes with the queued mode.
const NO_LOCK: &str = "none";

/// `--mode`, and what the queued mode needs.
#[derive(Debug, Args)]
pub struct PurchaseModeArgs {
    /// When a purchase is answered. `direct`: when its order is committed. `queued`: when it is
    /// admitted in Redis, with a ticket; its order is then written from a stream. `queued` needs
    /// `--writer grouped` and takes no lock [default: direct]
    #[arg(long, env = "PURCHASE_MODE", value_enum)]
    pub mode: Option<PurchaseMode>,
    /// The former name of `--mode`.
    #[arg(long, env = "SALE_PATH", value_enum, hide = true)]
    pub path: Option<PurchaseMode>,
    /// Most purchases of one voucher that are admitted and not yet written, with `--mode queued`: 1
    /// to 10000000. More are answered 503 at once [default: 100000]
    #[arg(long, env = "QUEUE_LENGTH",
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub queue_length: Option<u32>,
    /// Most event streams of tickets that this replica sends at a time: 1 to 100000. More are
    /// answered 503; raise it with --max-connections.
    #[arg(long, env = "MAX_STREAMS", default_value_t = 1024,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_streams: u32,
    /// Most event streams of one user at a time, over all replicas: 1 to 1000. More are answered
    /// 429.
    #[arg(long, env = "MAX_USER_STREAMS", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub max_user_streams: u32,
    /// Seconds for which the event streams of a dead replica count for their users: 3 to 300. Lower
    /// it if users meet 429 after a crash.
    #[arg(long, env = "STREAM_LEASE_S", default_value_t = 15,
          value_parser = clap::value_parser!(u32).range(3..=300))]
    pub stream_lease_s: u32,
}

impl PurchaseModeArgs {
    /// When a purchase is answered.
    pub fn mode(&self) -> PurchaseMode {
        self.mode.or(self.path).unwrap_or(PurchaseMode::Direct)
    }

    /// The most entries in the stream of a voucher.
    pub fn queue_length(&self) -> usize {
        self.queue_length.map_or(QUEUE_LENGTH, |length| length as usize)
    }

    /// The leases of event streams in that Redis.
    pub fn stream_leases(&self, redis: RedisConnection) -> StreamLeases {
        let length = Duration::from_secs(self.stream_lease_s.into());
        StreamLeases::new(redis, self.max_user_streams, length)
    }
}

/// Combinations that make no sense, as a sentence each.
pub(super) fn check_purchase_mode(serve: &Serve) -> Result<(), String> {
    let lab = &serve.laboratory;
    let is_queued_bug = lab.inject_bug.is_some_and(InjectedBug::is_of_queued_mode);
    if serve.purchase_mode.mode() == PurchaseMode::Direct {
        return match (serve.purchase_mode.queue_length, is_queued_bug) {
            (None, false) => Ok(()),
            (Some(_), _) => Err("--queue-length is for --mode queued".to_owned()),
            (None, true) => Err("that --inject-bug is a bug of --mode queued".to_owned()),
        };
    }
    let name = serve.lock.to_string();
    let no_lock = "no lock is taken: admission keeps a user's second purchase out";
    let single = "orders are written from a stream, many at a time: it needs --writer grouped";
    let senseless = [
        (serve.writer == Writer::Single, "--writer single", single),
        (name != LOCK && name != NO_LOCK, "that --lock", no_lock),
        (serve.lock_scope == Scope::Voucher, "--lock-scope voucher", no_lock),
        (lab.on_lost == OnLost::Ignore, "--on-lost ignore", no_lock),
    ];
    match senseless.iter().find(|(is_asked_for, ..)| *is_asked_for) {
        Some((_, what, why)) => Err(format!("--mode queued makes no sense with {what}: {why}")),
        None => Ok(()),
    }
}
