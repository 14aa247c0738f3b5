//! The command line: serve, migrate, token, probe, dead-letters, locks, and those of lock.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::error::{ContextKind, ErrorKind};
use seckill::app::App;
use seckill::config::{
    Adopt, Cli, Command, DeadLettersCommand, LockCommand, Migrate, Probe, RevocationTarget, Serve,
    Token, TokenCommand, TokenRevoke,
};
use seckill::domain::{Phone, Role};
use seckill::store::dianping::{self, AdoptError};
use seckill::store::{RevocationTable, Users};
use seckill::telemetry::{self, traces::TraceExport};
use seckill::token::{Identity, Tokens};
use seckill::{database, dead_letters, load_users, lock};
use tokio::signal::unix::{SignalKind, signal};

/// The C library's allocator takes a sixth of a purchase's processor time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long `probe` waits for each step.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("no threads can be started: {error}")),
    };
    let code = runtime.block_on(run());
    // A thread whose line waits for a reader of stdout may never end.
    runtime.shutdown_background();
    code
}

async fn run() -> ExitCode {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) if is_help(&error) => error.exit(),
        Err(error) => return fail(&bad_usage(&error)),
    };
    let traces = match &cli.command {
        Command::Serve(config) => config
            .traces
            .otlp_endpoint
            .as_deref()
            .map(|endpoint| TraceExport::open(endpoint, config.traces.trace_ratio)),
        _ => None,
    };
    let traces = match traces.transpose() {
        Ok(traces) => traces,
        Err(error) => return fail(&one_line(&error)),
    };
    match &traces {
        Some(traces) => traces.start_log(&cli.log, cli.log_json),
        None => telemetry::start_log(&cli.log, cli.log_json),
    }
    let done = match cli.command {
        Command::Serve(config) => {
            let served = serve(&config).await;
            if let Some(traces) = traces {
                traces.close().await;
            }
            served
        }
        Command::Migrate(config) => migrate(&config).await,
        Command::Adopt(config) => match adopt(&config).await {
            Ok(true) => Ok(()),
            Ok(false) => return ExitCode::FAILURE,
            Err(error) => Err(error),
        },
        Command::Token(Token { command: Some(TokenCommand::Revoke(config)), .. }) => {
            match revoke(&config).await {
                Ok(true) => Ok(()),
                Ok(false) => return ExitCode::FAILURE,
                Err(error) => Err(error),
            }
        }
        Command::Token(config) => token(&config).await,
        Command::Probe(config) => return probe(&config),
        Command::DeadLetters(command) => match dead_letters(&command).await {
            Ok(true) => Ok(()),
            Ok(false) => return ExitCode::FAILURE,
            Err(error) => Err(error),
        },
        Command::Locks(config) => print_line(&lock::list(config.json)),
        Command::Lock(command) => {
            let (code, sentence) = match command {
                LockCommand::Run(config) => lock::run(&config).await,
                LockCommand::Ls(config) => lock::list_held(&config).await,
                LockCommand::Show(config) => lock::show(&config).await,
                LockCommand::Free(config) => lock::free(&config).await,
                LockCommand::WaitFor(config) => lock::wait_for(&config).await,
            };
            if let Some(sentence) = sentence {
                eprintln!("seckill: {sentence}");
            }
            return ExitCode::from(code);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&one_line(&error)),
    }
}

fn fail(sentence: &str) -> ExitCode {
    eprintln!("seckill: {sentence}");
    ExitCode::from(2)
}

fn is_help(error: &clap::Error) -> bool {
    !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// The first paragraph of clap's message, as one line.
fn bad_usage(error: &clap::Error) -> String {
    let text = error.to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let paragraph = paragraph.trim_start_matches("error: ");
    let words = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{words}{} (see --help)", suggestion(error))
}

/// The value, flag or command that was probably meant.
fn suggestion(error: &clap::Error) -> String {
    let kinds =
        [ContextKind::SuggestedValue, ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand];
    let meant = kinds.into_iter().find_map(|kind| error.get(kind));
    meant.map_or(String::new(), |meant| format!("; did you mean {meant}?"))
}

/// The contexts and the cause in one line, without errors that only repeat the text of their cause.
fn one_line(error: &anyhow::Error) -> String {
    let texts: Vec<String> = error.chain().map(ToString::to_string).collect();
    let repeats = |at: usize| texts.get(at + 1).is_some_and(|cause| texts[at].contains(cause));
    let told = (0..texts.len()).filter(|at| !repeats(*at)).map(|at| texts[at].trim());
    told.collect::<Vec<_>>().join(": ").replace('\n', " ")
}

/// Prints a line to stdout, which may be closed.
fn print_line(line: &str) -> anyhow::Result<()> {
    writeln!(io::stdout(), "{line}").context("cannot write to stdout")
}

async fn serve(config: &Serve) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let end = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    tokio::pin!(end);
    let app = tokio::select! {
        app = App::start(config) => app?,
        () = &mut end => return Ok(()),
    };
    print_line(&format!("listening on http://{}", app.address()?))?;
    app.run(end).await;
    Ok(())
}

async fn migrate(config: &Migrate) -> anyhow::Result<()> {
    let address = &config.database.database_url;
    let country = config.phone.phone_country;
    let (steps, phones) = database::migrate(address, config.lab, country).await?;
    print_line(&format!("{steps} steps applied, the schema is up to date"))?;
    if phones.normalized > 0 {
        print_line(&format!("{} phone numbers are in E.164 now", phones.normalized))?;
    }
    for user in &phones.set_aside {
        print_line(&user.to_string())?;
    }
    match phones.left_off() {
        0 => Ok(()),
        more => print_line(&format!(
            "and {more} users more: phone_state = 'set_aside' in the table users"
        )),
    }
}

/// Adopts a database of hm-dianping; `false` if duplicates are in the way.
async fn adopt(config: &Adopt) -> anyhow::Result<bool> {
    let mut say = |line: String| drop(print_line(&line));
    let url = config.from.expose();
    let done = if config.undo {
        dianping::undo(url, &mut say).await
    } else {
        dianping::adopt(url, config.duplicates, &mut say).await
    };
    match done {
        Ok(()) => Ok(true),
        Err(error @ AdoptError::Duplicates(_)) => {
            eprintln!("seckill: {error}");
            Ok(false)
        }
        Err(error) => Err(error).with_context(|| format!("cannot use {}", config.from.given_as())),
    }
}

async fn token(config: &Token) -> anyhow::Result<()> {
    let (Some(address), Some(secret), Some(out)) =
        (&config.database_url, &config.jwt_secret, &config.out)
    else {
        anyhow::bail!("--database-url, --jwt-secret and --out are needed");
    };
    let tokens = Tokens::new(secret)?;
    let pool = database::connect(address).await?;
    let file = open_private(out).with_context(|| format!("cannot write {}", out.display()))?;
    let role = if config.admin { Role::Admin } else { Role::Buyer };
    let table = Users::new(pool);
    let users = load_users::create(&table, config.users, role, || fastrand::u32(..)).await;
    let users = users.context("cannot create users")?;
    let issued_ms = table.now_ms().await.context("cannot read the database's clock")?;
    // Last: if the users cannot be created, an older file stays as it is.
    file.set_len(0).context("cannot write the tokens")?;
    let mut lines = BufWriter::new(file);
    let life = Duration::from_secs(u64::from(config.ttl_s));
    for user in users {
        let (token, _) = tokens.issue_at(Identity { user, role }, life, issued_ms)?;
        writeln!(lines, r#"{{"user_id":"{user}","token":"{token}"}}"#)?;
    }
    lines.flush().context("cannot write the tokens")?;
    let noun = if config.users == 1 { "token" } else { "tokens" };
    print_line(&format!("{} {noun} written to {}", config.users, out.display()))
}

/// Revokes tokens; `false` if no user has that phone.
async fn revoke(config: &TokenRevoke) -> anyhow::Result<bool> {
    let RevocationTarget { user, phone, .. } = &config.target;
    let pool = database::connect(&config.database.database_url).await?;
    let user = match phone {
        None => *user,
        Some(phone) => {
            let phone = Phone::parse(phone, config.country.phone_country).context("--phone")?;
            let found =
                Users::new(pool.clone()).id_of(&phone).await.context("cannot read users")?;
            if found.is_none() {
                eprintln!("seckill: no user has the phone {}", phone.masked());
                return Ok(false);
            }
            found
        }
    };
    let table = RevocationTable::new(pool);
    table.revoke(user).await.context("cannot revoke; `seckill migrate` makes the schema")?;
    let whose = user.map_or("all users".to_owned(), |user| format!("user {user}"));
    print_line(&format!("tokens of {whose} are revoked; replicas refuse them within a second"))?;
    Ok(true)
}

/// Runs `dead-letters`; `false` if part of the request was refused.
async fn dead_letters(command: &DeadLettersCommand) -> anyhow::Result<bool> {
    let (lines, all) = match command {
        DeadLettersCommand::List(config) => (dead_letters::list(config).await?, true),
        DeadLettersCommand::Replay(config) => dead_letters::replay(config).await?,
        DeadLettersCommand::Drop(config) => dead_letters::drop_entries(config).await?,
    };
    for line in lines {
        print_line(&line)?;
    }
    Ok(all)
}

/// Opens a file that only its owner can read, also if it exists already.
fn open_private(path: &Path) -> io::Result<File> {
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Asks `/readyz` over a plain socket, so that a health check costs little.
fn probe(config: &Probe) -> ExitCode {
    match is_ready(config) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("seckill: {} is not ready", config.address);
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("seckill: {} does not answer: {error}", config.address);
            ExitCode::FAILURE
        }
    }
}

fn is_ready(config: &Probe) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&config.address, PROBE_TIMEOUT)?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
    stream.set_write_timeout(Some(PROBE_TIMEOUT))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n")?;
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    Ok(&head == b"HTTP/1.1 200")
}
