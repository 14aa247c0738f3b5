//! The servers that only the locks need.

use distlock::Locks;

/// Checks the servers that only the locks need.
#[derive(Clone)]
pub(super) struct LockServersHealth {
    pub(super) locks: Locks,
    /// Whether the kind has such servers.
    pub(super) watched: bool,
}

impl LockServersHealth {
    pub(super) async fn ask(self) -> Result<(), String> {
        if !self.watched {
            return Ok(());
        }
        self.locks.check_servers().await.map_err(|error| format!("locks: {error}"))
    }
}
