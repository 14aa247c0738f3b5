//! What can go wrong with a test bed.

use std::io;

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A name that is no [`Flavor`](crate::Flavor).
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no database: any, mariadb or mysql")]
pub struct UnknownFlavor(pub(crate) String);

/// What can go wrong. `Display` is one sentence, followed by the end of the log where there is one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program is not installed, or not where it was looked for.
    #[error("{program} was not found in {searched}; install {package}")]
    MissingProgram {
        /// The program, or the alternatives.
        program: String,
        /// The folders that were searched, as in `PATH`.
        searched: String,
        /// What to install, by the names that Debian gives its packages.
        package: &'static str,
    },
    /// The environment asks for a database that there is not.
    #[error("TESTBED_DATABASE: {0}")]
    UnknownFlavor(UnknownFlavor),
    /// The operating system refused something.
    #[error("cannot {action}: {cause}")]
    Io {
        /// What was tried, as in "create /tmp/x".
        action: String,
        /// Why it did not work.
        cause: io::Error,
    },
    /// A process did not start, stop, freeze or thaw in its time.
    #[error("{name} {reason}\n{tail}")]
    Failed {
        /// The process, as in `mariadb-1`.
        name: String,
        /// What it did, as in "exited with code 1 before it was ready: no such file".
        reason: String,
        /// The last lines of its log.
        tail: String,
    },
    /// The database refused a statement.
    #[error("the database refused `{statement}`: {message}")]
    Sql {
        /// The statement.
        statement: String,
        /// The server's words.
        message: String,
    },
    /// A Redis server refused a command, or did not answer it.
    #[error("{name} did not do `{command}`: {message}")]
    Redis {
        /// The process, as in `redis-2`.
        name: String,
        /// The command.
        command: String,
        /// The server's words, or what broke the connection.
        message: String,
    },
    /// The bed has been dropped: nothing can be started in it any more.
    #[error("the test bed is closed")]
    Closed,
}

impl Error {
    /// For `map_err`: says what was tried.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |cause| Self::Io { action, cause }
    }
}
