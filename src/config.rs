//! Flags and environment variables, parsed once.
//!
//! A flag wins over a variable, a variable over the default. No other module reads the environment.

mod address;
mod connections;
mod dead_letters;
mod dianping;
mod lock_inspection;
mod lock_run;
mod locks;
mod login;
#[cfg(test)]
mod manifests;
mod purchase_mode;
mod rate_limits;
mod serve;
mod tokens;
mod traces;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use secrecy::SecretString;

pub use address::Address;
pub use connections::ConnectionArgs;
pub use dead_letters::{
    DeadLetterRef, DeadLettersCommand, DeadLettersDrop, DeadLettersList, DeadLettersReplay,
};
pub use dianping::{Adopt, ApiKind, DianpingArgs};
pub use lock_inspection::{
    INSPECTOR_SESSION, KindFilter, LockFree, LockList, LockLs, LockShow, LockWaitFor, NamedLockArgs,
};
pub use lock_run::{HELD_LOCKS, LockRun};
pub use locks::{LockAddresses, LockCommand, LockServers, RedisArgs};
pub use login::{LoginFlags, PhoneArgs};
pub use purchase_mode::PurchaseModeArgs;
pub use rate_limits::LimitFlags;
pub use serve::{Laboratory, Serve};
pub use tokens::{RevocationTarget, TokenArgs, TokenCommand, TokenRevoke};
pub use traces::TraceArgs;

use crate::telemetry::parse_log_filter;

/// The version with the build's profile, and whether failpoints are compiled in. The laboratory
/// reads both: figures depend on the profile, and only such a program can fail at its points.
const VERSION: &str = if distlock::failpoint::are_compiled_in() {
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("BUILD_PROFILE"), ") with failpoints")
} else {
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("BUILD_PROFILE"), ")")
};

/// A flash-sale voucher service that demonstrates distributed locks.
///
/// Exit codes: 0 success, 1 a check failed, 2 bad usage or something needed is missing. The
/// commands of `lock` have more.
#[derive(Debug, Parser)]
#[command(version = VERSION, about, max_term_width = 100)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
    /// Log filter, such as `info` or `seckill=debug`; the target `audit` has the changes by admins.
    /// Set debug to see each request. `lock run` adds `distlock=info` to the default: the holder
    /// that it waits for.
    #[arg(long, global = true, env = "RUST_LOG", default_value = LOG_FILTER,
          value_parser = log_filter)]
    pub log: String,
    /// Log as JSON, one event a line, for a log collector.
    #[arg(long, global = true, env = "LOG_JSON")]
    pub log_json: bool,
}

/// The log filter that is used where none is given. NATS' client logs an error at each try to
/// connect; the kind says what is wrong itself.
const LOG_FILTER: &str = "warn,async_nats=off,seckill=info,audit=info";

impl Cli {
    /// Reads the command line and the environment.
    pub fn read() -> Result<Self, clap::Error> {
        let matches = with_negative_numbers(Self::command()).try_get_matches()?;
        let mut cli = Self::from_arg_matches(&matches)?;
        let is_default = matches.value_source("log") == Some(ValueSource::DefaultValue);
        if is_default && matches!(cli.command, Command::Lock(LockCommand::Run(_))) {
            cli.log = format!("{LOG_FILTER},distlock=info");
        }
        if let (Command::Serve(serve), Some((_, matches))) =
            (&mut cli.command, matches.subcommand())
        {
            let is_flag = |name| matches.value_source(name) == Some(ValueSource::CommandLine);
            match (is_flag("bind"), is_flag("port")) {
                (true, true) => {
                    let sentence = "--bind and --port exclude each other";
                    return Err(Self::command().error(ErrorKind::ArgumentConflict, sentence));
                }
                // A flag wins over BIND in the environment.
                (false, true) => serve.bind = None,
                (_, false) => {}
            }
        }
        Ok(cli)
    }
}

/// Takes `-1` for the value of a flag, so that the error is about its range, and not about an
/// unknown flag `-1`.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let take = |arg: Arg| {
        let has_value = arg.get_action().takes_values() && !arg.is_positional();
        arg.allow_negative_numbers(has_value)
    };
    command.mut_args(take).mut_subcommands(with_negative_numbers)
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the API and the page until SIGTERM or SIGINT.
    Serve(Box<Serve>),
    /// Bring the database's schema up to date.
    Migrate(Migrate),
    /// Bring a database of hm-dianping in, for `serve --api hm-dianping`: add what it lacks, and
    /// say what was done. May be run again. Exit 1 if duplicates are in the way.
    Adopt(Adopt),
    /// Create users and write a token for each, for load tests; `token revoke` ends tokens.
    Token(Token),
    /// Ask a replica whether it is ready, for health checks: exit 0 if so, else 1.
    Probe(Probe),
    /// List, replay or drop dead letters: orders of `--mode queued` that could not be written.
    #[command(subcommand)]
    DeadLetters(DeadLettersCommand),
    /// Show what each kind of lock guarantees, and its known flaws.
    Locks(LockList),
    /// Use a lock from the shell.
    #[command(subcommand)]
    Lock(LockCommand),
}

/// Where the database is.
#[derive(Debug, Args)]
pub struct Database {
    /// Address of MySQL or MariaDB: `mysql://user:password@host:3306/database`. Of a primary and its
    /// replicas, name all: `user:password@host1:3306,host2:3306`.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Address,
}

fn log_filter(text: &str) -> Result<String, String> {
    parse_log_filter(text).map(|_| text.to_owned())
}

/// `seckill migrate`.
#[derive(Debug, Args)]
pub struct Migrate {
    /// The database.
    #[command(flatten)]
    pub database: Database,
    /// How phone numbers are read.
    #[command(flatten)]
    pub phone: PhoneArgs,
    /// Make the tables of the laboratory's unguarded sale too.
    #[arg(long, env = "LAB")]
    pub lab: bool,
}

/// `seckill token`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Token {
    /// The command, instead of creating users.
    #[command(subcommand)]
    pub command: Option<TokenCommand>,
    /// Address of MySQL or MariaDB: `mysql://user:password@host:3306/database`. Of a primary and its
    /// replicas, name all: `user:password@host1:3306,host2:3306`.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, required = true)]
    pub database_url: Option<Address>,
    /// Key that signs the tokens: that of the replicas that shall accept them.
    #[arg(long, env = "JWT_SECRET", hide_env_values = true, required = true)]
    pub jwt_secret: Option<SecretString>,
    /// Number of users to create, one token each: 1 to 1000000.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub users: u32,
    /// File to write, a line of JSON a user: `{"user_id":"17","token":"..."}`. Only its owner can
    /// read it.
    #[arg(long, required = true)]
    pub out: Option<PathBuf>,
    /// Make the users admins.
    #[arg(long)]
    pub admin: bool,
    /// Life of the tokens in seconds: 1 to 31536000. Replicas refuse tokens from the age
    /// `TOKEN_MAX_AGE_S` on, a day by default; raise both for longer load tests.
    #[arg(long, default_value_t = 86_400,
          value_parser = clap::value_parser!(u32).range(1..=31_536_000))]
    pub ttl_s: u32,
}

/// `seckill probe`.
#[derive(Debug, Args)]
pub struct Probe {
    /// Address and port of the replica.
    #[arg(long, default_value = "127.0.0.1:8080", env = "PROBE")]
    pub address: SocketAddr,
}

#[cfg(test)]
mod tests {
    use std::any::TypeId;

    use super::*;

    /// Every visible flag with a whole number, behind the words of its command.
    fn numbers(command: &clap::Command, before: &[String], found: &mut Vec<(Vec<String>, Arg)>) {
        let words = [before, &[command.get_name().to_owned()]].concat();
        let is_number = |arg: &&Arg| {
            let takes = arg.get_value_parser().type_id();
            !arg.is_hide_set() && (takes == TypeId::of::<u32>() || takes == TypeId::of::<u16>())
        };
        found.extend(command.get_arguments().filter(is_number).map(|a| (words.clone(), a.clone())));
        for command in command.get_subcommands() {
            numbers(command, &words, found);
        }
    }

    /// The bounds in a text such as "Seconds to wait: 1 to 60.".
    fn bounds(help: &str) -> Option<[i64; 2]> {
        let words: Vec<&str> = help.split_whitespace().collect();
        words.windows(3).find_map(|three| match three {
            [low, "to", high] => {
                let high = high.trim_end_matches(['.', ',', ';', ':']);
                Some([low.parse().ok()?, high.parse().ok()?])
            }
            _ => None,
        })
    }

    fn is_refused(words: &[String], flag: &str, value: i64) -> bool {
        let given = words.iter().cloned().chain([format!("--{flag}"), value.to_string()]);
        let parsed = with_negative_numbers(Cli::command()).try_get_matches_from(given);
        parsed.is_err_and(|error| error.kind() == ErrorKind::ValueValidation)
    }

    #[test]
    fn the_help_of_a_number_states_the_range_that_is_accepted() {
        let mut found = Vec::new();
        numbers(&Cli::command(), &[], &mut found);
        assert!(found.len() > 30, "{}", found.len());
        for (words, arg) in found {
            let flag = arg.get_long().expect("a long name");
            let help = arg.get_help().expect("help").to_string();
            if flag == "port" {
                continue; // Ports have one range everywhere.
            }
            let [low, high] = bounds(&help).unwrap_or_else(|| panic!("--{flag}: {help}"));
            for (value, refused) in [(low - 1, true), (low, false), (high, false), (high + 1, true)]
            {
                assert_eq!(is_refused(&words, flag, value), refused, "{words:?} --{flag} {value}");
            }
        }
    }
}
