//! Flags of logins.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use crate::domain::Country;
use crate::outbox::Outbox;
use crate::store::{CodeRules, Rate};

/// How phone numbers are read.
#[derive(Debug, Args)]
pub struct PhoneArgs {
    /// Country (ISO 3166) of phone numbers without a country code. Must be the same for all
    /// replicas and for `migrate`.
    #[arg(long, env = "PHONE_COUNTRY", default_value = "CN")]
    pub phone_country: Country,
}

/// The flags of logins.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logins")]
pub struct LoginFlags {
    /// How phone numbers are read.
    #[command(flatten)]
    pub phone: PhoneArgs,
    /// Where login codes are written, one line of JSON each: a file, or `-` for stdout. Without it
    /// logins are refused, except with --dev.
    #[arg(long, env = "LOGIN_CODE_OUTBOX")]
    pub login_code_outbox: Option<PathBuf>,
    /// Life of a login code in seconds: 30 to 3600. Raise it if messages arrive late.
    #[arg(long, env = "LOGIN_CODE_TTL_S", default_value_t = 300,
          value_parser = clap::value_parser!(u32).range(30..=3600))]
    pub login_code_ttl_s: u32,
    /// Wrong guesses until a login code is void: 1 to 10. Lower it against guessing.
    #[arg(long, env = "LOGIN_CODE_TRIES", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=10))]
    pub login_code_tries: u32,
    /// Most login codes of one phone at a time: 1 to 100. With --limit-codes-address one address
    /// gets half of a phone's codes, so that it cannot use up all of them.
    #[arg(long, env = "LOGIN_CODES_AT_ONCE", default_value_t = 6,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub login_codes_at_once: u32,
    /// Login codes of one phone a day after those at once, one each 24 h / N: 1 to 1000. A guesser
    /// has (at once + a day) x tries of a million codes a day: 48 with the defaults.
    #[arg(long, env = "LOGIN_CODES_A_DAY", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub login_codes_a_day: u32,
}

impl LoginFlags {
    /// Opens the outbox of login codes; a file is opened once as a check.
    pub fn open_outbox(&self, dev: bool) -> anyhow::Result<Outbox> {
        let name = self.login_code_outbox.as_deref();
        Outbox::open(name, dev).context("cannot open LOGIN_CODE_OUTBOX for writing")
    }

    /// The rules of a login code.
    pub fn code_rules(&self) -> CodeRules {
        CodeRules {
            life: Duration::from_secs(self.login_code_ttl_s.into()),
            tries: self.login_code_tries,
            live: self.login_codes_at_once,
        }
    }

    /// The rate of login codes of a phone.
    pub fn codes_of_phone(&self) -> Rate {
        let interval = Duration::from_hours(24) / self.login_codes_a_day;
        Rate { most: self.login_codes_at_once, period: interval * self.login_codes_at_once }
    }
}
