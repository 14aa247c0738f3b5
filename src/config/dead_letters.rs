//! The command line of `seckill dead-letters`.

use std::fmt;
use std::str::FromStr;

use clap::{ArgGroup, Args, Subcommand};

use super::locks::{RedisArgs, check_database, check_redis};
use super::purchase_mode::QUEUE_LENGTH;
use super::{Address, Database};
use crate::domain::{TicketId, VoucherId};

/// `seckill dead-letters`.
#[derive(Debug, Subcommand)]
pub enum DeadLettersCommand {
    /// List dead letters, oldest first, one line of JSON each: at most 1000 orders, and at most
    /// 1000 unreadable entries with their fields.
    List(DeadLettersList),
    /// Admit dead letters again, with the same tickets. Exit 1 if one is refused: its user may have
    /// bought meanwhile, or the entry is unreadable.
    Replay(DeadLettersReplay),
    /// Drop unreadable entries. Exit 1 if one does not exist, or is a purchase that can be
    /// replayed.
    Drop(DeadLettersDrop),
}

/// `seckill dead-letters list`.
#[derive(Debug, Args)]
pub struct DeadLettersList {
    /// The database.
    #[command(flatten)]
    pub database: Database,
    /// List those of this voucher only.
    #[arg(long)]
    pub voucher: Option<VoucherId>,
}

/// `seckill dead-letters replay`.
#[derive(Debug, Args)]
#[command(group = which())]
pub struct DeadLettersReplay {
    /// The database.
    #[command(flatten)]
    pub database: Database,
    /// Address of the replicas' Redis, as in `seckill serve`.
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub redis_url: Address,
    /// How it is connected to.
    #[command(flatten)]
    pub redis: RedisArgs,
    /// Most purchases of one voucher that are admitted and not yet written; more are refused. The
    /// value of the replicas.
    #[arg(long, env = "QUEUE_LENGTH", default_value_t = QUEUE_LENGTH)]
    pub queue_length: usize,
    /// Tickets to admit again. Unreadable entries (`7/1712345678901-0`) are refused with the
    /// reason.
    pub letters: Vec<DeadLetterRef>,
    /// Admit everything that `list` shows.
    #[arg(long)]
    pub all: bool,
}

/// Requires some names or `--all`.
fn which() -> ArgGroup {
    ArgGroup::new("which").args(["letters", "all"]).required(true)
}

/// `seckill dead-letters drop`.
#[derive(Debug, Args)]
#[command(group = which())]
pub struct DeadLettersDrop {
    /// The database.
    #[command(flatten)]
    pub database: Database,
    /// Unreadable entries to drop (`7/1712345678901-0`), or the tickets that they name. A purchase
    /// that can be replayed is refused.
    pub letters: Vec<DeadLetterRef>,
    /// Drop all unreadable entries; the purchases that `list` shows stay.
    #[arg(long)]
    pub all: bool,
}

/// How an operator names a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeadLetterRef {
    /// By its ticket.
    Ticket(TicketId),
    /// An entry that could not be read, by its voucher and its id in the stream.
    Entry(VoucherId, String),
}

impl fmt::Display for DeadLetterRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ticket(ticket) => ticket.fmt(f),
            Self::Entry(voucher, entry) => write!(f, "{voucher}/{entry}"),
        }
    }
}

/// A text that names no dead letter.
#[derive(Debug, thiserror::Error)]
#[error(
    "must be a ticket (a UUID of version 7) or an entry (<voucher>/<entry>, such as \
     7/1712345678901-0)"
)]
pub struct InvalidDeadLetterRef;

impl FromStr for DeadLetterRef {
    type Err = InvalidDeadLetterRef;

    fn from_str(text: &str) -> Result<Self, InvalidDeadLetterRef> {
        let Some((voucher, entry)) = text.split_once('/') else {
            return text.parse().map(Self::Ticket).map_err(|_| InvalidDeadLetterRef);
        };
        match voucher.parse() {
            Ok(voucher) if !entry.is_empty() => Ok(Self::Entry(voucher, entry.to_owned())),
            _ => Err(InvalidDeadLetterRef),
        }
    }
}

impl DeadLettersList {
    /// What is wrong with it, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        check_database(&self.database.database_url)
    }
}

impl DeadLettersDrop {
    /// What is wrong with it, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        check_database(&self.database.database_url)
    }
}

impl DeadLettersReplay {
    /// What is wrong with it, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        check_database(&self.database.database_url)?;
        check_redis(&self.redis_url)
    }
}
