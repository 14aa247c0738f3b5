//! Which programs make a database server, its system tables, its accounts and its settings.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use super::Flavor;
use crate::bed_state::BedState;
use crate::error::{Error, Result};
use crate::mysql_wire::Login;
use crate::probe::Probe;
use crate::process::{Process, ProcessSpec};

/// The programs of one flavor.
pub(crate) struct Server {
    pub(crate) flavor: Flavor,
    pub(crate) program: PathBuf,
    pub(crate) installer: PathBuf,
}

impl Server {
    pub(crate) fn find(bed: &BedState, flavor: Flavor) -> Result<Self> {
        let programs = &bed.programs;
        let mariadb = || -> Result<Self> {
            const PACKAGE: &str = "mariadb-server-core";
            Ok(Self {
                flavor: Flavor::MariaDb,
                program: programs.need("mariadbd", PACKAGE)?,
                installer: programs.need("mariadb-install-db", PACKAGE)?,
            })
        };
        // MariaDB's packages have a `mysqld` as well.
        let mysql = || -> Option<Self> {
            let program = programs.find_mysqld()?;
            let version =
                Command::new(&program).args(["--no-defaults", "--version"]).output().ok()?;
            let is_mariadb = String::from_utf8_lossy(&version.stdout).contains("MariaDB");
            let installer = program.clone();
            (!is_mariadb).then_some(Self { flavor: Flavor::MySql, program, installer })
        };
        let flavor = match (flavor, &programs.told.database) {
            (Flavor::Any, Some(told)) => told.parse().map_err(Error::UnknownFlavor)?,
            (flavor, _) => flavor,
        };
        match flavor {
            Flavor::MariaDb => mariadb(),
            Flavor::Any if programs.find("mariadbd").is_some() => mariadb(),
            Flavor::Any => mysql().ok_or_else(|| {
                let packages = "mariadb-server-core or mysql-server-core";
                programs.missing("mariadbd or MySQL's mysqld", packages)
            }),
            Flavor::MySql => mysql().ok_or_else(|| programs.missing_mysqld()),
        }
    }

    /// Creates the system tables.
    pub(crate) fn install(&self, bed: &Arc<BedState>, name: &str, files: &Files) -> Result<()> {
        let mut args = vec![option("--defaults-file=", &files.config)];
        match self.flavor {
            Flavor::MySql => args.push("--initialize-insecure".into()),
            Flavor::MariaDb | Flavor::Any => args.extend(
                [
                    "--auth-root-authentication-method=normal",
                    "--skip-test-db",
                    "--skip-name-resolve",
                ]
                .map(OsString::from),
            ),
        }
        let process_spec = ProcessSpec {
            name: format!("{name}-install"),
            program: self.installer.clone(),
            args,
            env: vec![],
            probe: Probe::Exit,
        };
        let installed = Process::start(bed, process_spec)?;
        // It only advertises; what a failure says is in the error.
        fs::remove_file(installed.log_path()).map_err(Error::io("remove a log"))
    }
}

/// Where the server has its things.
pub(crate) struct Files {
    pub(crate) config: PathBuf,
    pub(crate) init: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) temp: PathBuf,
}

impl Files {
    pub(crate) fn of(bed: &BedState, name: &str) -> Self {
        let file = |suffix: &str| bed.path(&format!("{name}{suffix}"));
        Self {
            config: file(".cnf"),
            init: file(".sql"),
            data: file(""),
            socket: file(".sock"),
            // A server that starts removes the temporary tables of all who share its folder.
            temp: bed.temp_folder().join(name),
        }
    }
}

/// The folder of a server's data. Dropping it removes the folder: a run that starts one server
/// after the other needs room only for those that run, 120 MB each.
#[derive(Debug)]
pub(crate) struct DataFolder(PathBuf);

impl DataFolder {
    pub(crate) fn of(files: &Files) -> Self {
        Self(files.data.clone())
    }
}

impl Drop for DataFolder {
    fn drop(&mut self) {
        // What remains is removed with the bed.
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn option(name: &str, value: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(value);
    option
}

/// Runs at every start, before the first client is let in: afterwards there is exactly one account
/// that can log in, and it has a password. One statement a line, as both servers read it.
pub(crate) fn init_sql(flavor: Flavor, login: &Login) -> String {
    let Login { user, password, .. } = login;
    let drop_root = match flavor {
        Flavor::MySql => "DROP USER IF EXISTS 'root'@'localhost';",
        // There is one root for each name of the host.
        Flavor::MariaDb | Flavor::Any => {
            "DELETE FROM mysql.global_priv WHERE User IN ('root', '');"
        }
    };
    format!(
        "CREATE USER IF NOT EXISTS '{user}'@'%' IDENTIFIED BY '{password}';\n\
         GRANT ALL PRIVILEGES ON *.* TO '{user}'@'%' WITH GRANT OPTION;\n\
         {drop_root}\n\
         FLUSH PRIVILEGES;\n"
    )
}

/// The server's option file. `loose-` marks what not every version has.
pub(crate) fn render(files: &Files, address: Option<SocketAddr>) -> String {
    let mut lines = vec![
        "[mysqld]".to_owned(),
        format!("datadir = {}", files.data.display()),
        format!("socket = {}", files.socket.display()),
        format!("pid-file = {}.pid", files.data.display()),
        format!("tmpdir = {}", files.temp.display()),
        format!("secure-file-priv = {}", files.temp.display()),
    ];
    if nix::unistd::geteuid().is_root() {
        lines.push("user = root".into());
    }
    if let Some(address) = address {
        lines.push(format!("bind-address = {}", address.ip()));
        lines.push(format!("port = {}", address.port()));
    }
    lines.join("\n") + "\n" + SETTINGS
}

const SETTINGS: &str = "\
skip-name-resolve
skip-log-bin
loose-mysqlx = OFF
max_connections = 1000
character-set-server = utf8mb4
# MySQL has it on by default, and lists its row locks there. MariaDB has it off.
loose-performance-schema-instrument = '%=OFF'
innodb_buffer_pool_size = 256M
loose-innodb_buffer_pool_dump_at_shutdown = OFF
loose-innodb_buffer_pool_load_at_startup = OFF
loose-innodb_log_file_size = 96M
loose-innodb_redo_log_capacity = 96M
# What was acknowledged must survive a crash: this is measured, so it is not for sale.
innodb_flush_log_at_trx_commit = 1
# MariaDB 11.6 made it the default; the laboratory shows what happens without.
loose-innodb_snapshot_isolation = OFF
";
