//! Finding the programs of the servers.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Result};

/// The name of Redis' server.
pub(crate) const REDIS_SERVER: &str = "redis-server";
/// The packages that bring it.
const REDIS_PACKAGES: &str = "redis-server or redis-tools";
/// The name of Valkey's server, and of the package that brings it; Debian 12 has none.
const VALKEY_SERVER: &str = "valkey-server";
const VALKEY_PACKAGE: &str = "valkey-server, or deploy/fetch-valkey.sh with REDIS_SERVER";

/// Where servers are although an ordinary user's `PATH` does not say so.
const SYSTEM_FOLDERS: [&str; 5] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/usr/libexec"];

/// Where jars are.
const SYSTEM_JAR_FOLDERS: [&str; 2] = ["/usr/local/share/java", "/usr/share/java"];

/// Where a library is that a server loads.
const SYSTEM_LIBRARY_FOLDERS: [&str; 6] = [
    "/usr/local/lib/galera",
    "/usr/lib/galera",
    "/usr/lib64/galera-4",
    "/usr/local/lib/mysql/plugin",
    "/usr/lib/mysql/plugin",
    "/usr/lib64/mysql/plugin",
];

/// The folders in which programs are looked for, in this order.
#[derive(Debug)]
pub(crate) struct Programs {
    folders: Vec<PathBuf>,
    jar_folders: Vec<PathBuf>,
    library_folders: Vec<PathBuf>,
    pub(crate) told: DatabaseChoice,
    /// `REDIS_SERVER`: where Redis' server is, or one that speaks as it does, such as Valkey's.
    redis_server: Option<PathBuf>,
}

/// What the environment says about the database server, so that one suite of tests runs on
/// whichever is wanted.
#[derive(Debug, Default)]
pub(crate) struct DatabaseChoice {
    /// `TESTBED_DATABASE`: which one [`Flavor::Any`](crate::Flavor::Any) means.
    pub(crate) database: Option<String>,
    /// `MYSQLD`: where `MySQL`'s server is, instead of in the folders.
    pub(crate) mysqld: Option<PathBuf>,
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
        let said = |key| env::var_os(key).filter(|value| !value.is_empty());
        let told = DatabaseChoice {
            database: said("TESTBED_DATABASE").map(|name| name.to_string_lossy().into_owned()),
            mysqld: said("MYSQLD").map(PathBuf::from),
        };
        let jar_folders = SYSTEM_JAR_FOLDERS.map(PathBuf::from).to_vec();
        let library_folders = SYSTEM_LIBRARY_FOLDERS.map(PathBuf::from).to_vec();
        let redis_server = said("REDIS_SERVER").map(PathBuf::from);
        Self { folders, jar_folders, library_folders, told, redis_server }
    }

    /// Only these, whatever the environment says.
    pub(crate) fn in_folders(folders: Vec<PathBuf>) -> Self {
        let (jar_folders, library_folders) = (folders.clone(), folders.clone());
        let told = DatabaseChoice::default();
        Self { folders, jar_folders, library_folders, told, redis_server: None }
    }

    /// The first executable file of that name.
    pub(crate) fn find(&self, program: &str) -> Option<PathBuf> {
        self.folders.iter().map(|folder| folder.join(program)).find(|path| is_executable(path))
    }

    /// As `find`; the error names the package that brings the program.
    pub(crate) fn need(&self, program: &str, package: &'static str) -> Result<PathBuf> {
        self.find(program).ok_or_else(|| self.missing(program, package))
    }

    /// `MySQL`'s server, or `MariaDB`'s if that goes by this name.
    pub(crate) fn find_mysqld(&self) -> Option<PathBuf> {
        match &self.told.mysqld {
            Some(path) => Some(path.clone()).filter(|path| is_executable(path)),
            None => self.find("mysqld"),
        }
    }

    /// The error for a `MySQL` that `find_mysqld` did not find.
    pub(crate) fn missing_mysqld(&self) -> Error {
        let searched = match &self.told.mysqld {
            Some(path) => format!("MYSQLD={}", path.display()),
            None => listed(&self.folders),
        };
        missing_in(&searched, "MySQL's mysqld", "mysql-server-core")
    }

    /// Redis' server. Debian's `redis-check-rdb` is the same executable, in a package without a
    /// service. It becomes the server when called by the server's name, which `link` has.
    pub(crate) fn redis_server(&self, link: &Path) -> Result<PathBuf> {
        if let Some(path) = &self.redis_server {
            let searched = format!("REDIS_SERVER={}", path.display());
            let found = Some(path.clone()).filter(|path| is_executable(path));
            return found.ok_or_else(|| missing_in(&searched, REDIS_SERVER, REDIS_PACKAGES));
        }
        if let Some(path) = self.find(REDIS_SERVER) {
            return Ok(path);
        }
        let Some(twin) = self.find("redis-check-rdb") else {
            return Err(self.missing(REDIS_SERVER, REDIS_PACKAGES));
        };
        match symlink(&twin, link) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(Error::io(format!("create {}", link.display()))(error))
            }
            _ => Ok(link.to_owned()),
        }
    }

    /// Takes Valkey for Redis' server from now on.
    pub(crate) fn choose_valkey(&mut self) -> Result<()> {
        let path = match self.redis_server.take() {
            Some(path) => path,
            None => self.need(VALKEY_SERVER, VALKEY_PACKAGE)?,
        };
        let output = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(Error::io(format!("run {}", path.display())))?;
        if !String::from_utf8_lossy(&output.stdout).contains("Valkey") {
            return Err(missing_in(&path.to_string_lossy(), VALKEY_SERVER, VALKEY_PACKAGE));
        }
        self.redis_server = Some(path);
        Ok(())
    }

    /// The error for a program that `find` did not find.
    pub(crate) fn missing(&self, program: &str, package: &'static str) -> Error {
        missing_in(&listed(&self.folders), program, package)
    }

    /// The first jar of that name.
    pub(crate) fn find_jar(&self, jar: &str) -> Option<PathBuf> {
        self.jar_folders.iter().map(|folder| folder.join(jar)).find(|path| path.is_file())
    }

    /// As `find_jar`; the error names the package that brings the jar.
    pub(crate) fn need_jar(&self, jar: &str, package: &'static str) -> Result<PathBuf> {
        self.find_jar(jar).ok_or_else(|| missing_in(&listed(&self.jar_folders), jar, package))
    }

    /// The first library of that name; the error names the package that brings it.
    pub(crate) fn need_library(&self, library: &str, package: &'static str) -> Result<PathBuf> {
        let folders = &self.library_folders;
        let mut paths = folders.iter().map(|folder| folder.join(library));
        let found = paths.find(|path| path.is_file());
        found.ok_or_else(|| missing_in(&listed(folders), library, package))
    }
}

fn missing_in(searched: &str, program: &str, package: &'static str) -> Error {
    let (program, searched) = (program.to_owned(), searched.to_owned());
    Error::MissingProgram { program, searched, package }
}

fn listed(folders: &[PathBuf]) -> String {
    env::join_paths(folders).unwrap_or_default().to_string_lossy().into_owned()
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valkey_is_chosen_by_what_it_says_and_a_redis_is_refused() {
        let bed = crate::Bed::start().unwrap();
        let program = |name: &str, version: &str| {
            let path = bed.dir().join(name);
            fs::write(&path, format!("#!/bin/sh\necho '{version}'\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
            path
        };
        let redis = program("redis-server", "Redis server v=7.0.15 sha=00000000:0");
        let choose = |redis_server: Option<&PathBuf>| {
            let mut programs = Programs::in_folders(vec![bed.dir().to_owned()]);
            programs.redis_server = redis_server.cloned();
            programs.choose_valkey().map(|()| programs.redis_server)
        };
        assert!(choose(None).unwrap_err().to_string().contains("valkey-server"));
        let error = choose(Some(&redis)).unwrap_err().to_string();
        assert!(error.contains("redis-server"), "{error}");
        let valkey = program("valkey-server", "Valkey server v=9.0.1 sha=00000000:0");
        assert_eq!(choose(None).unwrap(), Some(valkey.clone()));
        assert_eq!(choose(Some(&valkey)).unwrap(), Some(valkey));
    }
}
