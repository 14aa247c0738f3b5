//! `seckill lock run`: a command under a lock, as flock(1) does.
//!
//! The command runs in a process group of its own, under a supervisor of its lock. The group gets
//! SIGTERM a grace before the validity time ends, or at once if the server says that the lock is
//! gone. It gets SIGKILL at the end of the validity time, before the server grants the lock to
//! another owner. Signals are passed on, and the lock is released after the command has ended.

use std::io;
use std::path::Path;

use distlock::{Guard, HoldKind, LockError, LockOptions, Locks, LossCause, OwnerTag, guarantees};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::LockSpec;
use super::connect::connect;
use super::deadlocks;
use super::failure::{BAD_USAGE, Failure, LOST, RAN_ALREADY, SERVER_FAILED, TIMED_OUT, ended};
use super::process_group::{ProcessGroup, exit_code};
use super::run_window::RunWindow;
use super::snapshot_view as view;
use super::supervisor::LockSupervisor;
use crate::config::{HELD_LOCKS, LockRun};

/// This machine failed, not the lock's server (`EX_OSERR`).
const SYSTEM_FAILED: u8 = 71;
/// The command cannot be executed, as in shells.
const NOT_EXECUTABLE: u8 = 126;
/// The command does not exist, as in shells.
const NOT_FOUND: u8 = 127;

/// The signals that are passed on to the command, and SIGCHLD, which reports on it.
const FORWARDED_SIGNALS: [Signal; 7] = [
    Signal::SIGCHLD,
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Runs the command. Returns the exit code, and the line for stderr if there is one.
pub async fn run(config: &LockRun) -> (u8, Option<String>) {
    match (ended(locked(config).await), config.skip_exit_code) {
        ((TIMED_OUT | RAN_ALREADY, Some(reason)), Some(0)) => {
            tracing::info!(reason, "skipped the command");
            (0, None)
        }
        ((TIMED_OUT | RAN_ALREADY, reason @ Some(_)), Some(code)) => (code, reason),
        (ended, _) => ended,
    }
}

async fn locked(config: &LockRun) -> Result<u8, Failure> {
    config.check().map_err(|sentence| Failure::new(BAD_USAGE, sentence))?;
    let mut signals = Signals::listen().map_err(|error| {
        Failure::new(SYSTEM_FAILED, format!("cannot listen for signals: {error}"))
    })?;
    let tag = OwnerTag::of_this_process(&program_name(config));
    let opened = async {
        let locks = open_locks(config).await?.with_owner_tag(tag.clone());
        // It only reports: the command runs without it.
        let detector = deadlocks::detector(&config.addresses, &tag, &config.held_locks)
            .unwrap_or_else(|failure| {
                tracing::warn!(reason = failure.sentence, "deadlocks are not looked for");
                None
            });
        let locks = match &detector {
            Some(detector) => locks.with_deadlock_detector(detector.clone()),
            None => locks,
        };
        Ok((locks, detector, RunWindow::open(config).await?))
    };
    let (locks, detector, window) = tokio::select! {
        opened = opened => opened?,
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
    let mut environment = Vec::new();
    if let Some(token) = guard.token().filter(|_| config.token) {
        environment.push(("LOCK_TOKEN", token.to_string()));
    }
    if let Some(detector) = &detector {
        environment.push((HELD_LOCKS, detector.held_by_this_task()));
    }
    let outcome = match LockSupervisor::new(guard, config.lease, config.grace()).await {
        Ok(supervisor) => in_window(config, window, (supervisor, &environment), &mut signals).await,
        Err(error) => Err(Failure::new(SERVER_FAILED, format!("{}: {error}", config.name))),
    };
    locks.flush().await;
    outcome
}

/// Runs the command unless it ran within the window, and releases the lock.
async fn in_window(
    config: &LockRun,
    window: Option<RunWindow>,
    (supervisor, environment): (LockSupervisor, &[(&str, String)]),
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let began = match &window {
        Some(window) => window.begin().await,
        None => Ok(()),
    };
    if let Err(failure) = began {
        supervisor.release().await;
        return Err(failure);
    }
    let end = under_lock(config, (&supervisor, environment), signals).await;
    if let Some(window) = window.filter(|_| end.has_failed()) {
        window.withdraw().await;
    }
    match config.at_least_for.filter(|_| matches!(end, CommandEnd::Exited(0))) {
        Some(least_hold) => supervisor.leave_for(least_hold).await,
        None => supervisor.release().await,
    }
    match end {
        CommandEnd::Exited(code) => Ok(code),
        CommandEnd::NotStarted(failure) | CommandEnd::Unclear(failure) => Err(failure),
    }
}

/// How the command ended.
#[derive(Debug)]
enum CommandEnd {
    /// With this exit code, while the lock was held.
    Exited(u8),
    NotStarted(Failure),
    /// The lock was lost, or the end cannot be read: the command may have done its work, or may
    /// still be running.
    Unclear(Failure),
}

impl CommandEnd {
    /// Whether the work is known not to be done, so that another run may begin within the window.
    fn has_failed(&self) -> bool {
        match self {
            Self::Exited(code) => *code != 0,
            Self::NotStarted(_) => true,
            Self::Unclear(_) => false,
        }
    }
}

fn code_of(signal: Signal) -> u8 {
    u8::try_from(128 + signal as i32).unwrap_or(1)
}

async fn open_locks(config: &LockRun) -> Result<Locks, Failure> {
    let (kind, lease, fenced) = (config.kind, config.lease, config.token);
    let spec = LockSpec { kind, lease, fenced, injected_bug: None };
    // A lock that belongs to a session of the server needs no table.
    let make_tables = config.token || guarantees(kind).hold != HoldKind::Session;
    connect(spec, &config.addresses, make_tables).await
}

/// The file name of the command, which tells people what holds the lock.
fn program_name(config: &LockRun) -> String {
    let program = config.command.first().map(Path::new).and_then(Path::file_name);
    program.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

async fn take(config: &LockRun, locks: &Locks) -> Result<Guard, Failure> {
    let lease = guarantees(config.kind).lease(config.lease);
    let options = LockOptions::new(config.longest_wait(), lease);
    let options = LockOptions { fenced: config.token, ..options };
    match locks.lock(&config.name, &options).await {
        Ok(guard) => Ok(guard),
        Err(error) => {
            let failure = Failure::about(&config.name, &error);
            // After a wait of half a second the error names it.
            let is_unnamed = matches!(error, LockError::TimedOut { holder: None, .. });
            let holder = if is_unnamed { name_holder(config, locks).await } else { None };
            let holder = holder.map(|holder| format!(" ({holder})")).unwrap_or_default();
            Err(Failure { sentence: failure.sentence + &holder, ..failure })
        }
    }
}

/// The first holder, as far as the server knows it.
async fn name_holder(config: &LockRun, locks: &Locks) -> Option<String> {
    let lock = locks.inspect(&config.name).await.ok()?;
    lock.state.holders().first().map(view::holder)
}

/// The exit code for a command that could not be started: the machine's limits, or the command.
fn code_of_start(error: &io::Error) -> u8 {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EAGAIN | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE) => SYSTEM_FAILED,
        Some(Errno::ENOENT) => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    }
}

/// Runs the command until it ends or the lock is lost.
async fn under_lock(
    config: &LockRun,
    (supervisor, environment): (&LockSupervisor, &[(&str, String)]),
    signals: &mut Signals,
) -> CommandEnd {
    let group = match ProcessGroup::start(&config.command, environment) {
        Ok(group) => group,
        Err(error) => {
            let program = config.command.first().map(|word| word.to_string_lossy());
            let sentence = format!("{}: {error}", program.unwrap_or_default());
            return CommandEnd::NotStarted(Failure::new(code_of_start(&error), sentence));
        }
    };
    match until_ended(config, supervisor, group, signals).await {
        Ok(code) => CommandEnd::Exited(code),
        Err(failure) => CommandEnd::Unclear(failure),
    }
}

/// Waits for the end of the command, and ends it if the lock is lost.
async fn until_ended(
    config: &LockRun,
    supervisor: &LockSupervisor,
    mut group: ProcessGroup,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let failed = |error: io::Error| Failure::new(SYSTEM_FAILED, error.to_string());
    let lost = |why| Failure::new(LOST, format!("{}: the lock {why}", config.name));
    loop {
        tokio::select! {
            biased;
            status = group.ended() => {
                let code = status.map(exit_code).map_err(failed)?;
                if supervisor.is_lost() {
                    return Err(lost("was lost meanwhile"));
                }
                return Ok(code);
            }
            end = supervisor.loss_deadline() => {
                group.end(end.kill_at).await.map_err(failed)?;
                return Err(lost(match end.cause {
                    LossCause::Expired => "could not be kept",
                    LossCause::Taken => "was taken away",
                }));
            }
            signal = signals.next() => match signal {
                Signal::SIGCHLD => group.resume_if_stopped(),
                passed_on => group.signal(passed_on),
            },
        }
    }
}

/// Receives the signals that this process listens for.
struct Signals(mpsc::Receiver<Signal>);

impl Signals {
    fn listen() -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(FORWARDED_SIGNALS.len());
        for kind in FORWARDED_SIGNALS {
            let mut stream = signal(SignalKind::from_raw(kind as i32))?;
            let sender = sender.clone();
            tokio::spawn(async move {
                while stream.recv().await.is_some() && sender.send(kind).await.is_ok() {}
            });
        }
        Ok(Self(receiver))
    }

    /// Waits for the next signal.
    async fn next(&mut self) -> Signal {
        match self.0.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }

    /// Waits for a signal that ends this process before it has started a command.
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

    /// The kernel reports the end of a process once, and here the test reads it first. The test
    /// uses one thread, so that the runtime cannot read it between the kill and the wait.
    #[tokio::test]
    async fn a_command_whose_end_is_not_reported_is_a_failure_of_the_machine() {
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
        let supervisor = LockSupervisor::new(guard, config.lease, config.grace()).await;
        let supervisor = supervisor.unwrap_or_else(|error| panic!("{error}"));
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
        let (end, ()) =
            tokio::join!(under_lock(&config, (&supervisor, &[]), &mut signals), ask_first);
        assert!(!end.has_failed(), "it may have done its work: {end:?}");
        let CommandEnd::Unclear(failure) = end else { panic!("its end is known: {end:?}") };
        assert_eq!(failure.code, SYSTEM_FAILED, "{}", failure.sentence);
    }

    #[test]
    fn only_a_command_that_ended_with_another_code_than_0_or_did_not_start_has_failed() {
        let failure = |code| Failure::new(code, "why");
        for (end, has_failed) in [
            (CommandEnd::Exited(0), false),
            (CommandEnd::Exited(1), true),
            (CommandEnd::Exited(code_of(Signal::SIGTERM)), true),
            (CommandEnd::NotStarted(failure(SYSTEM_FAILED)), true),
            (CommandEnd::Unclear(failure(SYSTEM_FAILED)), false),
            (CommandEnd::Unclear(failure(LOST)), false),
        ] {
            assert_eq!(end.has_failed(), has_failed, "{end:?}");
        }
    }
}
