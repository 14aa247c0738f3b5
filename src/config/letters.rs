//! What `seckill dead-letters` is told.

use clap::{Args, Subcommand};
use secrecy::{ExposeSecret, SecretString};

use super::Database;
use super::locks::{check_database, check_redis};
use super::path::QUEUE_LENGTH;
use crate::domain::{TicketId, VoucherId};

/// `seckill dead-letters`.
#[derive(Debug, Subcommand)]
pub enum DeadLettersCommand {
    /// List them, oldest first, a line of JSON each; at most a thousand.
    List(DeadLettersList),
    /// Admit them again, with the tickets that they had: exit 1 if one of them cannot be. Meanwhile
    /// its user may have bought otherwise.
    Replay(DeadLettersReplay),
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
pub struct DeadLettersReplay {
    /// The database.
    #[command(flatten)]
    pub database: Database,
    /// The Redis of the replicas.
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub redis_url: SecretString,
    /// The most purchases of one voucher that are admitted and not yet written; more are not
    /// admitted again.
    #[arg(long, env = "QUEUE_LENGTH", default_value_t = QUEUE_LENGTH)]
    pub queue_length: usize,
    /// These tickets.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub tickets: Vec<TicketId>,
    /// All that `list` shows.
    #[arg(long)]
    pub all: bool,
}

impl DeadLettersList {
    /// What is wrong with it, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        check_database(&self.database.database_url)
    }
}

impl DeadLettersReplay {
    /// What is wrong with it, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        check_database(&self.database.database_url)?;
        check_redis("REDIS_URL", self.redis_url.expose_secret())
    }
}
