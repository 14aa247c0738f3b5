//! One contender's node: made once, found again, and removed for certain.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use uuid::Uuid;
use zookeeper_client::{Acls, Client, CreateMode, Error, EventType};

use super::path::{contender, protection};
use super::session::{RequestError, ZooKeeperSession, deadline};
use crate::{LockError, Owner, Token, WakeEvent};

/// How often a parent that vanishes before its child is there is made again, and how often a
/// create without an answer is repeated.
const MAX_CREATE_ATTEMPTS: u32 = 8;
/// Between two tries to remove a node.
const REMOVAL_PAUSE: Duration = Duration::from_millis(100);
/// A waiter asks again after that long without an event.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// One contender for a lock, in one session. It never changes the session: a node of an old session
/// would go when that one ends.
#[derive(Clone)]
pub(crate) struct Contender {
    pub(crate) session: Arc<ZooKeeperSession>,
    /// The parent of all contenders for the lock.
    pub(crate) container: Arc<str>,
    /// In the name of the node.
    pub(crate) id: Uuid,
}

/// The contender's node.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) path: Arc<str>,
    /// The id of the transaction that created it: of two nodes the later one has the higher id,
    /// also if their parent was removed.
    pub(crate) token: Token,
}

impl Node {
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit_once('/').map_or(&self.path, |(_, name)| name)
    }
}

/// The outcome of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    /// It was there.
    Removed,
    /// It was not.
    Absent,
    /// Its session has ended, and it has ended or ends with that.
    SessionEnded,
    /// The server does not allow it.
    Forbidden,
}

impl Contender {
    /// Makes the node. If an answer is lost it looks for the node before it makes another.
    pub(crate) async fn enter(&self, owner: &Owner, until: Instant) -> Result<Node, RequestError> {
        let path = contender(&self.container, self.id);
        let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let mut failure = RequestError::Refused(Error::NoNode);
        for _ in 0..MAX_CREATE_ATTEMPTS {
            let owner = owner.as_str().as_bytes();
            failure =
                match self.session.commit(until, |client| client.create(&path, owner, &mode)).await
                {
                    Ok((stat, sequence)) => {
                        return node(format!("{path}{sequence}"), stat.czxid);
                    }
                    Err(RequestError::Refused(Error::NoNode)) => {
                        self.make_container(until).await?;
                        RequestError::Refused(Error::NoNode)
                    }
                    Err(failure @ RequestError::Unanswered(_)) => match self.find(until).await? {
                        Some(node) => return Ok(node),
                        None => failure,
                    },
                    Err(failure) => return Err(failure),
                };
        }
        Err(failure)
    }

    /// The node that a create without an answer has made, if it is this session's.
    pub(crate) async fn find(&self, until: Instant) -> Result<Option<Node>, RequestError> {
        let protection = protection(self.id);
        for name in self.children(until).await? {
            if !name.starts_with(&protection) {
                continue;
            }
            let path = format!("{}/{name}", self.container);
            if let Some(stat) = self.session.own(&path, until).await? {
                return node(path, stat.czxid).map(Some);
            }
        }
        Ok(None)
    }

    /// Waits until that child was removed or has changed, or until the next poll is due. Says
    /// whether it is one that no session ends. Fails when the session has ended, and the own node
    /// with it.
    pub(crate) async fn await_gone(
        &self,
        predecessor: &str,
        has_no_expiry: &mut bool,
    ) -> Result<WakeEvent, LockError> {
        let path = format!("{}/{predecessor}", self.container);
        let until = deadline();
        let watch = match self.session.ask(until, |client| client.get_and_watch_data(&path)).await {
            Ok((_, stat, watch)) => {
                *has_no_expiry = stat.ephemeral_owner == 0;
                watch
            }
            Err(RequestError::Refused(Error::NoNode)) => return Ok(WakeEvent::Retry),
            Err(RequestError::Unanswered(_)) => {
                self.session.settled().await;
                return Ok(WakeEvent::Retry);
            }
            Err(failure) => return Err(failure.into()),
        };
        let mut changed = std::pin::pin!(watch.changed());
        loop {
            tokio::select! {
                event = &mut changed => return match event.event_type {
                    EventType::Session => Err(RequestError::Ended.into()),
                    _ => Ok(WakeEvent::Retry),
                },
                // Without a connection there is no server to ask; the watch comes back with it.
                () = sleep(POLL_INTERVAL) => if self.session.is_connected() {
                    return Ok(WakeEvent::Retry);
                },
            }
        }
    }

    /// All contenders; none if there is no parent.
    pub(crate) async fn children(&self, until: Instant) -> Result<Vec<String>, RequestError> {
        match self.session.read(until, &self.container, Client::list_children).await {
            Err(RequestError::Refused(Error::NoNode)) => Ok(Vec::new()),
            outcome => outcome,
        }
    }

    /// Removes the node, or what a create without an answer has made or may yet make. The task runs
    /// until the server has answered or the session has ended: one session time-out after the
    /// server fell silent. A node that stayed would keep all others out for the life of this
    /// process.
    pub(crate) fn remove(self, node: Option<Node>) -> JoinHandle<Removal> {
        let runtime = self.session.runtime.clone();
        runtime.spawn(self.removed(node))
    }

    /// Removes the node in the caller's own task.
    pub(crate) async fn removed(self, node: Option<Node>) -> Removal {
        let mut asked = false;
        loop {
            match self.try_to_remove(node.as_ref(), &mut asked).await {
                // An earlier request removed it, and its answer was lost.
                Ok(Removal::Absent) if asked => return Removal::Removed,
                Ok(removal) => return removal,
                Err(RequestError::Ended) => return Removal::SessionEnded,
                Err(RequestError::Unanswered(_)) => {
                    sleep(REMOVAL_PAUSE).await;
                    self.session.settled().await;
                }
                Err(RequestError::Refused(error)) => {
                    let what = "node not removed; lock stays taken";
                    tracing::error!(%error, lock = %self.container, "{what}");
                    return Removal::Forbidden;
                }
            }
        }
    }

    async fn try_to_remove(
        &self,
        node: Option<&Node>,
        asked: &mut bool,
    ) -> Result<Removal, RequestError> {
        let until = deadline();
        let path = match node {
            Some(node) => Arc::clone(&node.path),
            None => match self.find(until).await? {
                Some(node) => node.path,
                None => return Ok(Removal::Absent),
            },
        };
        match self.session.ask(until, |client| client.delete(&path, None)).await {
            Ok(()) => Ok(Removal::Removed),
            Err(RequestError::Refused(Error::NoNode)) => Ok(Removal::Absent),
            Err(failure) => {
                *asked = true;
                Err(failure)
            }
        }
    }

    /// Makes the parent and its parents: containers, which the server removes when their last child
    /// has gone; ordinary nodes where the server knows no containers.
    async fn make_container(&self, until: Instant) -> Result<(), RequestError> {
        let ends = self.container.match_indices('/').skip(1).map(|(at, _)| at);
        for end in ends.chain([self.container.len()]) {
            let path = &self.container[..end];
            match self.make(path, CreateMode::Container, until).await {
                Err(RequestError::Refused(Error::Unimplemented)) => {
                    self.make(path, CreateMode::Persistent, until).await?;
                }
                outcome => outcome?,
            }
        }
        Ok(())
    }

    async fn make(&self, path: &str, mode: CreateMode, until: Instant) -> Result<(), RequestError> {
        let mode = mode.with_acls(Acls::anyone_all());
        match self.session.ask_again(until, |client| client.create(path, &[], &mode)).await {
            // The server removed its parent again: the next try begins again.
            Ok(_) | Err(RequestError::Refused(Error::NodeExists | Error::NoNode)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }
}

fn node(path: String, czxid: i64) -> Result<Node, RequestError> {
    match u64::try_from(czxid) {
        Ok(czxid) => Ok(Node { path: path.into(), token: Token(czxid) }),
        Err(_) => Err(RequestError::Refused(Error::Unimplemented)),
    }
}
