//! Delivers login codes. While the outbox cannot be written, the replica is not ready, and no code
//! counts against a phone.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::time::{MissedTickBehavior, interval};

/// How often a file is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// More bytes than a line with a code has.
const LINE_BYTES: i64 = 256;

/// The target of login codes; none by default. Cheap to clone.
#[derive(Clone, Default)]
pub struct Outbox(Arc<OutboxState>);

#[derive(Default)]
struct OutboxState {
    target: Target,
    /// Why codes cannot be written; `None` while they can.
    broken: Mutex<Option<String>>,
    /// Whether the last line may have been cut short.
    is_torn: AtomicBool,
}

#[derive(Default)]
enum Target {
    /// In the answer (`--dev`).
    Answer,
    /// A line of JSON on stdout, for an operator or a gateway.
    Stdout,
    /// A line of JSON at the end of that file, for a gateway.
    File(PathBuf),
    /// No target: login is refused.
    #[default]
    Nowhere,
}

impl Outbox {
    /// Opens the outbox of that name: `-` is stdout; a file is opened once as a check.
    pub fn open(name: Option<&Path>, dev: bool) -> io::Result<Self> {
        let target = match name {
            _ if dev => Target::Answer,
            Some(path) if path.as_os_str() == "-" => Target::Stdout,
            Some(path) => Target::File(path.to_owned()),
            None => Target::Nowhere,
        };
        if let Target::File(path) = &target {
            open_private(path)?;
        }
        Ok(Self(Arc::new(OutboxState { target, ..OutboxState::default() })))
    }

    /// Whether codes are in the answer of the API.
    pub fn is_answer(&self) -> bool {
        matches!(self.0.target, Target::Answer)
    }

    /// Whether there is no target.
    pub fn is_nowhere(&self) -> bool {
        matches!(self.0.target, Target::Nowhere)
    }

    /// Whether codes can be delivered, as of the last check or line.
    pub fn is_usable(&self) -> bool {
        match self.0.target {
            Target::Answer => true,
            Target::Stdout | Target::File(_) => self.reason().is_none(),
            Target::Nowhere => false,
        }
    }

    /// Why codes cannot be written; `None` while they can.
    pub fn reason(&self) -> Option<String> {
        self.0.broken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes a line.
    pub async fn deliver(&self, line: String) -> io::Result<()> {
        let outbox = self.clone();
        let writing = tokio::task::spawn_blocking(move || {
            let written = outbox.write(&line);
            outbox.note(written.as_ref().err());
            written
        });
        writing.await.unwrap_or_else(|panic| Err(io::Error::other(panic)))
    }

    /// Checks the file or stdout once a second; runs until it is dropped.
    pub async fn keep_watch(self) {
        if !matches!(self.0.target, Target::File(_) | Target::Stdout) {
            return;
        }
        let mut ticks = interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let outbox = self.clone();
            let look = move || outbox.note(outbox.look().err().as_ref());
            // A panic in the check leaves the last result.
            let _looked = tokio::task::spawn_blocking(look).await;
        }
    }

    fn write(&self, line: &str) -> io::Result<()> {
        let mut to: Box<dyn Write> = match &self.0.target {
            Target::Stdout => Box::new(io::stdout()),
            Target::File(path) => Box::new(open_private(path)?),
            Target::Answer | Target::Nowhere => return Ok(()),
        };
        // A torn line is ended first, because gateways read whole lines.
        let was_torn = self.0.is_torn.swap(true, Ordering::Relaxed);
        to.write_all(format!("{}{line}\n", if was_torn { "\n" } else { "" }).as_bytes())?;
        self.0.is_torn.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn look(&self) -> io::Result<()> {
        let path = match &self.0.target {
            Target::File(path) => path,
            Target::Stdout => return look_at_stdout(),
            Target::Answer | Target::Nowhere => return Ok(()),
        };
        let file = open_private(path)?;
        let about = file.metadata()?;
        if !about.is_file() || !self.0.is_torn.load(Ordering::Relaxed) {
            return Ok(());
        }
        // A full disk has recovered when it has space for a line.
        let end = about.len().try_into().unwrap_or(i64::MAX - LINE_BYTES);
        match fallocate(&file, FallocateFlags::FALLOC_FL_KEEP_SIZE, end, LINE_BYTES) {
            Ok(()) | Err(Errno::EOPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn note(&self, error: Option<&io::Error>) {
        let reason = error.map(|error| format!("login codes cannot be written: {error}"));
        let mut broken = self.0.broken.lock().unwrap_or_else(PoisonError::into_inner);
        match (&reason, &*broken) {
            (Some(reason), None) => tracing::error!(reason, "outbox broken; no codes are sent"),
            (None, Some(_)) => tracing::warn!("outbox usable again; codes are sent"),
            _ => {}
        }
        *broken = reason;
    }
}

/// An error if stdout is a pipe, a socket or a terminal without its other end.
fn look_at_stdout() -> io::Result<()> {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    poll(&mut polled, PollTimeout::ZERO)?;
    let gone = PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL;
    if polled[0].revents().is_some_and(|seen| seen.intersects(gone)) {
        return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the reader of stdout is gone"));
    }
    Ok(())
}

/// Opens a file for appending that only its owner can read: its reader can log in as any user.
fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // With O_NONBLOCK a pipe without a reader is an error instead of a wait.
    options.create(true).append(true).mode(0o600).custom_flags(nix::libc::O_NONBLOCK);
    let file = options.open(path)?;
    let about = file.metadata()?;
    if about.is_file() && about.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}
