//! `seckill lock run`: a command under a lock, as flock(1) does.
//!
//! The command runs in a process group of its own. While it runs the lock is watched: the group
//! gets SIGTERM a grace before belief in the lock ends, or at once if the server says that the
//! lock is gone, and SIGKILL at the end of belief, which comes before the server lets anybody else
//! in. Signals that ask for an end are passed on, and the lock is released after that end.

use std::io;

use distlock::{Backend, Guard, HoldKind, LockError, LockOptions, Locks, LossCause, guarantees};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::group::{Group, exit_code};
use super::tie::Tie;
use super::{Places, Wanted, open, redis};
use crate::config::LockRun;
use crate::database;
use crate::store::StoreError;

/// Bad usage, as everywhere in this program; the codes below are those of sysexits.h.
const USAGE: u8 = 2;
/// The lock's server cannot be reached or failed: to try again may help (`EX_UNAVAILABLE`).
const SERVER_FAILED: u8 = 69;
/// This machine failed, not the lock's server (`EX_OSERR`).
const SYSTEM_FAILED: u8 = 71;
/// Somebody else held the lock for too long (`EX_TEMPFAIL`).
const TIMED_OUT: u8 = 75;
/// The lock was lost and the command ended (`EX_PROTOCOL`).
const LOST: u8 = 76;
/// The server answers, and cannot be used like that: trying again does not help (`EX_CONFIG`).
const UNFIT: u8 = 78;
/// As shells say it.
const NOT_EXECUTABLE: u8 = 126;
/// As shells say it.
const NOT_FOUND: u8 = 127;

/// What is passed on to the command; and the one that tells of the command itself.
const HEARD: [Signal; 7] = [
    Signal::SIGCHLD,
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Why the command did not run, or did not run to its own end.
struct Failure {
    code: u8,
    sentence: String,
}

impl Failure {
    fn new(code: u8, sentence: impl Into<String>) -> Self {
        Self { code, sentence: sentence.into() }
    }
}

/// Runs the command. Returns the exit code, and what is to be said about it on stderr.
pub async fn run(config: &LockRun) -> (u8, Option<String>) {
    match locked(config).await {
        Ok(code) => (code, None),
        Err(failure) => (failure.code, Some(failure.sentence)),
    }
}

async fn locked(config: &LockRun) -> Result<u8, Failure> {
    config.check().map_err(|sentence| Failure::new(USAGE, sentence))?;
    let mut signals = Signals::listen().map_err(|error| {
        Failure::new(SYSTEM_FAILED, format!("signals cannot be awaited: {error}"))
    })?;
    let locks = tokio::select! {
        locks = connect(config) => locks?,
        signal = signals.next_end() => return Ok(code_of(signal)),
    };
    let taken = tokio::select! {
        taken = take(config, &locks) => taken,
        signal = signals.next_end() => {
            locks.flush().await;
            return Ok(code_of(signal));
        }
    };
    let guard = match taken {
        Ok(guard) => guard,
        Err(failure) => {
            locks.flush().await;
            return Err(failure);
        }
    };
    let outcome = match Tie::new(guard, config.lease, config.grace()).await {
        Ok(tie) => {
            let outcome = under_lock(config, &tie, &mut signals).await;
            tie.release().await;
            outcome
        }
        Err(error) => Err(Failure::new(SERVER_FAILED, format!("{}: {error}", config.name))),
    };
    locks.flush().await;
    outcome
}

fn code_of(signal: Signal) -> u8 {
    u8::try_from(128 + signal as i32).unwrap_or(1)
}

async fn connect(config: &LockRun) -> Result<Locks, Failure> {
    let opened = async {
        if let Some(url) = config.database_url.as_ref().filter(|_| config.needs_database()) {
            database::check_access(url).await?;
        }
        let redis = match &config.redis_url {
            Some(url) if config.kind.backend() == Backend::Redis => {
                Some(redis(url, &config.servers.redis).await?)
            }
            _ => None,
        };
        let places = Places {
            redis,
            database_url: config.database_url.as_ref(),
            naive: false,
            silence: config.lease,
            // What a session of the server holds needs none.
            make_tables: config.token || guarantees(config.kind).hold != HoldKind::Session,
            more: &config.servers,
        };
        let (kind, lease, fenced) = (config.kind, config.lease, config.token);
        let wanted = Wanted { kind, lease, fenced, plant: None };
        open(wanted, places).await
    };
    opened.await.map_err(|error| Failure::new(code_of_opening(&error), format!("{error:#}")))
}

fn code_of_opening(error: &anyhow::Error) -> u8 {
    if error.is::<io::Error>() {
        return USAGE; // A file that the command line names.
    }
    match (error.downcast_ref(), error.downcast_ref()) {
        (Some(error), _) => code_of_error(error),
        (None, Some(StoreError::Unexpected(_) | StoreError::AccessDenied { .. })) => UNFIT,
        (None, _) => SERVER_FAILED,
    }
}

fn code_of_error(error: &LockError) -> u8 {
    match error {
        LockError::TimedOut { .. } => TIMED_OUT,
        LockError::BadRequest { .. } | LockError::Unsupported(_) => USAGE,
        LockError::HeldByOtherKind => UNFIT,
        LockError::Lost | LockError::NotOwner => LOST,
        LockError::Backend(_) | LockError::NoConnection(_) => SERVER_FAILED,
    }
}

async fn take(config: &LockRun, locks: &Locks) -> Result<Guard, Failure> {
    let lease = guarantees(config.kind).lease(config.lease);
    let options = LockOptions { fenced: config.token, ..LockOptions::new(config.wait, lease) };
    let taken = locks.lock(&config.name, &options).await;
    taken.map_err(|error| Failure::new(code_of_error(&error), format!("{}: {error}", config.name)))
}

/// Of a command that could not be started: its own fault, unless the machine had no place for it.
fn code_of_start(error: &io::Error) -> u8 {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EAGAIN | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE) => SYSTEM_FAILED,
        Some(Errno::ENOENT) => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    }
}

/// Runs the command to its end, or to that of the lock.
async fn under_lock(config: &LockRun, tie: &Tie, signals: &mut Signals) -> Result<u8, Failure> {
    let token = tie.token().filter(|_| config.token);
    let more: Vec<_> = token.iter().map(|token| ("LOCK_TOKEN", token.to_string())).collect();
    let mut group = Group::start(&config.command, &more).map_err(|error| {
        let program = config.command.first().map(|word| word.to_string_lossy());
        let sentence = format!("{}: {error}", program.unwrap_or_default());
        Failure::new(code_of_start(&error), sentence)
    })?;
    let failed = |error: io::Error| Failure::new(SYSTEM_FAILED, error.to_string());
    let lost = |why| Failure::new(LOST, format!("{}: the lock {why}", config.name));
    loop {
        tokio::select! {
            biased;
            status = group.ended() => {
                let code = status.map(exit_code).map_err(failed)?;
                return if tie.is_lost() { Err(lost("was lost meanwhile")) } else { Ok(code) };
            }
            end = tie.ending() => {
                group.end(end.kill_at).await.map_err(failed)?;
                return Err(lost(match end.cause {
                    LossCause::Expired => "could not be kept",
                    LossCause::Taken => "was taken away",
                }));
            }
            signal = signals.next() => match signal {
                Signal::SIGCHLD => group.go_on(),
                passed_on => group.signal(passed_on),
            },
        }
    }
}

/// The signals that are heard.
struct Signals(mpsc::Receiver<Signal>);

impl Signals {
    fn listen() -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(HEARD.len());
        for kind in HEARD {
            let mut stream = signal(SignalKind::from_raw(kind as i32))?;
            let sender = sender.clone();
            tokio::spawn(async move {
                while stream.recv().await.is_some() && sender.send(kind).await.is_ok() {}
            });
        }
        Ok(Self(receiver))
    }

    /// The next one; waits for ever if none comes.
    async fn next(&mut self) -> Signal {
        match self.0.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }

    /// The next one that asks for the end of a process that has started no command yet.
    async fn next_end(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::SIGCHLD => {}
                end => return end,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use clap::Parser;
    use distlock::{Backends, Lease, LockKind, locker};
    use nix::sys::signal::kill;
    use nix::sys::wait::waitpid;
    use nix::unistd::Pid;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::config::{Cli, Command, LockCommand};

    #[test]
    fn a_command_that_the_machine_has_no_place_for_is_no_command_that_cannot_be_executed() {
        for (error, code) in [
            (Errno::EAGAIN, SYSTEM_FAILED),
            (Errno::ENOMEM, SYSTEM_FAILED),
            (Errno::EMFILE, SYSTEM_FAILED),
            (Errno::ENFILE, SYSTEM_FAILED),
            (Errno::ENOENT, NOT_FOUND),
            (Errno::EACCES, NOT_EXECUTABLE),
            (Errno::ENOEXEC, NOT_EXECUTABLE),
            (Errno::E2BIG, NOT_EXECUTABLE),
        ] {
            let error = io::Error::from(error);
            assert_eq!(code_of_start(&error), code, "{error}");
        }
    }

    /// The end of the command is told once, and here somebody else has asked first. In one thread,
    /// so that nobody asks between the kill and that.
    #[tokio::test]
    async fn a_command_of_whose_end_nothing_is_told_is_a_failure_of_the_machine() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("id");
        let script =
            format!("echo $$ > '{0}.new'; mv '{0}.new' '{0}'; exec sleep 60", path.display());
        let words = ["seckill", "lock", "run", "--name", "a", "--", "sh", "-c", &script];
        let Command::Lock(LockCommand::Run(config)) = Cli::parse_from(words).command else {
            panic!("no run of a command");
        };
        let locks =
            Locks::new(locker(LockKind::Local, &Backends::default()).expect("it needs none"));
        let options = LockOptions::new(config.wait, Lease::Fixed(config.lease));
        let guard = locks.lock(&config.name, &options).await.expect("the lock");
        let tie = Tie::new(guard, config.lease, config.grace()).await;
        let tie = tie.unwrap_or_else(|error| panic!("{error}"));
        let (_sender, receiver) = mpsc::channel(1);
        let mut signals = Signals(receiver);
        let ask_first = async {
            let deadline = Instant::now() + Duration::from_secs(20);
            while !path.exists() {
                assert!(Instant::now() < deadline, "it does not begin");
                sleep(Duration::from_millis(5)).await;
            }
            let id = fs::read_to_string(&path).expect("a number");
            let id = Pid::from_raw(id.trim().parse().expect("a number"));
            kill(id, Signal::SIGKILL).expect("it is there");
            waitpid(id, None).expect("its end");
        };
        let (outcome, ()) = tokio::join!(under_lock(&config, &tie, &mut signals), ask_first);
        let failure = outcome.expect_err("its end is not known");
        assert_eq!(failure.code, SYSTEM_FAILED, "{}", failure.sentence);
    }
}
