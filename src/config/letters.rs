//! What `seckill dead-letters` is told.

use std::fmt;
use std::str::FromStr;

use clap::{ArgGroup, Args, Subcommand};

use super::locks::{RedisArgs, check_database, check_redis};
use super::path::QUEUE_LENGTH;
use super::{Address, Database};
use crate::domain::{TicketId, VoucherId};

/// `seckill dead-letters`.
#[derive(Debug, Subcommand)]
pub enum DeadLettersCommand {
    /// List them, oldest first, a line of JSON each; at most a thousand, and as many entries that
    /// nobody could read, with their fields as they were.
    List(DeadLettersList),
    /// Admit them again, with the tickets that they had: exit 1 if one of them cannot be. Meanwhile
    /// its user may have bought otherwise; and what nobody can read can be no purchase.
    Replay(DeadLettersReplay),
    /// Forget entries that nobody could read: exit 1 if one of them is not kept, or is a purchase
    /// that can be replayed.
    Drop(DeadLettersDrop),
}

/// `seckill dead-letters list`.
#[derive(Debug, Args)]
pub struct DeadLettersList {
    /// The database.
    #[command(flatten)]
    pub database: Database,
    /// Of this voucher only.
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
    /// The Redis of the replicas.
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub redis_url: Address,
    /// How it is connected to.
    #[command(flatten)]
    pub redis: RedisArgs,
    /// The most purchases of one voucher that are admitted and not yet written; more are not
    /// admitted again.
    #[arg(long, env = "QUEUE_LENGTH", default_value_t = QUEUE_LENGTH)]
    pub queue_length: usize,
    /// These: tickets, or entries (`7/1712345678901-0`), which are refused with the reason.
    pub letters: Vec<Letter>,
    /// All that `list` shows.
    #[arg(long)]
    pub all: bool,
}

/// Some by name, or all.
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
    /// These: entries (`7/1712345678901-0`), or tickets that they name. A purchase that can be
    /// replayed is refused.
    pub letters: Vec<Letter>,
    /// All entries that nobody could read; purchases, which `list` shows as well, stay.
    #[arg(long)]
    pub all: bool,
}

/// What an operator calls a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Letter {
    /// By its ticket.
    Ticket(TicketId),
    /// An entry that could not be read, by its voucher and its id in the stream.
    Entry(VoucherId, String),
}

impl fmt::Display for Letter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ticket(ticket) => ticket.fmt(f),
            Self::Entry(voucher, entry) => write!(f, "{voucher}/{entry}"),
        }
    }
}

/// Text that names no dead letter.
#[derive(Debug, thiserror::Error)]
#[error(
    "must be a ticket (a UUID of version 7) or an entry (<voucher>/<entry>, such as \
     7/1712345678901-0)"
)]
pub struct BadLetter;

impl FromStr for Letter {
    type Err = BadLetter;

    fn from_str(text: &str) -> Result<Self, BadLetter> {
        let Some((voucher, entry)) = text.split_once('/') else {
            return text.parse().map(Self::Ticket).map_err(|_| BadLetter);
        };
        match voucher.parse() {
            Ok(voucher) if !entry.is_empty() => Ok(Self::Entry(voucher, entry.to_owned())),
            _ => Err(BadLetter),
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
