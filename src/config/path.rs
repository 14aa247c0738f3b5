//! What `seckill serve` is told of the path that purchases take.

use clap::Args;

use super::serve::{LOCK, ScopeArg, Serve};
use crate::sale::{OnLost, Path, Plant, Writer};

/// The most entries in the stream of a voucher, unless told otherwise.
pub(super) const QUEUE_LENGTH: usize = 100_000;
/// What the path `queued` takes.
const NO_LOCK: &str = "none";

/// When a purchase is answered.
#[derive(Debug, Args)]
pub struct PathArgs {
    /// When a purchase is answered: when its order is committed, or when it is admitted in Redis,
    /// with a ticket; its order is then written from a stream. `queued` needs `--writer grouped`
    /// and takes no lock.
    #[arg(long, env = "SALE_PATH", value_enum, default_value = "direct")]
    pub path: Path,
    /// The most purchases of one voucher that are admitted and not yet written, with `--path
    /// queued`; more are answered 503 at once [default: 100000]
    #[arg(long, env = "QUEUE_LENGTH",
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub queue_length: Option<u32>,
}

impl PathArgs {
    /// The most entries in the stream of a voucher.
    pub fn queue_length(&self) -> usize {
        self.queue_length.map_or(QUEUE_LENGTH, |length| length as usize)
    }
}

/// Combinations that make no sense, as a sentence each.
pub(super) fn check_path(serve: &Serve) -> Result<(), String> {
    let lab = &serve.laboratory;
    let lost_compensation = lab.plant == Some(Plant::LostCompensation);
    if serve.path.path == Path::Direct {
        return match (serve.path.queue_length, lost_compensation) {
            (None, false) => Ok(()),
            (Some(_), _) => Err("--queue-length is for --path queued".to_owned()),
            (None, true) => Err("that --plant is a bug of --path queued".to_owned()),
        };
    }
    let name = serve.lock.to_string();
    let no_lock = "no lock is taken: admission keeps a user's second purchase out";
    let single = "orders are written from a stream, many at a time: it needs --writer grouped";
    let senseless = [
        (serve.writer == Writer::Single, "--writer single", single),
        (name != LOCK && name != NO_LOCK, "that --lock", no_lock),
        (serve.lock_scope == ScopeArg::Voucher, "--lock-scope voucher", no_lock),
        (lab.on_lost == OnLost::Ignore, "--on-lost ignore", no_lock),
    ];
    match senseless.iter().find(|(is_asked_for, ..)| *is_asked_for) {
        Some((_, what, why)) => Err(format!("--path queued makes no sense with {what}: {why}")),
        None => Ok(()),
    }
}
