//! Reads a history line by line; never more of it than one line is in memory.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use crate::history::event::Event;

/// Longest line that is read, in bytes; the longest that is written is a header with its settings.
const MAX_LINE: u64 = 1 << 20;
/// Bytes that are decompressed at once.
const BUFFER: usize = 1 << 17;

/// Why a history cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be opened.
    #[error("{path:?} cannot be opened: {why}")]
    NotOpened {
        /// The file.
        path: String,
        /// What the system says.
        why: std::io::Error,
    },
    /// It ends in the middle.
    #[error("the history is cut off after line {lines}: {why}")]
    CutOff {
        /// Lines that are whole.
        lines: u64,
        /// What is missing.
        why: String,
    },
    /// It says something that no history says.
    #[error("line {line} of the history is broken: {why}")]
    Broken {
        /// Its number, from 1.
        line: u64,
        /// What is wrong.
        why: String,
    },
}

/// A history that is being read.
pub struct Reader {
    lines: BufReader<zstd::Decoder<'static, BufReader<File>>>,
    line: Vec<u8>,
    number: u64,
}

impl Reader {
    /// Opens a history.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let not_opened = |why| ReadError::NotOpened { path: path.display().to_string(), why };
        let file = File::open(path).map_err(not_opened)?;
        // It can be opened, and not be read.
        if file.metadata().map_err(not_opened)?.is_dir() {
            return Err(not_opened(ErrorKind::IsADirectory.into()));
        }
        let decoder = zstd::Decoder::new(file);
        let lines = BufReader::with_capacity(BUFFER, decoder.map_err(not_opened)?);
        Ok(Self { lines, line: Vec::new(), number: 0 })
    }

    /// The number of the line that was read last, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The next line; `None` after the last one.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, ReadError> {
        self.line.clear();
        let read = (&mut self.lines).take(MAX_LINE).read_until(b'\n', &mut self.line);
        let cut_off = |why: String| ReadError::CutOff { lines: self.number, why };
        match read {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err(cut_off("the compressed data end in the middle".to_owned()));
            }
            Err(error) => return Err(self.broken_next(&error.to_string())),
        }
        if self.line.pop() != Some(b'\n') {
            return Err(if self.line.len() as u64 + 1 == MAX_LINE {
                self.broken_next("it is too long")
            } else {
                cut_off("its last line does not end".to_owned())
            });
        }
        self.number += 1;
        Event::parse(&self.line)
            .map(Some)
            .map_err(|why| ReadError::Broken { line: self.number, why })
    }

    fn broken_next(&self, why: &str) -> ReadError {
        ReadError::Broken { line: self.number + 1, why: why.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const FIRST: &str =
        r#"{"e":"invoke","t":5,"n":1,"u":"7","v":"1","k":"00000000-0000-0000-0000-000000000001"}"#;

    fn file(text: &str, cut: usize) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        let bytes = zstd::encode_all(text.as_bytes(), 1).expect("compressed");
        file.write_all(&bytes[..bytes.len() - cut]).expect("written");
        file
    }

    fn error_of(file: &tempfile::NamedTempFile) -> ReadError {
        let mut reader = Reader::open(file.path()).expect("opened");
        loop {
            match reader.next_event() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("read to the end"),
                Err(error) => return error,
            }
        }
    }

    #[test]
    fn a_truncated_file_is_distinguished_from_a_broken_one() {
        let cut = error_of(&file(&format!("{FIRST}\n{FIRST}\n"), 3));
        assert!(matches!(cut, ReadError::CutOff { .. }), "{cut}");
        let cut = error_of(&file(&format!("{FIRST}\n{}", &FIRST[..20]), 0));
        assert!(matches!(cut, ReadError::CutOff { lines: 1, .. }), "{cut}");
        for wrong in ["[]", "{}", r#"{"e":"dance"}"#, r#"{"e":"invoke","t":-1}"#, ""] {
            let broken = error_of(&file(&format!("{FIRST}\n{wrong}\n"), 0));
            assert!(matches!(broken, ReadError::Broken { line: 2, .. }), "{wrong}: {broken}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused_instead_of_being_read_into_memory() {
        let broken = error_of(&file(&"x".repeat(3 << 20), 0));
        assert!(matches!(broken, ReadError::Broken { line: 1, .. }), "{broken}");
    }

    #[test]
    fn a_file_that_is_not_compressed_or_not_there_is_refused() {
        let mut plain = tempfile::NamedTempFile::new().expect("a temporary file");
        writeln!(plain, "{FIRST}").expect("written");
        assert!(matches!(error_of(&plain), ReadError::Broken { line: 1, .. }));
        let absent = Reader::open(Path::new("/nonexistent/history"));
        assert!(matches!(absent.err(), Some(ReadError::NotOpened { .. })));
        let folder = Reader::open(&std::env::temp_dir());
        assert!(matches!(folder.err(), Some(ReadError::NotOpened { .. })));
    }
}
