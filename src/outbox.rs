//! Delivers login codes. While the outbox cannot be written, the replica is not ready, and no code
//! counts against a phone.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// How often a file is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a line may take, its wait for others included: the reader of a pipe may have stopped.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
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
    /// Lines are written one at a time.
    writer: Arc<AsyncMutex<LineWriter>>,
}

#[derive(Default)]
struct LineWriter {
    /// Whether the last line may have been cut short.
    is_torn: bool,
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

    /// Writes a line. After an error a part of it, or all, may still be written.
    pub async fn deliver(&self, line: String) -> io::Result<()> {
        let written = self.with_writer(move |target, writer| write(target, writer, &line)).await;
        self.note(written.as_ref().err());
        written
    }

    /// Runs that in a thread for blocking work, in turn: at most one such thread waits for a
    /// reader.
    async fn with_writer(
        &self,
        work: impl FnOnce(&Target, &mut LineWriter) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let outbox = self.clone();
        let working = async {
            let mut writer: OwnedMutexGuard<LineWriter> = self.0.writer.clone().lock_owned().await;
            tokio::task::spawn_blocking(move || work(&outbox.0.target, &mut writer)).await
        };
        match timeout(WRITE_TIMEOUT, working).await {
            Ok(worked) => worked.unwrap_or_else(|panic| Err(io::Error::other(panic))),
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("a line has waited for its reader for {} s", WRITE_TIMEOUT.as_secs()),
            )),
        }
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
            self.note(self.with_writer(look).await.err().as_ref());
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

fn write(target: &Target, writer: &mut LineWriter, line: &str) -> io::Result<()> {
    let mut to: Box<dyn Write> = match target {
        Target::Stdout => Box::new(io::stdout()),
        Target::File(path) => Box::new(open_private(path)?),
        Target::Answer | Target::Nowhere => return Ok(()),
    };
    // A torn line is ended first, because gateways read whole lines.
    let end_torn = if writer.is_torn { "\n" } else { "" };
    writer.is_torn = true;
    to.write_all(format!("{end_torn}{line}\n").as_bytes())?;
    writer.is_torn = false;
    Ok(())
}

fn look(target: &Target, writer: &mut LineWriter) -> io::Result<()> {
    let path = match target {
        Target::File(path) => path,
        Target::Stdout => return look_at_stdout(),
        Target::Answer | Target::Nowhere => return Ok(()),
    };
    let file = open_private(path)?;
    let about = file.metadata()?;
    if !about.is_file() || !writer.is_torn {
        return Ok(());
    }
    // A full disk has recovered when it has space for a line.
    let end = about.len().try_into().unwrap_or(i64::MAX - LINE_BYTES);
    match fallocate(&file, FallocateFlags::FALLOC_FL_KEEP_SIZE, end, LINE_BYTES) {
        Ok(()) | Err(Errno::EOPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
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
