//! Flags of access tokens, and the command line of `seckill token revoke`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::Database;
use super::login::PhoneArgs;
use crate::domain::UserId;
use crate::revocation::RevocationRules;

/// The default of `--token-max-age-s`: the default life of tokens of `seckill token`.
const MAX_AGE_S: u32 = 86_400;

/// The flags of tokens.
#[derive(Debug, Args)]
pub struct TokenArgs {
    /// Life of a login in seconds: 60 to 2592000. Shorter means more logins, longer more use of a
    /// stolen token.
    #[arg(long, env = "TOKEN_TTL_S", default_value_t = 43_200,
          value_parser = clap::value_parser!(u32).range(60..=2_592_000))]
    pub token_ttl_s: u32,
    /// Age in seconds from which any token is refused, also those of `seckill token`: 60 to
    /// 31536000. Revocations are kept as long. Must be the same for all replicas [default: 86400,
    /// or `TOKEN_TTL_S` if that is longer]
    #[arg(long, env = "TOKEN_MAX_AGE_S",
          value_parser = clap::value_parser!(u32).range(60..=31_536_000))]
    pub token_max_age_s: Option<u32>,
    /// Milliseconds between two reads of revoked tokens: 50 to 60000. Another replica's revocation
    /// takes effect within this time; raise it to spare the database.
    #[arg(long, env = "REVOCATION_POLL_MS", default_value_t = 500,
          value_parser = clap::value_parser!(u32).range(50..=60_000))]
    pub revocation_poll_ms: u32,
    /// Seconds for which those reads may fail before requests with a token are answered 503: 1 to
    /// 3600. Raise it to bridge longer outages of the database.
    #[arg(long, env = "REVOCATION_STALE_S", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub revocation_stale_s: u32,
    /// Most users with revoked tokens that a replica keeps in memory, at about 32 bytes each: 1 to
    /// 10000000. Beyond it the latest are kept, and tokens older than those are refused.
    #[arg(long, env = "MAX_REVOCATIONS", default_value_t = 100_000,
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub max_revocations: u32,
}

impl TokenArgs {
    /// Values that contradict each other, as a sentence.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.max_age_s() < self.token_ttl_s {
            return Err("--token-max-age-s must be at least --token-ttl-s".to_owned());
        }
        Ok(())
    }

    /// How long a login lasts.
    pub fn life(&self) -> Duration {
        Duration::from_secs(self.token_ttl_s.into())
    }

    /// The longest life of any token.
    pub fn max_age_s(&self) -> u32 {
        self.token_max_age_s.unwrap_or(MAX_AGE_S.max(self.token_ttl_s))
    }

    /// How revocations are read.
    pub fn revocation_rules(&self) -> RevocationRules {
        RevocationRules {
            poll: Duration::from_millis(self.revocation_poll_ms.into()),
            stale_after: Duration::from_secs(self.revocation_stale_s.into()),
            max_age_s: self.max_age_s(),
            most: self.max_revocations,
        }
    }
}

/// `seckill token ...`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// End all tokens that one user or all users have so far; replicas refuse them within a second.
    /// Exit 1 if no user has that phone.
    Revoke(TokenRevoke),
}

/// `seckill token revoke`.
#[derive(Debug, Args)]
pub struct TokenRevoke {
    /// The database.
    #[command(flatten)]
    pub database: Database,
    /// The users whose tokens are revoked.
    #[command(flatten)]
    pub target: RevocationTarget,
    /// How the phone number is read.
    #[command(flatten)]
    pub country: PhoneArgs,
}

/// The users whose tokens are revoked.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct RevocationTarget {
    /// Revoke the tokens of the user with this id, also of a deleted one.
    #[arg(long, value_name = "ID")]
    pub user: Option<UserId>,
    /// Revoke the tokens of the user with this phone number.
    #[arg(long, value_name = "PHONE")]
    pub phone: Option<String>,
    /// Revoke the tokens of all users.
    #[arg(long)]
    pub all: bool,
}
