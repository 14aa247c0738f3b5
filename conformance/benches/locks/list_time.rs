//! Many locks that are listed: how long all pages take.
//!
//! The inspector reads holders, leases and waiters of each lock. Beside it the bare commands find
//! the same keys by SCAN, and read a hash and its expiry for each in one pipeline a page.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use conformance::Servers;
use distlock::{BoxFuture, Lease, LockKind, LockName, LockOptions, Locks};
use loadtest_measure::error::{Error, Result};
use redis::aio::MultiplexedConnection;

use crate::cell::{Cell, Slice, broken};
use crate::rows::Figure;

/// Milliseconds for all locks.
pub(crate) const TIME: Figure = Figure::P50(ALL);
const ALL: &str = "all pages";
/// Locks of a page, the most that the inspector gives at once.
const PAGE: usize = 1000;
const PREFIX: &str = "lock:listed:";
/// Longer than any run.
const LEASE: Duration = Duration::from_hours(10);

/// Locks that are held, and a reader of all of them.
pub(crate) struct LockLister {
    locks: Locks,
    /// Reads the keys by bare commands instead.
    bare: Option<MultiplexedConnection>,
    count: usize,
}

impl LockLister {
    /// Takes `count` locks, unless they are held already, and leaves them to their leases.
    pub(crate) async fn of(servers: &Servers, count: usize, is_bare: bool) -> Result<Self> {
        let locks = servers.locks(LockKind::Redisson).await;
        let options = LockOptions::new(Duration::ZERO, Lease::Fixed(LEASE));
        for number in 0..count {
            let name = LockName::new(format!("{PREFIX}{number}")).map_err(broken("a name"))?;
            if let Ok(guard) = locks.lock(&name, &options).await {
                guard.leave_for(LEASE).await.map_err(broken("a lock to list"))?;
            }
        }
        let bare = if is_bare {
            let client =
                redis::Client::open(servers.redis().url()).map_err(broken("an address"))?;
            let connection = client.get_multiplexed_async_connection().await;
            Some(connection.map_err(broken("a connection"))?)
        } else {
            None
        };
        Ok(Self { locks, bare, count })
    }

    /// Reads all of them once; how many these were.
    async fn read(&mut self) -> Result<usize> {
        let (mut read, mut cursor) = (0, None);
        loop {
            let page = self.locks.list(PREFIX, cursor, PAGE).await.map_err(broken("a list"))?;
            read += page.locks.len();
            cursor = page.next;
            if cursor.is_none() {
                return Ok(read);
            }
        }
    }
}

/// Reads the keys of all locks and what they store; how many these were.
async fn read_bare(connection: &mut MultiplexedConnection) -> Result<usize> {
    let (mut read, mut cursor) = (0, 0_u64);
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(format!("{PREFIX}*")).arg("COUNT").arg(PAGE);
        let (next, keys): (u64, Vec<String>) =
            scan.query_async(connection).await.map_err(broken("SCAN"))?;
        let mut page = redis::pipe();
        for key in &keys {
            page.cmd("HGETALL").arg(key).cmd("PTTL").arg(key);
        }
        if !keys.is_empty() {
            let _values: Vec<redis::Value> =
                page.query_async(connection).await.map_err(broken("a page"))?;
        }
        read += keys.len();
        cursor = next;
        if cursor == 0 {
            return Ok(read);
        }
    }
}

impl Cell for LockLister {
    fn slice(&mut self, length: Duration) -> BoxFuture<'_, Result<Slice>> {
        Box::pin(async move {
            let (began, mut times) = (Instant::now(), Vec::new());
            while times.is_empty() || began.elapsed() < length {
                let from = Instant::now();
                let read = match &mut self.bare {
                    Some(connection) => read_bare(connection).await?,
                    None => self.read().await?,
                };
                times.push(from.elapsed().as_secs_f64() * 1000.0);
                if read < self.count {
                    return Err(Error::Setup(format!(
                        "of {} locks {read} were listed",
                        self.count
                    )));
                }
            }
            #[allow(clippy::cast_precision_loss, reason = "a slice has few of them")]
            let count = times.len() as f64;
            let (seconds, times_ms) =
                (began.elapsed().as_secs_f64(), BTreeMap::from([(ALL, times)]));
            Ok(Slice { count, seconds, used: BTreeMap::new(), times_ms })
        })
    }
}
