//! A private MariaDB or MySQL.

mod dialect;
mod extras;
mod galera;
mod replicated;
mod replication;
mod setup;
mod sharded;

use std::collections::HashMap;
use std::fmt;
use std::mem::replace;
use std::net::SocketAddr;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use uuid::Uuid;

use self::extras::Extras;
use self::galera::{ALONE, Node};
use self::replicated::CLIENT;
pub use self::replicated::{ReplicatedDatabase, Replication};
use self::setup::{DataFolder, Files, Server, init_sql, option, render};
pub use self::sharded::ShardedDatabase;
use crate::bed_state::{BedState, create_private_folder, write_private};
use crate::error::{Error, Result, UnknownFlavor};
use crate::mysql_wire::{Login, MySqlConnection};
use crate::ports;
use crate::probe::Probe;
use crate::process::{Process, ProcessSpec, start_on_free_port};
use crate::shim::{Dial, Shim};

/// The only user of the server.
const USER: &str = "seckill";

/// Which database server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavor {
    /// What the environment variable `TESTBED_DATABASE` says; else whichever is installed,
    /// `MariaDB` first. `MYSQLD` says where `MySQL`'s server is, if not where programs are.
    Any,
    /// `MariaDB`.
    MariaDb,
    /// `MySQL`.
    MySql,
}

/// A running database server. Derefs to its [`Process`].
#[derive(Debug)]
pub struct Database {
    process: Process,
    flavor: Flavor,
    address: SocketAddr,
    login: Login,
    version: String,
    clock: Option<Shim>,
    disk_space: Option<Shim>,
    /// Where it meets the other nodes of its cluster, if it is a node.
    group: Option<SocketAddr>,
    /// Fields are dropped in their order: the process has ended when this is removed.
    _data: DataFolder,
}

impl Database {
    pub(crate) fn start(bed: &Arc<BedState>, flavor: Flavor) -> Result<Self> {
        Self::start_as(bed, &Server::find(bed, flavor)?, &Extras::default())
    }

    pub(crate) fn start_with_clock(bed: &Arc<BedState>, flavor: Flavor) -> Result<Self> {
        let extras = Extras { has_clock: true, ..Extras::default() };
        Self::start_as(bed, &Server::find(bed, flavor)?, &extras)
    }

    pub(crate) fn start_with_log(bed: &Arc<BedState>) -> Result<Self> {
        let extras = Extras { has_log: true, ..Extras::default() };
        Self::start_as(bed, &Server::find(bed, Flavor::Any)?, &extras)
    }

    pub(crate) fn start_with_disk_space(bed: &Arc<BedState>, flavor: Flavor) -> Result<Self> {
        let extras = Extras { has_disk_space: true, has_log: true, ..Extras::default() };
        Self::start_as(bed, &Server::find(bed, flavor)?, &extras)
    }

    fn start_as(bed: &Arc<BedState>, server: &Server, extras: &Extras) -> Result<Self> {
        let name = bed.unique_name(&server.flavor.to_string());
        let files = Files::of(bed, &name);
        let password = || Uuid::new_v4().simple().to_string();
        let login = Login {
            socket: files.socket.clone(),
            user: USER.into(),
            password: extras.password().map_or_else(password, str::to_owned),
        };
        let alone = extras.node.as_ref().map_or("", |_| ALONE);
        let accounts = init_sql(server.flavor, &login);
        let accounts = match &extras.member {
            Some(member) => member.init_sql(&accounts),
            None => alone.to_owned() + &accounts,
        };
        // Without TLS, MySQL lets an account in over TCP once the socket has let it in. So each
        // start waits for the account that clients of a member use.
        let user = if extras.member.is_some() { CLIENT } else { USER };
        let client = Login { user: user.into(), ..login.clone() };
        write_private(&files.init, &accounts)?;
        create_private_folder(&files.temp)?;
        // The port in the file is not used until the server itself starts.
        write_private(&files.config, &render(&files, None))?;
        server.install(bed, &name, &files)?;
        let shim = |dial| Shim::start(bed, &name, dial);
        let clock = extras.has_clock.then(|| shim(Dial::Clock)).transpose()?;
        let disk_space = extras.has_disk_space.then(|| shim(Dial::FullDisk)).transpose()?;
        start_on_free_port(|| {
            let address = ports::free_address()?;
            let group = extras.node.as_ref().map(|_| ports::free_address()).transpose()?;
            if let Some(node) = &extras.node {
                node.save_state(&files.data)?;
            }
            let config = extras.render(server.flavor, &files, address, group)?;
            write_private(&files.config, &config)?;
            let version = Arc::<OnceLock<String>>::default();
            let mut program = server.program.clone();
            let mut args = vec![
                option("--defaults-file=", &files.config),
                option("--init-file=", &files.init),
            ];
            if extras.node.is_some() {
                let (starter, state) = Node::starter(bed, &files);
                args.splice(..0, [state, replace(&mut program, starter).into()]);
            }
            let process_spec = ProcessSpec {
                name: name.clone(),
                program,
                args,
                env: extras.env(bed, clock.iter().chain(&disk_space)),
                probe: Probe::Database { login: client.clone(), version: Arc::clone(&version) },
            };
            let process = Process::start(bed, process_spec)?;
            Ok(Self {
                process,
                flavor: server.flavor,
                address,
                login: login.clone(),
                version: version.get().cloned().unwrap_or_default(),
                clock: clock.clone(),
                disk_space: disk_space.clone(),
                group,
                _data: DataFolder::of(&files),
            })
        })
    }

    /// `mysql://user:password@127.0.0.1:port/database?ssl-mode=disabled`: newer servers would
    /// encrypt if nothing were said, and no proxy would understand what it carries.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        let Login { user, password, .. } = &self.login;
        format!("mysql://{user}:{password}@{}/{database}?ssl-mode=disabled", self.address)
    }

    /// Creates a database, with `utf8mb4` as its character set.
    ///
    /// # Errors
    /// If it exists, or the name is not made of 1 to 64 ASCII letters, digits and underscores.
    pub fn create_database(&self, name: &str) -> Result<()> {
        self.execute(name, &format!("CREATE DATABASE `{name}` CHARACTER SET utf8mb4"))
    }

    /// Drops a database.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn drop_database(&self, name: &str) -> Result<()> {
        self.execute(name, &format!("DROP DATABASE `{name}`"))
    }

    /// Whether it acknowledges what it has not written yet
    /// (`innodb_flush_log_at_trx_commit = 0`): then killed, it forgets up to a second of it. A
    /// restart ends that.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn set_forgetful(&self, on: bool) -> Result<()> {
        let value = u8::from(!on);
        self.run(&format!("SET GLOBAL innodb_flush_log_at_trx_commit = {value}"))
    }

    /// Sets the server's wall clock: this many milliseconds ahead of the true time, or behind it
    /// if negative.
    ///
    /// # Errors
    /// If it was not started by [`Bed::database_with_clock`](crate::Bed::database_with_clock).
    pub fn jump_clock(&self, offset_ms: i64) -> Result<()> {
        match &self.clock {
            Some(clock) => clock.set(offset_ms),
            None => Err(self.process.failed("was started without a clock of its own".into())),
        }
    }

    /// Fills the server's disk: no file gets another block. Each COMMIT adds to the log, and waits
    /// for space.
    ///
    /// # Errors
    /// If it was not started by [`Bed::database_with_disk_space`].
    ///
    /// [`Bed::database_with_disk_space`]: crate::Bed::database_with_disk_space
    pub fn fill_disk(&self) -> Result<()> {
        self.disk_space()?.set(1)
    }

    /// Makes space on the disk, and starts the server again: else it looks for space once a minute.
    ///
    /// # Errors
    /// As [`Database::fill_disk`]; also if it does not become ready.
    pub fn make_space(&self) -> Result<()> {
        self.disk_space()?.set(0)?;
        self.restart()
    }

    /// How many of its writes have failed because its disk was full.
    ///
    /// # Errors
    /// As [`Database::fill_disk`].
    pub fn writes_without_space(&self) -> Result<i64> {
        self.disk_space()?.count()
    }

    fn disk_space(&self) -> Result<&Shim> {
        let missing = || self.process.failed("was started without a disk of its own".into());
        self.disk_space.as_ref().ok_or_else(missing)
    }

    /// The server's version, as in `10.11.6-MariaDB`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Which server it is; never [`Flavor::Any`].
    #[must_use]
    pub fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Executes a statement in a database.
    ///
    /// # Errors
    /// If the server refuses it or does not answer.
    pub fn execute_in(&self, database: &str, statement: &str) -> Result<()> {
        let sql = |error: std::io::Error| Error::Sql {
            statement: statement.to_owned(),
            message: error.to_string(),
        };
        let mut connection = MySqlConnection::open(&self.login).map_err(sql)?;
        connection.query(&format!("USE `{database}`")).map_err(sql)?;
        connection.query(statement).map(drop).map_err(sql)
    }

    fn execute(&self, name: &str, statement: &str) -> Result<()> {
        let sql = |message: String| Error::Sql { statement: statement.to_owned(), message };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
            return Err(sql("a name has 1 to 64 ASCII letters, digits and underscores".into()));
        }
        self.run(statement)
    }

    fn run(&self, statement: &str) -> Result<()> {
        self.query(statement).map(drop)
    }

    /// The rows of a statement, each by the names of its columns; without what is NULL.
    fn query(&self, statement: &str) -> Result<Vec<HashMap<String, String>>> {
        let sql = |message: String| Error::Sql { statement: statement.to_owned(), message };
        MySqlConnection::open(&self.login)
            .and_then(|mut connection| connection.query(statement))
            .map_err(|error| sql(error.to_string()))
    }
}

impl Deref for Database {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "any",
            Self::MariaDb => "mariadb",
            Self::MySql => "mysql",
        })
    }
}

impl FromStr for Flavor {
    type Err = UnknownFlavor;

    fn from_str(text: &str) -> std::result::Result<Self, UnknownFlavor> {
        [Self::Any, Self::MariaDb, Self::MySql]
            .into_iter()
            .find(|flavor| flavor.to_string() == text)
            .ok_or_else(|| UnknownFlavor(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use crate::mysql_wire::{Login, MySqlConnection};
    use crate::{Bed, Flavor};

    #[test]
    fn only_the_user_of_the_url_gets_in_and_only_with_the_password() {
        let bed = Bed::start().unwrap();
        let database = bed.database(Flavor::Any).unwrap();
        let refused = |user: &str, password: &str| {
            let login = Login {
                user: user.into(),
                password: password.into(),
                socket: database.login.socket.clone(),
            };
            let error = MySqlConnection::open(&login).err().expect("a login that must be refused");
            assert!(error.to_string().contains("Access denied"), "{error}");
        };
        refused("root", "");
        refused("", "");
        refused("seckill", "");
        refused("seckill", "wrong");
        database.create_database("shop").unwrap();
        let error = database.create_database("shop").unwrap_err().to_string();
        assert!(error.contains("database exists"), "{error}");
        let error = database.create_database("shop`; DROP DATABASE mysql").unwrap_err().to_string();
        assert!(error.contains("letters, digits"), "{error}");
        database.drop_database("shop").unwrap();
    }

    #[test]
    fn a_server_that_is_given_up_leaves_no_data() {
        let bed = Bed::start().unwrap();
        let database = bed.database(Flavor::Any).unwrap();
        let data = bed.dir().join(database.name());
        assert!(data.join("ibdata1").is_file());
        drop(database);
        assert!(!data.exists());
    }

    #[test]
    fn a_forgetful_server_says_so_and_a_restart_makes_it_remember_again() {
        let bed = Bed::start().unwrap();
        let database = bed.database(Flavor::Any).unwrap();
        // e to the power of 710 is out of range, and to that of 0 it is not.
        let is_forgetful = || {
            let asked = "SET @asked = EXP(710 * @@GLOBAL.innodb_flush_log_at_trx_commit)";
            database.run(asked).is_ok()
        };
        assert!(!is_forgetful());
        database.set_forgetful(true).unwrap();
        assert!(is_forgetful());
        database.restart().unwrap();
        assert!(!is_forgetful());
    }
}
