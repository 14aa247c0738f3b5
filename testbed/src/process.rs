//! One process of a bed and what can be done to it.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::bed_state::{BedState, MARK};
use crate::error::{Error, Result};
use crate::logs;
use crate::probe::{Look, Probe};
use crate::programs::Programs;
use crate::slot::{Life, Slot, thread_states};

/// How often a state that is awaited is looked at.
const POLL: Duration = Duration::from_millis(5);

/// How long a signal may take to show in `/proc`: a thread in a disk write stops after the write.
const SIGNAL_SHOWS_WITHIN: Duration = Duration::from_secs(10);

/// Of the environment, children see these, and what is set for them; never a `DATABASE_URL` that
/// happens to be set.
const INHERITED_VARIABLES: [&str; 7] =
    ["PATH", "HOME", "LANG", "TZ", "RUST_LOG", "RUST_BACKTRACE", "LLVM_PROFILE_FILE"];

/// How to start a process: the same for the first start and every restart.
pub(crate) struct ProcessSpec {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) probe: Probe,
}

/// A process of a [`Bed`](crate::Bed). All methods may be called from any thread. Dropping the
/// handle kills the process.
pub struct Process {
    bed: Arc<BedState>,
    spec: ProcessSpec,
    log: PathBuf,
    slot: Arc<Slot>,
}

impl Process {
    /// Starts a process and awaits its readiness.
    pub(crate) fn start(bed: &Arc<BedState>, process_spec: ProcessSpec) -> Result<Self> {
        let log = bed.log_folder().join(format!("{}.log", process_spec.name));
        let process = Self { bed: Arc::clone(bed), spec: process_spec, log, slot: Arc::default() };
        bed.register(&process.slot);
        process.launch()?;
        Ok(process)
    }

    /// The name of the process, as that of its log.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The process id of the last start. It stays after the process has ended.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.slot.pid()
    }

    /// Whether it has not ended. A frozen process is running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self.slot.look(), Ok(Life::Running))
    }

    /// How it ended, unless it runs, or ended by [`Process::kill`].
    #[must_use]
    pub fn exit_status(&self) -> Option<ExitStatus> {
        match self.slot.look() {
            Ok(Life::Ended(status)) => Some(status),
            Ok(Life::Running | Life::Gone) | Err(_) => None,
        }
    }

    /// The log: stdout and stderr of all starts; only stderr of a program that is talked to.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// The last lines of the log.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        logs::tail(&self.log, lines)
    }

    /// Kills it with SIGKILL and reaps it, frozen or not. Does nothing if it is not running.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn kill(&self) -> Result<()> {
        self.slot.kill()
    }

    /// Asks it to exit (SIGTERM) and returns how it did. A frozen process does not notice.
    ///
    /// # Errors
    /// If it is not running, or has not exited within `limit`: then it is killed.
    pub fn stop(&self, limit: Duration) -> Result<ExitStatus> {
        self.signal(Signal::SIGTERM)?;
        let deadline = Instant::now() + limit;
        loop {
            match self.slot.look()? {
                Life::Ended(status) => return Ok(status),
                Life::Gone => return Err(self.failed("was killed instead of exiting".into())),
                Life::Running if Instant::now() < deadline => thread::sleep(POLL),
                Life::Running => {
                    self.kill()?;
                    let reason = format!("did not exit within {limit:?} of SIGTERM; it was killed");
                    return Err(self.failed(reason));
                }
            }
        }
    }

    /// Stops it in its tracks (SIGSTOP): returns once all its threads stand still.
    ///
    /// # Errors
    /// If it is not running, or does not stop.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)?;
        self.await_threads("did not freeze", |state| state == 'T')
    }

    /// Lets a frozen process continue (SIGCONT): returns once no thread is stopped any more.
    ///
    /// # Errors
    /// If it is not running, or does not continue.
    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)?;
        self.await_threads("did not thaw", |state| state != 'T')
    }

    /// Starts it again on the same port with the same data, killing it first if it still runs.
    /// Returns when it is ready.
    ///
    /// # Errors
    /// If it does not become ready; it is dead then.
    pub fn restart(&self) -> Result<()> {
        self.kill()?;
        self.launch()
    }

    /// The pipes of the last start, where it has any; once.
    pub(crate) fn pipes(&self) -> Option<(ChildStdin, ChildStdout)> {
        self.slot.pipes()
    }

    fn launch(&self) -> Result<()> {
        let log_start = fs::metadata(&self.log).map_or(0, |file| file.len());
        self.slot.fill(|| {
            if self.bed.is_closed() {
                return Err(Error::Closed);
            }
            self.bed.spawner.spawn(self.command()?)
        })?;
        self.await_ready(log_start).inspect_err(|_| drop(self.kill()))
    }

    /// The command line, wrapped in the program that ties its life to ours.
    fn command(&self) -> Result<Command> {
        let setpriv = Programs::of_the_system().need("setpriv", "util-linux")?;
        let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.log);
        let log = log.map_err(Error::io(format!("open {}", self.log.display())))?;
        let (stdin, stdout) = if self.spec.probe.is_talk() {
            (Stdio::piped(), Stdio::piped())
        } else {
            let stdout = log.try_clone().map_err(Error::io("open a log twice"))?;
            (Stdio::null(), stdout.into())
        };
        let mut command = Command::new(setpriv);
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&self.spec.program)
            .args(&self.spec.args)
            .env_clear()
            .envs(INHERITED_VARIABLES.iter().filter_map(|key| Some((key, std::env::var_os(key)?))))
            .envs(self.spec.env.iter().map(|(key, value)| (key, value)))
            .env("TMPDIR", self.bed.temp_folder())
            .env(MARK, self.bed.mark())
            .stdin(stdin)
            .stdout(stdout)
            .stderr(log)
            // Ctrl-C at the terminal must reach the parent, which decides what it means.
            .process_group(0);
        Ok(command)
    }

    fn await_ready(&self, log_start: u64) -> Result<()> {
        let limit = self.bed.ready_within;
        let deadline = Instant::now() + limit;
        loop {
            let log = logs::beginning(&self.log, log_start);
            let look = self.spec.probe.look(self.pid(), &log);
            // Also after a good look: the answer may have come from another server that had taken
            // the port.
            match self.slot.look()? {
                Life::Running => {}
                Life::Ended(status) if self.spec.probe.is_exit() && status.success() => {
                    return Ok(());
                }
                Life::Ended(status) => {
                    let log = logs::end(&self.log, log_start);
                    let why = logs::explanation(&log).unwrap_or("it logged nothing");
                    return Err(self.failed(format!("ended before it was ready ({status}): {why}")));
                }
                Life::Gone => return Err(self.failed("was killed before it was ready".into())),
            }
            match look {
                Look::Ready => return Ok(()),
                Look::NotYet(reason) if Instant::now() >= deadline => {
                    return Err(self.failed(format!("was not ready after {limit:?}: {reason}")));
                }
                Look::NotYet(_) => thread::sleep(POLL),
            }
        }
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        if self.slot.signal(signal)? {
            return Ok(());
        }
        Err(self.failed(format!("is not running, so it cannot get {signal}")))
    }

    fn await_threads(&self, complaint: &str, settled: impl Fn(char) -> bool) -> Result<()> {
        let deadline = Instant::now() + SIGNAL_SHOWS_WITHIN;
        loop {
            let states = thread_states(self.pid());
            if !self.is_running() {
                return Err(self.failed(format!("{complaint}: it has ended")));
            }
            if states.iter().all(|state| settled(*state)) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(self.failed(format!("{complaint}: its threads are {states:?}")));
            }
            thread::sleep(POLL);
        }
    }

    /// An error that says what this process did, or does not do.
    pub(crate) fn failed(&self, reason: String) -> Error {
        let tail = logs::titled_tail(&self.log, logs::ERROR_TAIL_LINES);
        Error::Failed { name: self.spec.name.clone(), reason, tail }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.slot.kill();
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("name", &self.name()).field("pid", &self.pid()).finish()
    }
}

/// Starts a server on a free port, again on another one if that was taken in the meantime.
pub(crate) fn start_on_free_port<T>(mut start: impl FnMut() -> Result<T>) -> Result<T> {
    const TRIES: u32 = 5;
    let mut tries = 1;
    loop {
        match start() {
            Err(Error::Failed { reason, tail, .. })
                if tries < TRIES
                    && (logs::says_port_is_taken(&reason) || logs::says_port_is_taken(&tail)) =>
            {
                tries += 1;
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::start_on_free_port;
    use crate::error::{Error, Result};

    fn failure(reason: &str) -> Error {
        Error::Failed { name: "a".into(), reason: reason.into(), tail: String::new() }
    }

    #[test]
    fn a_port_that_was_taken_meanwhile_is_replaced_a_few_times_and_other_failures_are_not() {
        let mut tries = 0;
        let started = start_on_free_port(|| {
            tries += 1;
            if tries < 4 { Err(failure("bind: Address already in use")) } else { Ok(tries) }
        });
        assert_eq!(started.unwrap(), 4);

        let mut tries = 0;
        let never: Result<()> = start_on_free_port(|| {
            tries += 1;
            Err(failure("cannot bind socket (Address already in use)"))
        });
        assert!(never.is_err());
        assert_eq!(tries, 5);

        let mut tries = 0;
        let other: Result<()> = start_on_free_port(|| {
            tries += 1;
            Err(failure("out of memory"))
        });
        assert!(other.is_err());
        assert_eq!(tries, 1);
    }
}
