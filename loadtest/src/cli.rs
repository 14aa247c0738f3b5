//! The command line: its commands, their flags, and their exit codes.

mod bench;
mod check;
mod matrix;
mod output;
mod plants;
mod run;
mod up;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::{ContextKind, ErrorKind};
use clap::{Args, Parser, Subcommand, ValueEnum};
use testbed::Flavor;
use tokio_util::sync::CancellationToken;

use self::matrix::MatrixArgs;
use self::output::OutputArgs;
use crate::error::{Error, Result};
use crate::lab::cluster::find_program;
use crate::lab::compare::Comparison;
use crate::lab::lock::Lock;
use crate::lab::place::{Load, Path, Plant, Writer};
use crate::lab::predict::{Guards, Scope};
use crate::lab::runner::Parts;
use crate::load::cost::THREADS;
use crate::report::COMPARISON;
use crate::say::tell;

/// How long what still runs may take to end after a command.
const SHUTDOWN: Duration = Duration::from_secs(5);

const EXIT_CODES: &str = "\
Exit codes: 0 all is well, 1 a check failed, 2 bad usage or something that must run does not.";

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("BUILD_PROFILE"), ")");

/// Load generator and laboratory of the seckill service.
#[derive(Debug, Parser)]
#[command(name = "loadtest", version = VERSION, about, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Load vouchers of any deployment and judge what came of it
    ///
    /// Users arrive in a closed loop, as fast as connections come free, or on a schedule of their
    /// own. Every request is recorded. Afterwards every acknowledged order is asked for by its id,
    /// every user's orders are listed, the stock that the public is shown is held against them,
    /// and, with --audit-url, the service's own audit is compared. The vouchers must not be sold to
    /// anybody else meanwhile, nor get more stock.
    Run(run::RunArgs),
    /// Compare locks on a private cluster: what each sells too much, or twice
    ///
    /// Starts a private database server, Redis and HAProxy, and for every cell a database and
    /// replicas of its own; sells a voucher under full load; reads the database itself and compares
    /// with what the cell was predicted to show. A cell that was to break and did not is as wrong
    /// as one that was to hold and broke.
    Compare(CompareArgs),
    /// Judge a recorded history again
    ///
    /// Reads the requests and the final reads of a load from the file that it recorded, judges
    /// every rule for every voucher, and names the requests that prove a breach. A history that
    /// was cut off, shows no load worth judging or lacks a final read is bad.
    Check(check::CheckArgs),
    /// Run any set of cells on a private cluster: locks, replicas, guards, faults
    ///
    /// Every cell is a deployment of its own: it sells a voucher under load, meanwhile a fault
    /// happens, is witnessed and healed, and the database itself is read and judged against what
    /// the cell is predicted to show. A cell that was to break and did not is run again a few times
    /// and then as wrong as one that was to hold and broke; so is one that was no real load. Bugs
    /// that are planted afterwards (--plants, as the command `plants` does) must be caught.
    Matrix(MatrixArgs),
    /// Plant bugs in a private service and see each of them caught
    ///
    /// Every bug is a replica that was told to have it (`seckill serve --lab --plant NAME`), or a
    /// setting of the database. Under the load and the fault in which it must show, rounds are run
    /// until the judge finds it, at most five for each seed; the same without the bug must be
    /// clean. A bug that is not caught, or a sound service in which something is found, fails.
    Plants(plants::PlantsArgs),
    /// Measure the service beside the database's own bare transaction, and hold it to its bars
    ///
    /// Every round measures everything on private servers, in slices in turn, each service in a
    /// deployment of its own; a figure is the median over the rounds of the ratio within a round. A
    /// figure whose rounds differ by more than 20 % is invalid. sysbench must be installed.
    Bench(bench::BenchArgs),
    /// Start a private cluster for a person and leave it running until Ctrl-C
    ///
    /// Starts a private database server, Redis, replicas in development mode and HAProxy, puts two
    /// vouchers on sale (one open, one a minute later), prints the address of everything with lines
    /// to paste into a shell, reports each replica that ends, and takes all down on Ctrl-C.
    Up(up::UpArgs),
}

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
struct CompareArgs {
    #[command(flatten)]
    private: PrivateArgs,
    /// Locks around the purchase
    #[arg(
        long,
        value_name = "LOCKS",
        value_delimiter = ',',
        default_value = "none,local,redisson"
    )]
    locks: Vec<Lock>,
    /// What a lock is held for
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', default_value = "user,voucher")]
    scopes: Vec<Scope>,
    /// Whether the database's unique key and stock condition guard the sale as well
    #[arg(long, value_name = "GUARDS", value_delimiter = ',', default_value = "off,on")]
    guards: Vec<Guards>,
    /// Numbers of replicas
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "1,3")]
    replicas: Vec<u16>,
    /// Users who want the voucher
    #[arg(long, value_name = "N", default_value_t = 700)]
    users: usize,
    /// Units on sale
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    stock: u64,
    /// Connections that are kept busy
    #[arg(long, value_name = "N", default_value_t = 96)]
    connections: usize,
    /// Simultaneous requests of each user
    #[arg(long, value_name = "N", default_value_t = 3)]
    requests_per_user: usize,
    /// Extra milliseconds of work inside the locked section, the same in all cells
    #[arg(long, value_name = "MS", default_value_t = 0)]
    work_ms: u64,
    /// When replicas answer; with `queued`, tickets are followed to their ends, and as no lock is
    /// taken the cells are those of --locks none --scopes user --guards on
    #[arg(long, value_name = "PATH", default_value = "direct")]
    path: Path,
    /// How replicas write orders; where `grouped` is refused or has groups of one, as per voucher,
    /// the cell is n/a
    #[arg(long, value_name = "WRITER", default_value = "single", conflicts_with = "path")]
    writer: Writer,
    /// Give every replica this bug, to see that the comparison notices
    #[arg(long, value_name = "NAME")]
    plant: Option<Plant>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct PrivateArgs {
    /// Database server [default: whichever is installed]
    #[arg(long, visible_alias = "database", value_name = "SERVER")]
    db: Option<Db>,
    /// The seckill program [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    seckill: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Db {
    Mysql,
    Mariadb,
}

impl PrivateArgs {
    fn flavor(&self) -> Flavor {
        match self.db {
            None => Flavor::Any,
            Some(Db::Mysql) => Flavor::MySql,
            Some(Db::Mariadb) => Flavor::MariaDb,
        }
    }

    /// What clusters are made of; the program is there.
    fn parts(&self) -> Result<Parts> {
        let program = find_program(self.seckill.as_deref())?;
        let db = self.db.map(|db| match db {
            Db::Mysql => ("--db", "mysql".to_owned()),
            Db::Mariadb => ("--db", "mariadb".to_owned()),
        });
        let named = self.seckill.as_ref().map(|path| ("--seckill", path.display().to_string()));
        let chosen = db.into_iter().chain(named).collect();
        Ok(Parts { flavor: self.flavor(), program, chosen })
    }
}

/// Parses the command line, carries it out, and gives the exit code.
pub fn main() -> ExitCode {
    let result = parse().and_then(in_runtime);
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            tell(format_args!("loadtest: {}", error.sentence()));
            ExitCode::from(error.exit_code())
        }
    }
}

/// The command line; asked for help or a version it prints that and ends the process. What clap
/// says in paragraphs becomes a sentence.
fn parse() -> Result<Cli> {
    Cli::try_parse().map_err(|error| {
        if matches!(
            error.kind(),
            ErrorKind::DisplayHelp
                | ErrorKind::DisplayVersion
                | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        ) {
            error.exit()
        }
        let text = error.to_string();
        let paragraph = text.split("\n\n").next().unwrap_or_default();
        let words: Vec<&str> = paragraph.split_whitespace().collect();
        let sentence = words.join(" ");
        let sentence = sentence.trim_start_matches("error: ");
        Error::Usage(format!("{sentence}{} (see --help)", suggestion(&error)))
    })
}

/// The value, flag or command that was probably meant.
fn suggestion(error: &clap::Error) -> String {
    let kinds =
        [ContextKind::SuggestedValue, ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand];
    let meant = kinds.into_iter().find_map(|kind| error.get(kind));
    meant.map_or(String::new(), |meant| format!("; did you mean {meant}?"))
}

/// Carries the command out on a runtime of its own; whether all checks passed.
fn in_runtime(cli: Cli) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .map_err(|error| Error::Setup(format!("no runtime: {error}")));
    runtime.and_then(|runtime| {
        let result = runtime.block_on(carry_out(cli.command));
        runtime.shutdown_timeout(SHUTDOWN);
        result
    })
}

/// Whether all checks passed.
async fn carry_out(command: Command) -> Result<bool> {
    match command {
        Command::Run(args) => run::run(args).await,
        Command::Compare(args) => compare(args).await,
        Command::Check(args) => check::check(args).await,
        Command::Matrix(args) => matrix::run(args).await,
        Command::Plants(args) => plants::run(args).await,
        Command::Bench(args) => bench::run(args).await,
        Command::Up(args) => up::run(args).await,
    }
}

async fn compare(args: CompareArgs) -> Result<bool> {
    let comparison = Comparison {
        parts: args.private.parts()?,
        locks: args.locks,
        scopes: args.scopes,
        guards: args.guards,
        replicas: args.replicas,
        load: Load {
            users: args.users,
            stock: args.stock,
            connections: args.connections,
            requests_per_user: args.requests_per_user,
            work_ms: args.work_ms,
            plant: args.plant,
            path: args.path,
            writer: args.writer,
        },
        histories: None,
    };
    comparison.check()?;
    let histories = args.output.histories()?;
    let comparison = Comparison { histories, ..comparison };
    let output = args.output.open(COMPARISON)?;
    let stop = stop_on_signal()?;
    output.take(comparison.run(&stop).await?, &stop)
}

/// A token that is cancelled by Ctrl-C or SIGTERM.
fn stop_on_signal() -> Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let listen = |kind| {
        signal(kind).map_err(|error| Error::Setup(format!("signals cannot be awaited: {error}")))
    };
    let (mut interrupt, mut terminate) =
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let stop = CancellationToken::new();
    let cancelled = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        cancelled.cancel();
    });
    Ok(stop)
}
