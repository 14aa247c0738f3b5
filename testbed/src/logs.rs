//! Reading the logs of processes: the tail, and the line that explains a failure.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// At most this much of a log is read at once.
const MAX_READ_BYTES: u64 = 256 * 1024;

/// Lines of a log that an error carries.
pub(crate) const ERROR_TAIL_LINES: usize = 30;

/// How the servers mark what stopped them, the most telling first.
const FAILURE_MARKS: [&str; 10] = [
    "FATAL",
    "Caused by: ",
    "[ERROR]",
    "[ALERT]",
    "ddress already in use",
    "Failed",
    "panicked at",
    "rror: ",
    "ERROR",
    "Can't",
];

/// The beginning of what a log holds from byte `from` on. Empty if unreadable.
pub(crate) fn beginning(path: &Path, from: u64) -> String {
    read(path, |_| from)
}

/// The end of what a log holds from byte `from` on. Empty if unreadable.
pub(crate) fn end(path: &Path, from: u64) -> String {
    read(path, |length| from.max(length.saturating_sub(MAX_READ_BYTES)))
}

fn read(path: &Path, start: impl FnOnce(u64) -> u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(start(length)))?;
        let mut bytes = Vec::new();
        file.take(MAX_READ_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}

/// The last `lines` lines of a log.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let text = end(path, 0);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// The tail with a heading that names the file.
pub(crate) fn titled_tail(path: &Path, lines: usize) -> String {
    format!("--- end of {} ---\n{}", path.display(), tail(path, lines))
}

/// The tails of all logs in a folder, by name.
pub(crate) fn all_tails(folder: &Path, lines: usize) -> String {
    let mut paths: Vec<_> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().fold(String::new(), |mut text, path| {
        let _ = writeln!(text, "{}", titled_tail(path, lines));
        text
    })
}

/// The line of a log that says best why a process ended.
pub(crate) fn explanation(text: &str) -> Option<&str> {
    let marked =
        FAILURE_MARKS.iter().find_map(|mark| text.lines().find(|line| line.contains(mark)));
    // Redis sets its reason below a heading.
    let line = match marked {
        Some(heading) if heading.contains("FATAL CONFIG FILE ERROR") => text.lines().last(),
        Some(line) => Some(line),
        None => text.lines().rev().find(|line| !line.trim().is_empty()),
    };
    line.map(str::trim)
}

/// Whether a log says that the port was taken, in the words of the C library that all servers use.
pub(crate) fn says_port_is_taken(text: &str) -> bool {
    text.contains("ddress already in use")
}
