//! One contender's node: made once, found again, and removed for certain.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use uuid::Uuid;
use zookeeper_client::{Acls, Client, CreateMode, Error, EventType};

use super::path::{contender, protection};
use super::session::{Failure, Session, deadline};
use crate::{LockError, Owner, Token, Woken};

/// How often a parent that vanishes before its child is there is made again, and how often a
/// create without an answer is repeated.
const TRIES: u32 = 8;
/// Between two tries to remove a node.
const REMOVAL_PAUSE: Duration = Duration::from_millis(100);
/// A waiter looks again after that long though it was told nothing.
const SECOND_LOOK: Duration = Duration::from_secs(5);

/// Who contends for what, in which session. It never changes the session: a node of an old one
/// would go when that one ends.
#[derive(Clone)]
pub(super) struct Contender {
    pub(super) session: Arc<Session>,
    /// The parent of all contenders for the lock.
    pub(super) container: Arc<str>,
    /// In the name of the node.
    pub(super) id: Uuid,
}

/// The contender's node.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) path: Arc<str>,
    /// The id of the transaction that created it: of two nodes the later one has the higher id,
    /// whatever became of their parent.
    pub(super) token: Token,
}

impl Node {
    pub(super) fn name(&self) -> &str {
        self.path.rsplit_once('/').map_or(&self.path, |(_, name)| name)
    }
}

/// What became of a node that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removal {
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
    pub(super) async fn enter(&self, owner: &Owner, until: Instant) -> Result<Node, Failure> {
        let path = contender(&self.container, self.id);
        let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let mut failure = Failure::Refused(Error::NoNode);
        for _ in 0..TRIES {
            let owner = owner.as_str().as_bytes();
            failure =
                match self.session.ask(until, |client| client.create(&path, owner, &mode)).await {
                    Ok((stat, sequence)) => {
                        return node(format!("{path}{sequence}"), stat.czxid);
                    }
                    Err(Failure::Refused(Error::NoNode)) => {
                        self.make_container(until).await?;
                        Failure::Refused(Error::NoNode)
                    }
                    Err(failure @ Failure::Unanswered(_)) => match self.find(until).await? {
                        Some(node) => return Ok(node),
                        None => failure,
                    },
                    Err(failure) => return Err(failure),
                };
        }
        Err(failure)
    }

    /// The node that a create without an answer has made, if it is this session's.
    pub(super) async fn find(&self, until: Instant) -> Result<Option<Node>, Failure> {
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

    /// Waits until that child is gone or has changed, or until another look is due. Says whether it
    /// is one that no session ends. Fails when the session has ended, and the own node with it.
    pub(super) async fn await_gone(
        &self,
        predecessor: &str,
        is_endless: &mut bool,
    ) -> Result<Woken, LockError> {
        let path = format!("{}/{predecessor}", self.container);
        let until = deadline();
        let watch = match self.session.ask(until, |client| client.get_and_watch_data(&path)).await {
            Ok((_, stat, watch)) => {
                *is_endless = stat.ephemeral_owner == 0;
                watch
            }
            Err(Failure::Refused(Error::NoNode)) => return Ok(Woken::LookAgain),
            Err(Failure::Unanswered(_)) => {
                self.session.settled().await;
                return Ok(Woken::LookAgain);
            }
            Err(failure) => return Err(failure.into()),
        };
        let mut changed = std::pin::pin!(watch.changed());
        loop {
            tokio::select! {
                event = &mut changed => return match event.event_type {
                    EventType::Session => Err(Failure::Ended.into()),
                    _ => Ok(Woken::LookAgain),
                },
                // Without a connection there is nobody to ask; the watch comes with it again.
                () = sleep(SECOND_LOOK) => if self.session.is_connected() {
                    return Ok(Woken::LookAgain);
                },
            }
        }
    }

    /// All contenders; none if there is no parent.
    pub(super) async fn children(&self, until: Instant) -> Result<Vec<String>, Failure> {
        match self.session.read(until, &self.container, Client::list_children).await {
            Err(Failure::Refused(Error::NoNode)) => Ok(Vec::new()),
            outcome => outcome,
        }
    }

    /// Removes the node, or whatever a create without an answer has made or may yet make. The task
    /// goes on until the server has answered or the session has ended, which is a time-out of the
    /// session after the server fell silent: a node that stayed would keep everybody out for as
    /// long as this process lives.
    pub(super) fn remove(self, node: Option<Node>) -> JoinHandle<Removal> {
        let runtime = self.session.runtime.clone();
        runtime.spawn(self.removed(node))
    }

    /// The same in the caller's own task.
    pub(super) async fn removed(self, node: Option<Node>) -> Removal {
        let mut asked = false;
        loop {
            match self.try_to_remove(node.as_ref(), &mut asked).await {
                // An earlier request removed it, and its answer was lost.
                Ok(Removal::Absent) if asked => return Removal::Removed,
                Ok(removal) => return removal,
                Err(Failure::Ended) => return Removal::SessionEnded,
                Err(Failure::Unanswered(_)) => {
                    sleep(REMOVAL_PAUSE).await;
                    self.session.settled().await;
                }
                Err(Failure::Refused(error)) => {
                    tracing::error!(%error, lock = %self.container, "a node cannot be removed");
                    return Removal::Forbidden;
                }
            }
        }
    }

    async fn try_to_remove(
        &self,
        node: Option<&Node>,
        asked: &mut bool,
    ) -> Result<Removal, Failure> {
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
            Err(Failure::Refused(Error::NoNode)) => Ok(Removal::Absent),
            Err(failure) => {
                *asked = true;
                Err(failure)
            }
        }
    }

    /// Makes the parent and its parents: containers, which the server removes when their last child
    /// has gone; ordinary nodes where the server knows no containers.
    async fn make_container(&self, until: Instant) -> Result<(), Failure> {
        let ends = self.container.match_indices('/').skip(1).map(|(at, _)| at);
        for end in ends.chain([self.container.len()]) {
            let path = &self.container[..end];
            match self.make(path, CreateMode::Container, until).await {
                Err(Failure::Refused(Error::Unimplemented)) => {
                    self.make(path, CreateMode::Persistent, until).await?;
                }
                outcome => outcome?,
            }
        }
        Ok(())
    }

    async fn make(&self, path: &str, mode: CreateMode, until: Instant) -> Result<(), Failure> {
        let mode = mode.with_acls(Acls::anyone_all());
        match self.session.ask_again(until, |client| client.create(path, &[], &mode)).await {
            // The server removed its parent again: the next try begins anew.
            Ok(_) | Err(Failure::Refused(Error::NodeExists | Error::NoNode)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }
}

fn node(path: String, czxid: i64) -> Result<Node, Failure> {
    match u64::try_from(czxid) {
        Ok(czxid) => Ok(Node { path: path.into(), token: Token(czxid) }),
        Err(_) => Err(Failure::Refused(Error::Unimplemented)),
    }
}
