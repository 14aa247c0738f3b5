//! The command line: serve, migrate, token, probe.

use std::fs::OpenOptions;
use std::io::{BufWriter, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use seckill::app::App;
use seckill::config::{Cli, Command, Migrate, Probe, Serve, Token};
use seckill::domain::{Phone, Role};
use seckill::store::{self, DatabaseOptions, Users};
use seckill::telemetry;
use seckill::token::{Identity, Tokens};
use secrecy::ExposeSecret;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    telemetry::start_log(&cli.log, cli.log_json);
    let done = match cli.command {
        Command::Serve(config) => serve(&config).await,
        Command::Migrate(config) => migrate(&config).await,
        Command::Token(config) => token(&config).await,
        Command::Probe(config) => return probe(&config),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("seckill: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn serve(config: &Serve) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let app = App::start(config).await?;
    println!("listening on http://{}", app.address()?);
    app.run(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
    .await;
    Ok(())
}

async fn migrate(config: &Migrate) -> anyhow::Result<()> {
    let url = config.database.database_url.expose_secret();
    let steps = store::migrate(url, config.lab).await.context("cannot migrate")?;
    println!("{steps} steps applied, the schema is up to date");
    Ok(())
}

async fn token(config: &Token) -> anyhow::Result<()> {
    let tokens = Tokens::new(&config.jwt_secret)?;
    let url = config.database.database_url.expose_secret().to_owned();
    let pool = store::database(&DatabaseOptions { url, pool_size: 2, naive: false })
        .context("DATABASE_URL is not usable")?;
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&config.out)
        .with_context(|| format!("cannot write {}", config.out.display()))?;
    let mut out = BufWriter::new(file);
    let role = if config.admin { Role::Admin } else { Role::Buyer };
    let phones = load_phones(config.users)?;
    let users = Users::new(pool).create(&phones, role).await.context("cannot create users")?;
    let life = Duration::from_secs(u64::from(config.ttl_s));
    for user in users {
        let (token, _) = tokens.issue(Identity { user, role }, life)?;
        writeln!(out, r#"{{"user_id":"{user}","token":"{token}"}}"#)?;
    }
    out.flush().context("cannot write the tokens")?;
    println!("{} tokens written to {}", config.users, config.out.display());
    Ok(())
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
