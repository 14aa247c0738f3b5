//! `read-write`: readers share, a writer excludes everybody else.
//!
//! The holds of the readers, and those of the one writer, are a sorted set each (see `holds`), so
//! every reader has a lease of its own: the key lives as long as the longest, a short one shortens
//! no other, and a reader that died is gone when its own lease ends, whoever else reads on.
//!
//! **Who goes first**: a waiting writer keeps new readers out, so it waits only for those who are
//! inside (and they may enter again). When a writer leaves, it invites the readers who wait at
//! that moment, and they enter before the next writer. So neither side starves; among writers
//! there is no order. A waiter that died stops counting 1.5 s after its last sign of life.
//!
//! **Changing sides**: the writer may also take the read lock, as the same owner, and keep it when
//! it releases the write lock; each is a hold of its own and renewed on its own. A reader that
//! asks for the write lock is refused at once with [`LockError::Unsupported`](crate::LockError):
//! it would wait for itself. A reader that enters again must do so as the same owner: as somebody
//! else it stands behind a waiting writer, who waits for it.
//!
//! Writers are woken one at a time, readers all at once, each side on a channel of its own. When a
//! holder dies, or a message is lost, waiters look again by themselves: when the last lease ends
//! that keeps them out, and every half second anyway. Flaw: a failover to a replica that lags
//! forgets the lock.
//!
//! The semantics are those of Redisson's `RReadWriteLock`; the keys are not. Its format has
//! time-out keys whose names are computed inside the scripts and renewals that keep a dead
//! reader's hold alive (redisson PR #7098, #1458); there is no sharing it without these. Known
//! bugs of it that this avoids: also PR #7251, #1604, #4217, #2144. Tests: `tests/read_write.rs`,
//! `tests/hold_scripts.rs`, `tests/hold_faults.rs`.

use std::sync::Arc;

use super::RedisServer;
use super::holds::{Form, Scripts, Terms};
use super::keys::own_key;
use crate::{Acquisition, Guarantees, LockKind, Locker, Owner, Request, guarantees};

const WRITE: &str = "distlock_rw_write";
const READ: &str = "distlock_rw_read";
const WRITERS_CHANNEL: &str = "distlock_rw_writers_channel";
const READERS_CHANNEL: &str = "distlock_rw_readers_channel";

const READING: Form = Form {
    acquire: include_str!("../../lua/rw_read.lua"),
    release: include_str!("../../lua/rw_release.lua"),
    holds: READ,
    terms: |request, publish| terms(request, READERS_CHANNEL, publish),
};

const WRITING: Form = Form {
    acquire: include_str!("../../lua/rw_write.lua"),
    release: READING.release,
    holds: WRITE,
    terms: |request, publish| terms(request, WRITERS_CHANNEL, publish),
};

fn terms(Request { name, id, .. }: &Request, channel: &str, publish: &str) -> Terms {
    let keys = [WRITE, READ, "distlock_rw_writers", "distlock_rw_readers", "distlock_rw_invited"];
    let mut keys: Vec<_> = keys.map(|prefix| own_key(prefix, name)).into();
    keys.push(format!("{}:{id}", own_key("distlock_rw_latch", name)));
    let channels = [WRITERS_CHANNEL, READERS_CHANNEL].map(|channel| own_key(channel, name));
    let mut release = Vec::from(channels);
    release.push(publish.to_owned());
    let is_shared = channel == WRITERS_CHANNEL;
    let channel = own_key(channel, name);
    Terms { keys, channel, is_shared, acquire: Vec::new(), release }
}

/// Read-write locks on a Redis server: each name has a read lock, which many owners may hold at
/// once, and a write lock, which excludes them and each other.
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
    reader: Arc<Reader>,
    writer: Arc<Writer>,
}

impl ReadWrite {
    /// The locks of that server.
    pub fn new(server: &RedisServer) -> Self {
        let scripts = Scripts::new(server, &READING);
        let reader = Reader { server: server.clone(), scripts };
        Self { reader: Arc::new(reader), writer: Arc::new(Writer::new(server)) }
    }

    /// The read side. Tasks of one process do not queue for it: they share.
    pub fn reader(&self) -> Arc<dyn Locker> {
        Arc::clone(&self.reader) as Arc<dyn Locker>
    }

    /// The write side.
    pub fn writer(&self) -> Arc<dyn Locker> {
        Arc::clone(&self.writer) as Arc<dyn Locker>
    }
}

struct Reader {
    server: RedisServer,
    scripts: Arc<Scripts>,
}

impl Locker for Reader {
    fn name(&self) -> &'static str {
        "read-write-reader"
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::ReadWrite)
    }

    fn fresh_owner(&self) -> Owner {
        self.server.fresh_owner()
    }

    fn has_first_stage(&self) -> bool {
        false
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        self.scripts.begin(request)
    }
}

/// The write side, which is what the kind is as a plain lock.
pub(crate) struct Writer {
    server: RedisServer,
    scripts: Arc<Scripts>,
}

impl Writer {
    pub(crate) fn new(server: &RedisServer) -> Self {
        Self { server: server.clone(), scripts: Scripts::new(server, &WRITING) }
    }
}

impl Locker for Writer {
    fn name(&self) -> &'static str {
        LockKind::ReadWrite.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::ReadWrite)
    }

    fn fresh_owner(&self) -> Owner {
        self.server.fresh_owner()
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        self.scripts.begin(request)
    }
}
