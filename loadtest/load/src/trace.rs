//! A file of arrivals: one line for each request, `SECONDS [USER [VOUCHER]]`.
//!
//! SECONDS counts from the load's begin, with a fraction if need be, and never falls from line to
//! line. USER and VOUCHER are ids; where they are absent, `-` or not there, they are drawn from the
//! seed. Empty lines, and what follows a `#`, mean nothing. The file is read line by line while the
//! load runs.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest line, in bytes.
const MAX_LINE_BYTES: u64 = 1024;
/// Latest arrival.
const MAX_ARRIVAL: Duration = Duration::from_hours(24);

/// One arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceLine {
    /// When, counted from the load's begin.
    pub at: Duration,
    /// The user's id, if the file names one.
    pub user: Option<u64>,
    /// The voucher's id, if the file names one.
    pub voucher: Option<u64>,
}

/// Why a trace cannot be followed: a sentence without a full stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the trace {path} {error_here}")]
pub struct TraceError {
    path: String,
    error_here: String,
}

/// A trace that is being read.
#[derive(Debug)]
pub struct Trace {
    path: PathBuf,
    lines: BufReader<File>,
    text: String,
    number: u64,
    last: Duration,
}

impl Trace {
    /// Opens a trace.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(|error| TraceError {
            path: path.display().to_string(),
            error_here: format!("cannot be opened: {error}"),
        })?;
        let lines = BufReader::new(file);
        let (text, number, last) = (String::new(), 0, Duration::ZERO);
        Ok(Self { path: path.to_owned(), lines, text, number, last })
    }

    /// The next arrival; `None` after the last one.
    pub fn next_line(&mut self) -> Result<Option<TraceLine>, TraceError> {
        loop {
            self.text.clear();
            self.number += 1;
            let read = (&mut self.lines).take(MAX_LINE_BYTES).read_line(&mut self.text);
            let read =
                read.map_err(|error| self.error_here(&format!("cannot be read: {error}")))?;
            if read == 0 {
                return Ok(None);
            }
            if read as u64 == MAX_LINE_BYTES {
                return Err(self.error_here(&format!("is longer than {MAX_LINE_BYTES} bytes")));
            }
            let line = parse(&self.text).map_err(|error_here| self.error_here(&error_here))?;
            let Some(line) = line else { continue };
            if line.at < self.last {
                return Err(self.error_here("comes before the line above it"));
            }
            self.last = line.at;
            return Ok(Some(line));
        }
    }

    /// An error that names the file and the line that was read last.
    pub fn error_here(&self, what: &str) -> TraceError {
        let path = self.path.display().to_string();
        TraceError { path, error_here: format!("is broken: line {} {what}", self.number) }
    }
}

fn parse(text: &str) -> Result<Option<TraceLine>, String> {
    let text = text.split('#').next().unwrap_or_default();
    let mut words = text.split_whitespace();
    let Some(seconds) = words.next() else { return Ok(None) };
    let at = seconds.parse::<f64>().ok().and_then(|at| Duration::try_from_secs_f64(at).ok());
    let at = at.filter(|at| *at <= MAX_ARRIVAL).ok_or_else(|| {
        format!("begins with no number of seconds from 0 to {}", MAX_ARRIVAL.as_secs())
    })?;
    let mut id = |what: &str| match words.next() {
        None | Some("-") => Ok(None),
        Some(word) => {
            word.parse::<u64>().map(Some).map_err(|_| format!("names a {what} that is no number"))
        }
    };
    let (user, voucher) = (id("user")?, id("voucher")?);
    match words.next() {
        None => Ok(Some(TraceLine { at, user, voucher })),
        Some(_) => Err("has more than SECONDS USER VOUCHER".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn all(text: &str) -> Result<Vec<TraceLine>, String> {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(text.as_bytes()).expect("written");
        let mut trace = Trace::open(file.path()).expect("opened");
        let mut lines = Vec::new();
        while let Some(line) = trace.next_line().map_err(|error| error.to_string())? {
            lines.push(line);
        }
        Ok(lines)
    }

    #[test]
    fn a_line_names_a_moment_and_perhaps_a_user_and_a_voucher() {
        let line =
            |millis, user, voucher| TraceLine { at: Duration::from_millis(millis), user, voucher };
        let text = "# of Monday\n0\n0.5 17\n\n0.5 17 3 # twice\n2 - 3\n";
        let expected = [
            line(0, None, None),
            line(500, Some(17), None),
            line(500, Some(17), Some(3)),
            line(2000, None, Some(3)),
        ];
        assert_eq!(all(text).expect("good"), expected);
    }

    #[test]
    fn each_broken_line_is_named() {
        for (line, expected) in [
            ("soon", "line 2 begins with no number of seconds"),
            ("-1", "line 2 begins with no number of seconds"),
            ("1e9", "line 2 begins with no number of seconds"),
            ("nan", "line 2 begins with no number of seconds"),
            ("2 me", "line 2 names a user that is no number"),
            ("2 1 it", "line 2 names a voucher that is no number"),
            ("2 1 1 1", "line 2 has more than"),
            ("0.5", "line 2 comes before"),
            (&"1".repeat(2000), "line 2 is longer than"),
        ] {
            let error_here = all(&format!("1\n{line}\n")).expect_err(line);
            assert!(error_here.contains(expected), "{line}: {error_here}");
        }
    }
}
