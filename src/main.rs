//! The command line: serve, migrate, token, probe, dead-letters, locks, lock run.

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
    Cli, Command, DeadLettersCommand, LockCommand, Migrate, Probe, Serve, Token,
};
use seckill::domain::{Phone, Role};
use seckill::store::{self, Users};
use seckill::telemetry;
use seckill::token::{Identity, Tokens};
use seckill::{database, letters, lock};
use tokio::signal::unix::{SignalKind, signal};

/// The C library's own took a sixth of a purchase's processor time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) if is_help(&error) => error.exit(),
        Err(error) => return fail(&bad_usage(&error)),
    };
    telemetry::start_log(&cli.log, cli.log_json);
    let done = match cli.command {
        Command::Serve(config) => serve(&config).await,
        Command::Migrate(config) => migrate(&config).await,
        Command::Token(config) => token(&config).await,
        Command::Probe(config) => return probe(&config),
        Command::DeadLetters(command) => match dead_letters(&command).await {
            Ok(true) => Ok(()),
            Ok(false) => return ExitCode::FAILURE,
            Err(error) => Err(error),
        },
        Command::Locks(config) => say(&lock::list(config.json)),
        Command::Lock(LockCommand::Run(config)) => {
            let (code, sentence) = lock::run(&config).await;
            if let Some(sentence) = sentence {
                eprintln!("seckill: {sentence}");
            }
            return ExitCode::from(code);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&sentence(&error)),
    }
}

fn fail(sentence: &str) -> ExitCode {
    eprintln!("seckill: {sentence}");
    ExitCode::from(2)
}

fn is_help(error: &clap::Error) -> bool {
    !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// What clap says in paragraphs, as one line.
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

/// The contexts and the cause in one line. Errors that only wrap their cause repeat its text; of
/// these the cause alone is told.
fn sentence(error: &anyhow::Error) -> String {
    let texts: Vec<String> = error.chain().map(ToString::to_string).collect();
    let repeats = |at: usize| texts.get(at + 1).is_some_and(|cause| texts[at].contains(cause));
    let told = (0..texts.len()).filter(|at| !repeats(*at)).map(|at| texts[at].trim());
    told.collect::<Vec<_>>().join(": ").replace('\n', " ")
}

/// A line on stdout, which may have been closed.
fn say(line: &str) -> anyhow::Result<()> {
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
    say(&format!("listening on http://{}", app.address()?))?;
    app.run(end).await;
    Ok(())
}

async fn migrate(config: &Migrate) -> anyhow::Result<()> {
    let address = &config.database.database_url;
    let steps = store::migrate(address.expose(), config.lab)
        .await
        .with_context(|| format!("cannot migrate {}", address.given_as()))?;
    say(&format!("{steps} steps applied, the schema is up to date"))
}

async fn token(config: &Token) -> anyhow::Result<()> {
    let tokens = Tokens::new(&config.jwt_secret)?;
    let pool = database::connect(&config.database).await?;
    let file = open_private(&config.out)
        .with_context(|| format!("cannot write {}", config.out.display()))?;
    let role = if config.admin { Role::Admin } else { Role::Buyer };
    let phones = load_phones(config.users)?;
    let users = Users::new(pool).create(&phones, role).await.context("cannot create users")?;
    // Only now: if the users could not be made, an older file is as it was.
    file.set_len(0).context("cannot write the tokens")?;
    let mut out = BufWriter::new(file);
    let life = Duration::from_secs(u64::from(config.ttl_s));
    for user in users {
        let (token, _) = tokens.issue(Identity { user, role }, life)?;
        writeln!(out, r#"{{"user_id":"{user}","token":"{token}"}}"#)?;
    }
    out.flush().context("cannot write the tokens")?;
    let noun = if config.users == 1 { "token" } else { "tokens" };
    say(&format!("{} {noun} written to {}", config.users, config.out.display()))
}

/// Whether all was done that was asked for.
async fn dead_letters(command: &DeadLettersCommand) -> anyhow::Result<bool> {
    let (lines, all) = match command {
        DeadLettersCommand::List(config) => (letters::list(config).await?, true),
        DeadLettersCommand::Replay(config) => letters::replay(config).await?,
        DeadLettersCommand::Drop(config) => letters::drop_entries(config).await?,
    };
    for line in lines {
        say(&line)?;
    }
    Ok(all)
}

/// A file that only its owner can read, also if it is not a new one.
fn open_private(path: &Path) -> io::Result<File> {
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Numbers that nobody has (+999 is not assigned), different from those of an earlier call.
fn load_phones(count: u32) -> anyhow::Result<Vec<Phone>> {
    let series = u64::from(getrandom::u32()?) % 100_000 * 10_000_000;
    (0..u64::from(count))
        .map(|number| Ok(Phone::new(&format!("+999{:012}", series + number))?))
        .collect()
}

/// Asks `/readyz` in the plainest way, so that a health check costs next to nothing.
fn probe(config: &Probe) -> ExitCode {
    match ask(config) {
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

fn ask(config: &Probe) -> std::io::Result<bool> {
    let patience = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&config.address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n")?;
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    Ok(&head == b"HTTP/1.1 200")
}
