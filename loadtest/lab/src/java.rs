//! What a replica in Java is run with: the `java` of `PATH`, and the jar of `make jvm`.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use loadtest_measure::error::{Error, Result};

/// What `mvn package` makes of `jvm/`, from the project's folder.
const JAR: &str = "jvm/target/seckill.jar";

/// The oldest Java that the jar runs on.
const OLDEST: u32 = 17;

/// The replica in Java.
pub(crate) fn jar() -> Result<PathBuf> {
    let here = std::env::current_dir().unwrap_or_default();
    let mut jars = here.ancestors().map(|folder| folder.join(JAR));
    jars.find(|jar| jar.is_file()).ok_or_else(|| {
        let missing = format!("there is no {JAR} in this folder or above; `make jvm` builds it");
        Error::Usage(missing)
    })
}

/// A `java` that can be executed.
#[derive(Debug)]
pub struct Java {
    /// The program.
    pub(crate) program: PathBuf,
}

impl Java {
    /// The first one of `PATH`.
    pub fn find() -> Result<Self> {
        Self::find_in(&std::env::var_os("PATH").unwrap_or_default())
    }

    fn find_in(path: &OsStr) -> Result<Self> {
        let mut programs = std::env::split_paths(path).map(|folder| folder.join("java"));
        let program = programs.find(|program| is_executable(program)).ok_or_else(|| {
            let missing =
                "there is no java in PATH; deploy/install-servers.sh --for-interop brings it";
            Error::Usage(missing.to_owned())
        })?;
        Ok(Self { program })
    }

    /// Asks for the version; fails if the jar does not run on it.
    pub fn version(&self) -> Result<String> {
        let shown = self.program.display();
        let told = Command::new(&self.program).arg("-version").output();
        let told = told.map_err(|error| Error::Usage(format!("{shown} cannot be run: {error}")))?;
        let told = String::from_utf8_lossy(&told.stderr);
        let version = told.lines().find_map(version_in);
        match version {
            Some(version) if feature(version) >= Some(OLDEST) => Ok(version.to_owned()),
            Some(version) => {
                Err(Error::Usage(format!("Java {OLDEST} or newer is needed; {shown} is {version}")))
            }
            None => Err(Error::Usage(format!(
                "Java {OLDEST} or newer is needed; {shown} does not report its version"
            ))),
        }
    }
}

fn is_executable(program: &Path) -> bool {
    let file = std::fs::metadata(program);
    file.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// `17.0.15` of the line `openjdk version "17.0.15" 2025-04-15`.
fn version_in(line: &str) -> Option<&str> {
    line.split_once(" version \"")?.1.split('"').next()
}

/// `17` of `17.0.15` and of `17-ea`, and `1` of the `1.8.0_292` that Java 8 has.
fn feature(version: &str) -> Option<u32> {
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with a `java` that reports this version. Another process writes it: what this one
    /// has open for writing cannot be executed.
    fn fake(version: &str, mode: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let text = folder.path().join("text");
        let line = format!("openjdk version \"{version}\" 2020-01-01");
        let script = format!("#!/bin/sh\necho 'Picked up options' >&2\necho '{line}' >&2\n");
        std::fs::write(&text, script).expect("written");
        let mut install = Command::new("install");
        let installed =
            install.arg("-m").arg(mode).arg(text).arg(folder.path().join("java")).status();
        assert!(installed.expect("install runs").success());
        folder
    }

    #[test]
    fn a_java_that_is_too_old_is_refused_by_its_path_and_version() {
        for (version, is_new_enough) in
            [("11.0.2", false), ("1.8.0_292", false), ("17.0.15", true), ("25-ea", true)]
        {
            let folder = fake(version, "755");
            let java = Java::find_in(folder.path().as_os_str()).expect("it is there");
            let said = java.version().map_err(|error| (error.exit_code(), error.to_string()));
            let shown = folder.path().join("java");
            let refusal = format!("Java 17 or newer is needed; {} is {version}", shown.display());
            let expected = is_new_enough.then(|| version.to_owned()).ok_or((2, refusal));
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn a_java_that_cannot_be_executed_is_passed_over() {
        let (plain, program) = (fake("25", "644"), fake("17.0.15", "755"));
        let both = std::env::join_paths([plain.path(), program.path()]).expect("a PATH");
        let java = Java::find_in(&both).expect("the second one");
        assert_eq!(java.program, program.path().join("java"));
        let error = Java::find_in(plain.path().as_os_str()).expect_err("there is none");
        assert!(error.to_string().contains("no java in PATH"), "{error}");
    }
}
