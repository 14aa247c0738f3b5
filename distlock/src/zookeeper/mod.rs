//! The mechanism that lives in `ZooKeeper`.
//!
//! Reading order: `path` (names of locks and nodes, who is before whom), `session` (requests,
//! belief, heartbeat), `contender` (one node), `leaving` (nodes that were given up), `holding`
//! (re-entry), `mutex` (the lock). A process has one session for all its locks; when that ends, or
//! has been without a server for a while, the next acquisition opens another, and what is held
//! stays in the one where it is.

mod contender;
mod holding;
mod leaving;
pub(crate) mod mutex;
mod path;
mod session;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout_at};

use self::holding::Holdings;
use self::leaving::Leaving;
use self::session::{Failure, Session, deadline};
use crate::{LockError, LockOptions};

/// What a session must at least last: its heartbeat has to fit in three times.
const SHORTEST_SESSION: Duration = Duration::from_millis(100);
/// Before another try to open a session: an ensemble without a leader may have one soon.
const OPENING_PAUSE: Duration = Duration::from_millis(100);

/// A `ZooKeeper` ensemble, 3.5 or newer. Cheap to clone; clones share the session, which is closed
/// when the last of them and the last hold have gone.
#[derive(Clone)]
pub struct ZooKeeperServer {
    shared: Arc<Shared>,
}

struct Shared {
    cluster: String,
    session_timeout: Duration,
    runtime: Handle,
    /// The session of the next acquisition, if it has not ended by then.
    session: tokio::sync::Mutex<Option<Arc<Session>>>,
    holdings: Holdings,
    leaving: Leaving,
}

impl ZooKeeperServer {
    /// Opens a session. The string is Curator's, `host:port,host:port/chroot`; the chroot must
    /// exist. The session time-out, 100 ms to a day, is what a holder that dies keeps its locks
    /// for; the server may insist on a longer or a shorter one (by default 2 to 20 of its ticks).
    /// The answers to one call are waited for 2 s.
    ///
    /// Needs a tokio runtime for the rest of its life. Fails with [`LockError::Backend`] if no
    /// server answers, and with [`LockError::BadRequest`].
    pub async fn connect(
        connect_string: &str,
        session_timeout: Duration,
    ) -> Result<Self, LockError> {
        if !(SHORTEST_SESSION..=LockOptions::MAX).contains(&session_timeout) {
            let limit = format!("must be 100 ms to a day, is {} ms", session_timeout.as_millis());
            return Err(LockError::BadRequest { field: "session time-out", limit });
        }
        let runtime = Handle::current();
        let server = Self {
            shared: Arc::new(Shared {
                cluster: connect_string.to_owned(),
                session_timeout,
                leaving: Leaving::on(&runtime),
                runtime,
                session: tokio::sync::Mutex::default(),
                holdings: Holdings::default(),
            }),
        };
        server.session(deadline()).await?;
        Ok(server)
    }

    /// The present session, or a new one if that has ended or lost its server. One caller opens it
    /// for all.
    async fn session(&self, until: Instant) -> Result<Arc<Session>, LockError> {
        let shared = &self.shared;
        let mut failure = Failure::Unanswered("no ZooKeeper session in time".into());
        let Ok(mut present) = timeout_at(until, shared.session.lock()).await else {
            return Err(failure.into());
        };
        if let Some(session) = present.as_ref().filter(|session| !session.is_over_for_others()) {
            return Ok(Arc::clone(session));
        }
        loop {
            let (cluster, runtime) = (shared.cluster.clone(), shared.runtime.clone());
            let opening = Session::open(cluster, shared.session_timeout, runtime);
            match timeout_at(until, opening).await {
                Ok(Ok(session)) => return Ok(Arc::clone(present.insert(Arc::new(session)))),
                Ok(Err(reason @ Failure::Unanswered(_))) => failure = reason,
                Ok(Err(refusal)) => return Err(refusal.into()),
                Err(_) => return Err(failure.into()),
            }
            sleep(OPENING_PAUSE).await;
        }
    }
}
