//! Flags and environment, parsed once. A flag wins over the environment, that over the default.
//! This is the only file that reads the environment.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use distlock::LockKind;
use secrecy::SecretString;

use crate::sale::{Guards, LockOrder, Plant, Scope};

/// A flash-sale voucher service that demonstrates distributed locks.
///
/// Exit codes: 0 fine, 1 a check failed, 2 bad usage or something needed is missing.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
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
        let matches = Self::command().try_get_matches()?;
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
}

/// Where the database is.
#[derive(Debug, Args)]
pub struct Database {
    /// `mysql://user:password@host:3306/database`, of MySQL or MariaDB.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: SecretString,
}

/// `seckill serve`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub struct Serve {
    /// The database.
    #[command(flatten)]
    pub database: Database,
    /// `redis://:password@host:6379/0`
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub redis_url: SecretString,
    /// Address and port to listen on, instead of `--port`; port 0 takes a free one.
    #[arg(long, env = "BIND")]
    pub bind: Option<SocketAddr>,
    /// Listen on this port of 127.0.0.1; use `--bind 0.0.0.0:PORT` to be reached from outside.
    #[arg(long, env = "PORT", default_value_t = 8080)]
    pub port: u16,
    /// Signs the tokens: at least 32 bytes, the same for all replicas.
    #[arg(long, env = "JWT_SECRET", hide_env_values = true)]
    pub jwt_secret: Option<SecretString>,
    /// How long a login lasts, in seconds.
    #[arg(long, env = "TOKEN_TTL_S", default_value_t = 43_200,
          value_parser = clap::value_parser!(u32).range(60..=2_592_000))]
    pub token_ttl_s: u32,
    /// Where login codes go: `-` for stdout or a file, a line of JSON each. Without it nobody can
    /// log in, except with --dev.
    #[arg(long, env = "LOGIN_CODE_OUTBOX")]
    pub login_code_outbox: Option<PathBuf>,
    /// Name of this replica in `X-Replica`; default: address and port, or HOSTNAME with a bind
    /// address that says nothing (0.0.0.0).
    #[arg(long, env = "REPLICA_ID", value_parser = replica_name)]
    pub replica_id: Option<String>,
    /// The lock around a purchase.
    #[arg(long, env = "LOCK", default_value = "lua-release",
          value_parser = PossibleValuesParser::new(LockKind::ALL.map(LockKind::as_str)))]
    pub lock: String,
    /// What the lock's name is made of.
    #[arg(long, env = "LOCK_SCOPE", value_enum, default_value = "user")]
    pub lock_scope: ScopeArg,
    /// How long a purchase waits for its lock, in ms; 0 fails at once, as `tryLock()` does.
    #[arg(long, env = "LOCK_WAIT_MS", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(0..=60_000))]
    pub lock_wait_ms: u32,
    /// How long a lock outlives a dead holder, in ms.
    #[arg(long, env = "LEASE_MS", default_value_t = 10_000,
          value_parser = clap::value_parser!(u32).range(10..=3_600_000))]
    pub lease_ms: u32,
    /// The most database connections.
    #[arg(long, env = "DB_POOL", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub db_pool: u32,
    /// The most purchases at a time; more are answered 503 at once.
    #[arg(long, env = "MAX_ORDERS", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_orders: u32,
    /// The most requests at a time; more are answered 503 at once.
    #[arg(long, env = "MAX_REQUESTS", default_value_t = 2048,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_requests: u32,
    /// The most connections; more wait.
    #[arg(long, env = "MAX_CONNECTIONS", default_value_t = 8192,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_connections: u32,
    /// How long to go on answering after SIGTERM, in ms, so that the proxy notices.
    #[arg(long, env = "DRAIN_DELAY_MS", default_value_t = 2000,
          value_parser = clap::value_parser!(u32).range(0..=60_000))]
    pub drain_delay_ms: u32,
    /// Do not bring the schema up to date at the start.
    #[arg(long, env = "NO_MIGRATE")]
    pub no_migrate: bool,
    /// Be ready although another replica locks differently.
    #[arg(long, env = "ALLOW_MIXED")]
    pub allow_mixed: bool,
    /// Accept a Redis that may evict keys, and with them locks.
    #[arg(long, env = "ALLOW_EVICTION")]
    pub allow_eviction: bool,
    /// For development, on a loopback address only: login codes are in the answer, and `JWT_SECRET`
    /// may be missing (then tokens end with the process).
    #[arg(long, env = "DEV")]
    pub dev: bool,
    /// The laboratory's switches.
    #[command(flatten)]
    pub laboratory: Laboratory,
}

/// Switches that break things on purpose.
#[derive(Debug, Args)]
#[command(next_help_heading = "Laboratory (each needs --lab)")]
pub struct Laboratory {
    /// Allow the switches below; on a loopback address only.
    #[arg(long, env = "LAB")]
    pub lab: bool,
    /// off: sell by the textbook's naive code, in tables of its own.
    #[arg(long, env = "GUARDS", value_enum, default_value = "on")]
    pub guards: GuardsArg,
    /// Extra time inside the locked section, in ms.
    #[arg(long, env = "WORK_MS", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=60_000))]
    pub work_ms: u32,
    /// inside: take the lock inside the transaction and free it before the commit.
    #[arg(long, env = "LOCK_ORDER", value_enum, default_value = "outside")]
    pub lock_order: LockOrderArg,
    /// A deliberate bug, to see it caught.
    #[arg(long, value_enum)]
    pub plant: Option<Plant>,
}

/// `--lock-scope`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScopeArg {
    /// One purchase of a user at a time.
    User,
    /// One purchase of a voucher at a time.
    Voucher,
}

/// `--guards`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GuardsArg {
    /// The database has the last word.
    On,
    /// It has not.
    Off,
}

/// `--lock-order`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LockOrderArg {
    /// Around the transaction.
    Outside,
    /// Inside it.
    Inside,
}

impl From<ScopeArg> for Scope {
    fn from(scope: ScopeArg) -> Self {
        match scope {
            ScopeArg::User => Self::User,
            ScopeArg::Voucher => Self::Voucher,
        }
    }
}

impl From<GuardsArg> for Guards {
    fn from(guards: GuardsArg) -> Self {
        match guards {
            GuardsArg::On => Self::On,
            GuardsArg::Off => Self::Off,
        }
    }
}

impl From<LockOrderArg> for LockOrder {
    fn from(order: LockOrderArg) -> Self {
        match order {
            LockOrderArg::Outside => Self::Outside,
            LockOrderArg::Inside => Self::Inside,
        }
    }
}

impl Serve {
    /// The address to listen on.
    pub fn address(&self) -> SocketAddr {
        self.bind.unwrap_or(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.port))
    }

    /// Combinations that make no sense, as a sentence each.
    pub fn check(&self) -> Result<(), String> {
        let lab = &self.laboratory;
        let used = [
            (lab.guards == GuardsArg::Off, "--guards off"),
            (lab.work_ms > 0, "--work-ms"),
            (lab.lock_order == LockOrderArg::Inside, "--lock-order inside"),
            (lab.plant.is_some(), "--plant"),
        ];
        if let Some((_, flag)) = used.iter().find(|(used, _)| *used && !lab.lab) {
            return Err(format!("{flag} breaks things on purpose and needs --lab"));
        }
        if (self.dev || lab.lab) && !self.address().ip().is_loopback() {
            let flag = if self.dev { "--dev" } else { "--lab" };
            return Err(format!("{flag} needs a loopback address, not {}", self.address()));
        }
        if self.jwt_secret.is_none() && !self.dev {
            return Err("JWT_SECRET is missing (only --dev does without)".to_owned());
        }
        Ok(())
    }

    /// The name of a replica that listens there. In a container, HOSTNAME is what tells it apart.
    pub fn replica_name(&self, address: SocketAddr) -> String {
        let host = || std::env::var("HOSTNAME").ok().filter(|host| replica_name(host).is_ok());
        match &self.replica_id {
            Some(name) => name.clone(),
            None if address.ip().is_unspecified() => host().unwrap_or_else(|| address.to_string()),
            None => address.to_string(),
        }
    }

    /// What replicas must have in common to exclude each other.
    pub fn settings(&self) -> String {
        let scope = match self.lock_scope {
            ScopeArg::User => "user",
            ScopeArg::Voucher => "voucher",
        };
        let guards = match self.laboratory.guards {
            GuardsArg::On => "on",
            GuardsArg::Off => "off",
        };
        format!("lock={} scope={scope} guards={guards} writer=single", self.lock)
    }
}

fn log_filter(text: &str) -> Result<String, String> {
    let parsed = tracing_subscriber::EnvFilter::try_new(text);
    parsed.map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn replica_name(text: &str) -> Result<String, String> {
    let fit = (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    if fit { Ok(text.to_owned()) } else { Err("must be 1 to 64 visible ASCII characters".into()) }
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
