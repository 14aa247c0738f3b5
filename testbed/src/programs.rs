//! Finding the programs of the servers.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Where servers are although an ordinary user's `PATH` does not say so.
const SYSTEM_FOLDERS: [&str; 5] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/usr/libexec"];

/// The folders in which programs are looked for, in this order.
#[derive(Debug)]
pub(crate) struct Programs {
    folders: Vec<PathBuf>,
}

impl Programs {
    /// Those of `PATH`, then the usual ones for servers.
    pub(crate) fn of_the_system() -> Self {
        let path = env::var_os("PATH").unwrap_or_default();
        let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
        for folder in SYSTEM_FOLDERS.map(PathBuf::from) {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        Self { folders }
    }

    /// Only these.
    pub(crate) fn in_folders(folders: Vec<PathBuf>) -> Self {
        Self { folders }
    }

    /// The first executable file of that name.
    pub(crate) fn find(&self, program: &str) -> Option<PathBuf> {
        self.folders.iter().map(|folder| folder.join(program)).find(|path| is_executable(path))
    }

    /// As `find`; the error names the package that brings the program.
    pub(crate) fn need(&self, program: &str, package: &'static str) -> Result<PathBuf> {
        self.find(program).ok_or_else(|| self.missing(program, package))
    }

    /// The error for a program that `find` did not find.
    pub(crate) fn missing(&self, program: &str, package: &'static str) -> Error {
        let searched = env::join_paths(&self.folders).unwrap_or_default();
        Error::MissingProgram {
            program: program.to_owned(),
            searched: searched.to_string_lossy().into_owned(),
            package,
        }
    }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
