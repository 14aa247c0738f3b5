//! The mechanism that lives in `ZooKeeper`.
//!
//! Reading order: `path` (names and order of nodes), `addresses` (of the servers), `session`
//! (requests, validity, heartbeat), `contender` (one node), `delayed_removal` (nodes that were
//! given up), `held_nodes` (re-entry), `lock` (the mechanism). A process has one session for all
//! its locks. If the session ends, or has had no server for 2 s, the next acquisition opens another
//! one. Locks that are held stay in the session that took them.

mod addresses;
pub(crate) mod contender;
mod delayed_removal;
pub(crate) mod held_nodes;
pub(crate) mod inspector;
pub(crate) mod path;
pub(crate) mod session;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout_at};

use self::delayed_removal::DelayedRemovals;
use self::held_nodes::HeldNodes;
use self::session::{RequestError, ZooKeeperSession, deadline};
use crate::{LockError, LockOptions};

/// What a session must at least last: its heartbeat has to fit in three times.
const MIN_SESSION_TIMEOUT: Duration = Duration::from_millis(100);
/// Before another try to open a session: an ensemble without a leader may have one soon.
const OPEN_RETRY_PAUSE: Duration = Duration::from_millis(250);

/// A `ZooKeeper` ensemble, 3.5 or newer. Cheap to clone; clones share the session, which is closed
/// when the last of them and the last hold have ended.
#[derive(Clone)]
pub struct ZooKeeperServer {
    pub(crate) shared: Arc<ZooKeeperState>,
}

pub(crate) struct ZooKeeperState {
    cluster: String,
    session_timeout: Duration,
    runtime: Handle,
    /// The session of the next acquisition, if it has not ended by then.
    session: tokio::sync::Mutex<Option<Arc<ZooKeeperSession>>>,
    pub(crate) held_nodes: HeldNodes,
    pub(crate) delayed_removals: DelayedRemovals,
}

impl ZooKeeperServer {
    /// Opens a session. The string is Curator's, `host:port,host:port/chroot`; the chroot must
    /// exist. A dead holder keeps its locks for the session time-out, 100 ms to a day. The server
    /// may insist on a longer or a shorter one (by default 2 to 20 of its ticks). The answers to
    /// one call are awaited for 2 s.
    ///
    /// Needs a tokio runtime for the rest of its life. Fails with [`LockError::Backend`] if no
    /// server answers, and with [`LockError::BadRequest`].
    pub async fn connect(
        connect_string: &str,
        session_timeout: Duration,
    ) -> Result<Self, LockError> {
        if !(MIN_SESSION_TIMEOUT..=LockOptions::MAX).contains(&session_timeout) {
            let limit = format!("must be 100 ms to a day, is {} ms", session_timeout.as_millis());
            return Err(LockError::BadRequest { field: "session time-out", limit });
        }
        let runtime = Handle::current();
        let server = Self {
            shared: Arc::new(ZooKeeperState {
                cluster: connect_string.to_owned(),
                session_timeout,
                delayed_removals: DelayedRemovals::on(&runtime),
                runtime,
                session: tokio::sync::Mutex::default(),
                held_nodes: HeldNodes::default(),
            }),
        };
        server.session(deadline()).await?;
        Ok(server)
    }

    /// The present session, or a new one if that has ended or lost its server. One caller opens it
    /// for all.
    pub(crate) async fn session(&self, until: Instant) -> Result<Arc<ZooKeeperSession>, LockError> {
        let shared = &self.shared;
        let mut failure = RequestError::Unanswered("no ZooKeeper session in time".into());
        let Ok(mut present) = timeout_at(until, shared.session.lock()).await else {
            return Err(failure.into());
        };
        if let Some(session) = present.as_ref().filter(|session| !session.is_over_for_others()) {
            return Ok(Arc::clone(session));
        }
        loop {
            let (cluster, runtime) = (shared.cluster.clone(), shared.runtime.clone());
            let opening = ZooKeeperSession::open(cluster, shared.session_timeout, runtime);
            match timeout_at(until, opening).await {
                Ok(Ok(session)) => return Ok(Arc::clone(present.insert(Arc::new(session)))),
                Ok(Err(reason @ RequestError::Unanswered(_))) => failure = reason,
                Ok(Err(refusal)) => return Err(refusal.into()),
                Err(_) => return Err(failure.into()),
            }
            sleep(OPEN_RETRY_PAUSE).await;
        }
    }
}
