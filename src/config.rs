//! Flags and environment, parsed once. A flag wins over the environment, that over the default.
//! Only this module reads the environment.

mod address;
mod letters;
mod limits;
mod locks;
mod path;
mod serve;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use secrecy::SecretString;

pub use address::Address;
pub use letters::{
    DeadLettersCommand, DeadLettersDrop, DeadLettersList, DeadLettersReplay, Letter,
};
pub use limits::LimitFlags;
pub use locks::{LockCommand, LockList, LockRun, LockServers, RedisArgs};
pub use path::PathArgs;
pub use serve::{GuardsArg, Laboratory, LockOrderArg, ScopeArg, Serve};

/// With the profile of the build. The laboratory asks for both: figures depend on the profile, and
/// only a program with failpoints can fail at them.
const VERSION: &str = if distlock::failpoint::are_compiled_in() {
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("BUILD_PROFILE"), ") with failpoints")
} else {
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("BUILD_PROFILE"), ")")
};

/// A flash-sale voucher service that demonstrates distributed locks.
///
/// Exit codes: 0 fine, 1 a check failed, 2 bad usage or something needed is missing; `lock run` has
/// more.
#[derive(Debug, Parser)]
#[command(version = VERSION, about, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Log filter, e.g. `info` or `seckill=debug`.
    #[arg(long, global = true, env = "RUST_LOG", default_value = "warn,seckill=info",
          value_parser = log_filter)]
    pub log: String,
    /// Log as JSON, a line an event.
    #[arg(long, global = true, env = "LOG_JSON")]
    pub log_json: bool,
}

impl Cli {
    /// Reads the command line and the environment.
    pub fn read() -> Result<Self, clap::Error> {
        let matches = with_negative_numbers(Self::command()).try_get_matches()?;
        let mut cli = Self::from_arg_matches(&matches)?;
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

/// Takes `-1` for the value of a flag, which is then told whose value may not be so low, and not
/// for a flag that nobody knows.
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
    /// Create users and write a token for each.
    Token(Token),
    /// Ask a replica whether it is ready, for health checks: exit 0 or 1.
    Probe(Probe),
    /// Admitted purchases of `--path queued` whose order could not be written again and again.
    #[command(subcommand)]
    DeadLetters(DeadLettersCommand),
    /// Show what each kind of lock guarantees, and what it is known to get wrong.
    Locks(LockList),
    /// Use a lock from the shell.
    #[command(subcommand)]
    Lock(LockCommand),
}

/// Where the database is.
#[derive(Debug, Args)]
pub struct Database {
    /// `mysql://user:password@host:3306/database`, of MySQL or MariaDB.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Address,
}

fn log_filter(text: &str) -> Result<String, String> {
    let parsed = tracing_subscriber::EnvFilter::try_new(text);
    parsed.map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// `seckill migrate`.
#[derive(Debug, Args)]
pub struct Migrate {
    /// The database.
    #[command(flatten)]
    pub database: Database,
    /// Also the tables of the laboratory's unguarded sale.
    #[arg(long, env = "LAB")]
    pub lab: bool,
}

/// `seckill token`.
#[derive(Debug, Args)]
pub struct Token {
    /// The database.
    #[command(flatten)]
    pub database: Database,
    /// The secret of the replicas that are to accept the tokens.
    #[arg(long, env = "JWT_SECRET", hide_env_values = true)]
    pub jwt_secret: SecretString,
    /// How many users.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub users: u32,
    /// The file to write, a line of JSON a user: `{"user_id":"17","token":"..."}`. Only its owner
    /// can read it.
    #[arg(long)]
    pub out: PathBuf,
    /// Make them admins.
    #[arg(long)]
    pub admin: bool,
    /// How long the tokens last, in seconds.
    #[arg(long, default_value_t = 86_400,
          value_parser = clap::value_parser!(u32).range(1..=31_536_000))]
    pub ttl_s: u32,
}

/// `seckill probe`.
#[derive(Debug, Args)]
pub struct Probe {
    /// The replica's address and port.
    #[arg(long, default_value = "127.0.0.1:8080", env = "PROBE")]
    pub address: SocketAddr,
}
