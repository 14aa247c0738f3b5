//! `read-write`: readers share, a writer excludes all others.
//!
//! How it works: the holds of the readers, and those of the one writer, are a sorted set each (see
//! `holds`). So every reader has a lease of its own. The key lives as long as the longest lease, a
//! short one shortens no other, and a dead reader's hold ends with its own lease. Writers are woken
//! one at a time, readers all at once, each side on its own channel. When a holder dies, or a
//! message is lost, waiters ask again: at the end of the last lease in their way, and every half
//! second.
//!
//! Guarantees:
//! - exclusion of a writer from all others within the validity time;
//! - that neither side starves. A waiting writer keeps new readers out, so it waits only for
//!   readers that are inside (which may enter again). A writer that leaves invites the readers that
//!   wait at that moment; they enter before the next writer. A dead waiter stops counting 1.5 s
//!   after its last report;
//! - downgrading: the writer may also take the read lock, as the same owner, and keep it when it
//!   releases the write lock. Each is a hold of its own with its own renewal.
//!
//! A reader that asks for the write lock is refused at once with
//! [`LockError::Unsupported`](crate::LockError): it would wait for itself. A reader must enter
//! again as the same owner. As another owner it would wait behind a writer that waits for it.
//!
//! Flaws: among writers there is no order; a failover to a replica that lags forgets the lock.
//!
//! Source: the semantics of Redisson's `RReadWriteLock`, not its keys. Its format has time-out keys
//! whose names are computed inside the scripts. Its renewals keep a dead reader's hold alive
//! (redisson PR #7098, #1458). The format cannot be shared without these. Other known bugs that
//! this avoids: PR #7251, #1604, #4217, #2144. Tests: `tests/read_write.rs`,
//! `tests/hold_scripts.rs`, `tests/hold_faults.rs`.

use std::sync::Arc;

use crate::redis::RedisServer;
use crate::redis::holds::{HoldScripts, ScriptArgs, ScriptSet};
use crate::redis::inspector::RedisInspector;
use crate::redis::key_form::KeyForm;
use crate::redis::keys::own_key;
use crate::{
    Acquisition, Guarantees, LockInspector, LockKind, LockName, Locker, Owner, Request, guarantees,
};

const WRITE_HOLDS_PREFIX: &str = "distlock_rw_write";
const READ_HOLDS_PREFIX: &str = "distlock_rw_read";
const WRITERS_CHANNEL: &str = "distlock_rw_writers_channel";
const READERS_CHANNEL: &str = "distlock_rw_readers_channel";

const READ_SCRIPTS: ScriptSet = ScriptSet {
    acquire: include_str!("../../lua/rw_read.lua"),
    release: include_str!("../../lua/rw_release.lua"),
    holds: READ_HOLDS_PREFIX,
    args_of_request: |name, id, publish| script_args(name, id, READERS_CHANNEL, publish),
};

const WRITE_SCRIPTS: ScriptSet = ScriptSet {
    acquire: include_str!("../../lua/rw_write.lua"),
    release: READ_SCRIPTS.release,
    holds: WRITE_HOLDS_PREFIX,
    args_of_request: |name, id, publish| script_args(name, id, WRITERS_CHANNEL, publish),
};

fn script_args(name: &LockName, id: &str, channel: &str, publish: &str) -> ScriptArgs {
    let keys = [
        WRITE_HOLDS_PREFIX,
        READ_HOLDS_PREFIX,
        "distlock_rw_writers",
        "distlock_rw_readers",
        "distlock_rw_invited",
    ];
    let mut keys: Vec<_> = keys.map(|prefix| own_key(prefix, name)).into();
    keys.push(format!("{}:{id}", own_key("distlock_rw_latch", name)));
    let channels = [WRITERS_CHANNEL, READERS_CHANNEL].map(|channel| own_key(channel, name));
    let mut release = Vec::from(channels);
    release.push(publish.to_owned());
    let is_shared = channel == WRITERS_CHANNEL;
    let channel = own_key(channel, name);
    ScriptArgs { keys, channel, is_shared, acquire: Vec::new(), release }
}

/// Read-write locks on a Redis server. Many owners may hold the read lock of a name at once; the
/// write lock excludes readers and other writers.
///
/// ```no_run
/// # use distlock::{LockError, LockName, LockOptions, Locks, ReadWrite, RedisServer};
/// # async fn downgrade(server: &RedisServer) -> Result<(), LockError> {
/// let both = ReadWrite::new(server);
/// let (readers, writers) = (Locks::new(both.reader()), Locks::new(both.writer()));
/// let (name, options) = (LockName::new("lock:prices")?, LockOptions::default());
/// let writing = writers.lock(&name, &options).await?;
/// // Goes on reading what it has written, together with others.
/// let reading = readers.lock_as(writing.owner().clone(), &name, &options).await?;
/// writing.release().await?;
/// reading.release().await?;
/// # Ok(()) }
/// ```
pub struct ReadWrite {
    reader: Arc<ReadLock>,
    writer: Arc<WriteLock>,
}

impl ReadWrite {
    /// The locks of that server.
    #[must_use]
    pub fn new(server: &RedisServer) -> Self {
        let scripts = HoldScripts::new(server, &READ_SCRIPTS);
        let reader = ReadLock { server: server.clone(), scripts };
        Self { reader: Arc::new(reader), writer: Arc::new(WriteLock::new(server)) }
    }

    /// The read side. Tasks of one process do not queue for it: they share.
    #[must_use]
    pub fn reader(&self) -> Arc<dyn Locker> {
        Arc::clone(&self.reader) as Arc<dyn Locker>
    }

    /// The write side.
    #[must_use]
    pub fn writer(&self) -> Arc<dyn Locker> {
        Arc::clone(&self.writer) as Arc<dyn Locker>
    }
}

struct ReadLock {
    server: RedisServer,
    scripts: Arc<HoldScripts>,
}

impl Locker for ReadLock {
    fn name(&self) -> &'static str {
        "read-write-reader"
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::ReadWrite)
    }

    fn fresh_owner(&self) -> Owner {
        self.server.fresh_owner()
    }

    fn uses_local_queue(&self) -> bool {
        false
    }

    fn inspector(&self) -> Option<Arc<dyn LockInspector>> {
        Some(RedisInspector::of_holds(
            LockKind::ReadWrite,
            &self.server.connection(),
            KeyForm::ReadWrite,
            &self.scripts,
        ))
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        self.scripts.begin(request)
    }
}

/// The write side, which is what the kind is as a plain lock.
pub(crate) struct WriteLock {
    server: RedisServer,
    scripts: Arc<HoldScripts>,
}

impl WriteLock {
    pub(crate) fn new(server: &RedisServer) -> Self {
        Self { server: server.clone(), scripts: HoldScripts::new(server, &WRITE_SCRIPTS) }
    }
}

impl Locker for WriteLock {
    fn name(&self) -> &'static str {
        LockKind::ReadWrite.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::ReadWrite)
    }

    fn fresh_owner(&self) -> Owner {
        self.server.fresh_owner()
    }

    fn read_side(&self) -> Option<Arc<dyn Locker>> {
        let scripts = HoldScripts::new(&self.server, &READ_SCRIPTS);
        Some(Arc::new(ReadLock { server: self.server.clone(), scripts }))
    }

    fn inspector(&self) -> Option<Arc<dyn LockInspector>> {
        Some(RedisInspector::of_holds(
            LockKind::ReadWrite,
            &self.server.connection(),
            KeyForm::ReadWrite,
            &self.scripts,
        ))
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        self.scripts.begin(request)
    }
}
