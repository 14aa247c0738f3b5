//! A number in a file that nothing guards: concurrent increments lose counts.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Enough for every `u64`.
const DIGITS: usize = 20;

/// The number. It is written in one piece, so a reader never sees half of one.
#[derive(Debug)]
pub struct Counter(File);

impl Counter {
    /// Opens it; makes it, at zero, if it is not there.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        Ok(Self(file?))
    }

    /// The number.
    pub fn read(&self) -> io::Result<u64> {
        let mut digits = [0; DIGITS];
        match self.0.read_exact_at(&mut digits, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
            outcome => outcome?,
        }
        let number = std::str::from_utf8(&digits).ok().and_then(|text| text.parse().ok());
        number.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it holds no number"))
    }

    /// Replaces it.
    pub fn write(&self, number: u64) -> io::Result<()> {
        self.0.write_all_at(format!("{number:0DIGITS$}").as_bytes(), 0)
    }

    /// Reads it and writes it back one higher.
    pub fn add_one(&self) -> io::Result<()> {
        self.write(self.read()? + 1)
    }
}

/// The number in that file, for tests: panics if there is none.
pub fn number_in(path: &Path) -> u64 {
    Counter::open(path).and_then(|counter| counter.read()).expect("a number in a file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_handles_of_one_file_count_together_from_zero() {
        let path = std::env::temp_dir().join(format!("counter-{}", uuid::Uuid::new_v4()));
        let (one, another) = (Counter::open(&path).unwrap(), Counter::open(&path).unwrap());
        assert_eq!(one.read().unwrap(), 0);
        one.add_one().unwrap();
        another.add_one().unwrap();
        one.write(another.read().unwrap() + u64::from(u32::MAX)).unwrap();
        assert_eq!(another.read().unwrap(), 2 + u64::from(u32::MAX));
        std::fs::remove_file(path).unwrap();
    }
}
