//! The command line: its commands, their flags, and their exit codes.

mod bench;
mod check;
mod injected_bugs;
mod learn;
mod matrix;
mod output;
mod private;
mod run;
mod up;

use std::process::ExitCode;
use std::time::Duration;

use clap::error::{ContextKind, ErrorKind};
use clap::{Args, Parser, Subcommand};
use loadtest_judge::setting::{Guards, Scope};
use loadtest_lab::cell_axes::{InjectedBug, Load, PurchaseMode, Writer};
use loadtest_lab::compare::Comparison;
use loadtest_lab::fleet::{Fleet, JvmBug, JvmLocalLock, ReplicasOf};
use loadtest_lab::lock::Lock;
use loadtest_lab::results::RunEvent;
use loadtest_load::cost::THREADS;
use loadtest_measure::error::{Error, Result};
use loadtest_measure::print::print_status;
use loadtest_report::COMPARISON;
use loadtest_report::progress::comparison_line;
use tokio_util::sync::CancellationToken;

use self::matrix::MatrixArgs;
use self::output::OutputArgs;
use self::private::PrivateArgs;

/// How long what still runs may take to end after a command.
const SHUTDOWN: Duration = Duration::from_secs(5);

const EXIT_CODES: &str = "\
Exit codes: 0 all is well, 1 a check failed or the run was interrupted, 2 bad usage or something \
that must run does not.";

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
    /// own. Every request is recorded. Afterwards every acknowledged order is read by its id, every
    /// user's orders are listed, and the public stock is compared. With --audit-url the service's
    /// own audit is compared too. Meanwhile the vouchers must have no other buyers, and must not
    /// get more stock.
    Run(run::RunArgs),
    /// Compare locks on a private cluster: what each sells too much, or twice
    ///
    /// Starts a private database server, Redis and HAProxy, and for every cell a database and
    /// replicas of its own. Each cell sells a voucher under full load. Then the database itself is
    /// read and compared with the cell's prediction. A cell that was predicted to break and did not
    /// is as wrong as one that was predicted to hold and broke.
    Compare(CompareArgs),
    /// Judge a recorded history again
    ///
    /// Reads the requests and the final reads of a load from the file that it recorded, judges
    /// every rule for every voucher, and names the requests that prove a breach. A history that
    /// was cut off, shows no load worth judging or lacks a final read is bad.
    Check(check::CheckArgs),
    /// Run any set of cells on a private cluster: locks, replicas, guards, faults
    ///
    /// Every cell is a deployment of its own. It sells a voucher under load; meanwhile a fault
    /// happens, is witnessed and healed. Then the database itself is read and judged against the
    /// cell's prediction. A cell that was predicted to break and did not is run up to three times,
    /// and then fails the run. So does a cell that was predicted to hold and broke, and one without
    /// a real load. Bugs that are injected afterwards (--inject-bugs, as the command `inject-bugs`
    /// does) must be caught.
    Matrix(MatrixArgs),
    /// Inject bugs into a private service and see each of them caught
    ///
    /// Every bug is a replica with it (`seckill serve --lab --inject-bug NAME`),
    /// or a setting of the database. Rounds run under the load and the fault in which the bug must
    /// show, until the judge finds it, at most five for each seed. The same round without the bug
    /// must be clean. A bug that is not caught fails the run, and so does a sound service in which
    /// something is found.
    #[command(alias = "plants")]
    InjectBugs(injected_bugs::InjectBugsArgs),
    /// See each lock of the classic tutorial break, and its repair withstand
    ///
    /// Lists the ladder of lessons, from no lock to fencing tokens. For one rung it starts private
    /// servers, says what will happen, and runs a sale under the lock and a fault. The judge names
    /// the requests that prove the breach. Then the repaired lock runs under the same fault. A rung
    /// that does not break fails as one whose repair does.
    Learn(learn::LearnArgs),
    /// Measure the service beside the database's own bare transaction, and hold it to its bars
    ///
    /// Every round measures everything on private servers, in slices in turn, each service in a
    /// deployment of its own. A figure is the median over the rounds of the ratio within a round. A
    /// figure whose rounds differ by more than 20 % is invalid. sysbench must be installed.
    Bench(bench::BenchArgs),
    /// Start a private cluster for a person and leave it running until Ctrl-C
    ///
    /// Starts a private database server, Redis, replicas in development mode and HAProxy, and puts
    /// two vouchers on sale: one open, one a minute later. It prints the address of everything,
    /// with lines to paste into a shell. It reports each replica that ends, and takes everything
    /// down on Ctrl-C. With --board it serves the race board as well, whose deployments start when
    /// its page is first opened.
    Up(up::UpArgs),
}

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
struct CompareArgs {
    #[command(flatten)]
    private: PrivateArgs,
    /// Kinds of the lock around a purchase
    #[arg(
        long,
        value_name = "LOCKS",
        value_delimiter = ',',
        default_value = "none,local,redisson"
    )]
    locks: Vec<Lock>,
    /// What a lock is held for: all purchases of a user, or of a voucher
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', default_value = "user,voucher")]
    scopes: Vec<Scope>,
    /// Whether the unique key and the stock condition are enforced; `off` leaves only the lock
    #[arg(long, value_name = "GUARDS", value_delimiter = ',', default_value = "off,on")]
    guards: Vec<Guards>,
    /// Numbers of replicas, 1 to 16; even ones if they are mixed [default: 1,3, or 4 if mixed]
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    replicas: Option<Vec<u16>>,
    /// Users who want the voucher; at least five for each unit
    #[arg(long, value_name = "N", default_value_t = 700)]
    users: usize,
    /// Units on sale, at least 100
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    stock: u64,
    /// Connections that are kept busy; fewer mean less contention
    #[arg(long, value_name = "N", default_value_t = 96)]
    connections: usize,
    /// Simultaneous requests of each user
    #[arg(long, value_name = "N", default_value_t = 3)]
    requests_per_user: usize,
    /// Extra milliseconds of work inside the locked section, 0 to 2000, the same in all cells
    #[arg(long, value_name = "MS", default_value_t = 0)]
    work_ms: u64,
    /// When replicas answer: after the COMMIT, or at admission with a ticket. `queued` takes no
    /// lock and goes with --locks none --scopes user --guards on
    #[arg(long, alias = "path", value_name = "MODE", default_value = "direct")]
    mode: PurchaseMode,
    /// How replicas write orders: one transaction each, or one for many. A cell in which `grouped`
    /// is refused, or has groups of one as per voucher, is n/a
    #[arg(long, value_name = "WRITER", default_value = "single", conflicts_with = "mode")]
    writer: Writer,
    /// Inject this bug into every replica, to see that the comparison notices
    #[arg(long, alias = "plant", value_name = "NAME")]
    inject_bug: Option<InjectedBug>,
    #[command(flatten)]
    fleet: FleetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What the replicas are.
#[derive(Debug, Args)]
struct FleetArgs {
    /// What the replicas are: this program's own service, the textbook service in Java (`jvm/`),
    /// or both in turn behind one proxy
    #[arg(long, value_name = "PROGRAM", default_value = "rust", overrides_with = "replicas_of")]
    replicas_of: ReplicasOf,
    /// What the lock `local` is in JVM replicas
    #[arg(long, value_name = "LOCK", default_value = "synchronized")]
    jvm_local_lock: JvmLocalLock,
    /// Inject this bug into every JVM replica
    #[arg(long, value_name = "NAME")]
    inject_jvm_bug: Option<JvmBug>,
}

impl FleetArgs {
    fn fleet(&self) -> Fleet {
        let Self { replicas_of, jvm_local_lock, inject_jvm_bug: jvm_bug } = *self;
        Fleet { replicas_of, jvm_local_lock, jvm_bug, ..Fleet::RUST }
    }
}

/// Parses the command line, carries it out, and gives the exit code.
pub fn main() -> ExitCode {
    let result = parse().and_then(in_runtime);
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            print_status(format_args!("loadtest: {}", error.sentence()));
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
        Command::InjectBugs(args) => injected_bugs::run(args).await,
        Command::Learn(args) => Box::pin(learn::run(args)).await,
        Command::Bench(args) => bench::run(args).await,
        Command::Up(args) => up::run(args).await,
    }
}

async fn compare(args: CompareArgs) -> Result<bool> {
    let fleet = args.fleet.fleet();
    let comparison = Comparison {
        parts: args.private.parts()?,
        locks: args.locks,
        scopes: args.scopes,
        guards: args.guards,
        topology: args.private.topology()?,
        replicas: args.replicas.unwrap_or_else(|| fleet.default_replicas()),
        load: Load {
            users: args.users,
            stock: args.stock,
            connections: args.connections,
            requests_per_user: args.requests_per_user,
            work_ms: args.work_ms,
            injected_bug: args.inject_bug,
            mode: args.mode,
            writer: args.writer,
            fleet,
        },
        histories: None,
    };
    comparison.check()?;
    let histories = args.output.histories()?;
    let comparison = Comparison { histories, ..comparison };
    let output = args.output.open(COMPARISON)?;
    let stop = stop_on_signal()?;
    let observer = |event: RunEvent<'_>| print_status(comparison_line(event));
    output.take(comparison.run(&observer, &stop).await?, &stop)
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
