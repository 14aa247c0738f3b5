//! The locks of a lane that are held, as the inspector reads them: `seckill lock ls --watch` runs
//! while a page asks for them, which it does while its panel is open. All pages share one process.

use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::{ChildStdout, Command};
use tokio::time::{Instant, sleep};

use crate::lock_rows::{HeldLocks, ListState, ReplicaProcesses};

/// For how long after a question the locks are read.
const INTEREST: Duration = Duration::from_secs(3);
/// How often it is looked whether a page asks.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// From the end of an inspector to the next one.
const RESTART_INTERVAL: Duration = Duration::from_secs(1);
/// The inspector lists once a second: without a list for so long, a server is silent.
const SILENCE: Duration = Duration::from_secs(3);
/// Most bytes of a list: 1,000 locks have 0.6 MB.
const MAX_LIST_BYTES: u64 = 4 << 20;
/// Most bytes of what the inspector says when it fails.
const MAX_ERROR_BYTES: usize = 4096;
/// The exit code of an inspector whose kind of lock cannot be listed.
const CANNOT_LIST: i32 = 80;

/// How a lane's locks can be read.
pub(crate) enum LockSource {
    /// No server knows the lock.
    NoServer,
    /// The lane has no deployment yet.
    NoDeployment,
    /// This command writes a list to each line.
    Command(Box<std::process::Command>, ReplicaProcesses),
}

/// The newest list of a lane.
#[derive(Debug, Default)]
pub(crate) struct LockWatch {
    contents: Mutex<WatchState>,
}

#[derive(Debug, Default)]
struct WatchState {
    wanted_until: Option<Instant>,
    /// Rises when the lane has other servers: the inspector has to begin again.
    changes: u64,
    /// When the inspector began, or last wrote a list.
    heard_at: Option<Instant>,
    newest: HeldLocks,
}

impl LockWatch {
    fn state(&self) -> MutexGuard<'_, WatchState> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest list. A question has the locks read for [`INTEREST`].
    pub(crate) fn read(&self) -> HeldLocks {
        let now = Instant::now();
        let mut state = self.state();
        let mut newest = state.newest.clone();
        // An old list is not that of an inspector that has begun for this question.
        let was_wanted =
            state.wanted_until.replace(now + INTEREST).is_some_and(|until| now < until);
        if !was_wanted {
            return HeldLocks::default();
        }
        let age = state.heard_at.map(|at| now.duration_since(at));
        let age = age.filter(|_| matches!(newest.state, ListState::Listed | ListState::Opening));
        if age.is_some_and(|age| age > SILENCE) {
            newest.state = ListState::Silent;
        }
        newest.age_ms = age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        newest
    }

    /// The lane has other servers, or none.
    pub(crate) fn change(&self) {
        let mut state = self.state();
        state.changes += 1;
        (state.newest, state.heard_at) = (HeldLocks::default(), None);
    }

    /// Shows a list of the inspector that began after that many changes.
    pub(crate) fn show(&self, list: &str, replicas: &ReplicaProcesses, changes: u64) {
        let listed = HeldLocks::parse(list, replicas);
        self.set(listed.unwrap_or_else(|| HeldLocks::failed("its list is no JSON")), changes);
    }

    /// What comes of servers that the lane no longer has is left out.
    fn set(&self, newest: HeldLocks, changes: u64) {
        let mut state = self.state();
        if state.changes == changes {
            (state.newest, state.heard_at) = (newest, Some(Instant::now()));
        }
    }

    fn is_wanted(&self) -> bool {
        self.state().wanted_until.is_some_and(|until| Instant::now() < until)
    }

    /// Waits until a page asks; the number of changes so far.
    pub(crate) async fn wanted(&self) -> u64 {
        while !self.is_wanted() {
            sleep(POLL_INTERVAL).await;
        }
        self.state().changes
    }

    /// Reads locks there until no page asks, or the lane has had another change.
    pub(crate) async fn follow(&self, source: LockSource, changes: u64) {
        let read = async {
            match source {
                LockSource::NoServer => {
                    self.set(HeldLocks::of_state(ListState::NoServer), changes);
                }
                LockSource::NoDeployment => self.set(HeldLocks::default(), changes),
                LockSource::Command(command, replicas) => {
                    let ended = self.run(*command, &replicas, changes).await;
                    self.set(ended, changes);
                }
            }
            sleep(RESTART_INTERVAL).await;
        };
        tokio::select! {
            () = read => {}
            () = self.until_unwanted(changes) => {}
        }
    }

    /// Waits until no page asks, or the lane has other servers.
    async fn until_unwanted(&self, changes: u64) {
        while self.is_wanted() && self.state().changes == changes {
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Shows the lists of an inspector, until it ends; why it did.
    async fn run(
        &self,
        command: std::process::Command,
        replicas: &ReplicaProcesses,
        changes: u64,
    ) -> HeldLocks {
        let mut command = Command::from(command);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut inspector = match command.spawn() {
            Ok(inspector) => inspector,
            Err(error) => return HeldLocks::failed(&error.to_string()),
        };
        self.state().heard_at = Some(Instant::now());
        let (stdout, stderr) = (inspector.stdout.take(), inspector.stderr.take());
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else {
            return HeldLocks::failed("it has no pipes");
        };
        // Its errors are read as it runs: a full pipe would stop it.
        let said = async { Ok(last_line(stderr).await) };
        let read = tokio::try_join!(self.read_lists(stdout, replicas, changes), said);
        let said = match read {
            Ok(((), said)) => said,
            Err(why) => return HeldLocks::failed(&why),
        };
        let code = inspector.wait().await.ok().and_then(|status| status.code());
        if code == Some(CANNOT_LIST) {
            return HeldLocks::of_state(ListState::Unlisted);
        }
        HeldLocks { reason: Some(said), ..HeldLocks::of_state(ListState::Failed) }
    }

    /// Shows each list. The caller ends the inspector after an error.
    async fn read_lists(
        &self,
        stdout: ChildStdout,
        replicas: &ReplicaProcesses,
        changes: u64,
    ) -> Result<(), String> {
        let mut lists = BufReader::new(stdout);
        let mut list = String::new();
        loop {
            list.clear();
            let mut bounded = (&mut lists).take(MAX_LIST_BYTES);
            let count = bounded.read_line(&mut list).await.map_err(|error| error.to_string())?;
            match count {
                0 => return Ok(()),
                _ if list.ends_with('\n') => self.show(&list, replicas, changes),
                _ => return Err("its list is too long".to_owned()),
            }
        }
    }
}

/// The last line that the inspector says before it ends.
async fn last_line(mut stderr: impl AsyncRead + Unpin) -> String {
    let (mut said, mut buffer) = (Vec::new(), [0; MAX_ERROR_BYTES]);
    // An error is an end.
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        said.extend_from_slice(&buffer[..count]);
        said.drain(..said.len().saturating_sub(MAX_ERROR_BYTES));
    }
    let said = String::from_utf8_lossy(&said);
    said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message").to_owned()
}

#[cfg(test)]
#[path = "held_locks_tests.rs"]
mod tests;
