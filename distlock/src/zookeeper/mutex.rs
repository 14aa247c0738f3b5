//! `zookeeper`: the recipe of Curator's `InterProcessMutex`, with its names of nodes, so that both
//! exclude each other.
//!
//! Each acquisition makes an ephemeral sequential child `_c_<uuid>-lock-<sequence>` of the lock's
//! znode. The child with the lowest sequence holds the lock; each other one watches the child right
//! before it, and nothing else, and lists the children again when that goes. A create whose answer
//! was lost is looked for by its UUID before another is made.
//!
//! Guarantees exclusion among sessions, the order of arrival, and a token that rises with every
//! ownership: the transaction id of the node's creation, because the sequence begins again with the
//! parent. Belief lasts for the session's time-out from the sending of the last request that was
//! answered, so it ends before the server gives the lock to somebody else; the session is shared by
//! all holds of a process, and so is its end. The caller's lease does not matter: a dead holder
//! keeps the lock for the time-out of the session. Reentrant by owner within one process.
//!
//! Does not guarantee: that a holder that is paused past its session stops in time, unless the
//! resource checks its token; in an ensemble, that a server that loses its leader right after a
//! heartbeat has passed it on (the leader hears of sessions every half tick); that a server that a
//! session moves to has agreed to the same time-out.
//!
//! Source: Apache Curator, Shared Reentrant Lock; `ZooKeeper` Recipes, Locks. Tests:
//! `tests/zookeeper.rs`, `tests/zookeeper_faults.rs`, `tests/zookeeper_sessions.rs`.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::ZooKeeperServer;
use super::contender::{Contender, Node, Removal};
use super::holding::Holding;
use super::path::{Standing, container, standing};
use super::session::{Failure, deadline};
use crate::{
    Acquisition, Belief, Guarantees, Hold, LockError, LockKind, Locker, Release, Renewer, Request,
    Token, Upkeep, Wake, guarantees,
};

/// How often a node that somebody else removes is made again in one attempt.
const TRIES: u32 = 3;

pub(crate) struct Mutex {
    server: ZooKeeperServer,
}

impl Mutex {
    pub(crate) fn new(server: &ZooKeeperServer) -> Self {
        Self { server: server.clone() }
    }
}

#[async_trait]
impl Locker for Mutex {
    fn name(&self) -> &'static str {
        LockKind::Zookeeper.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::Zookeeper)
    }

    async fn check_servers(&self) -> Result<(), LockError> {
        let until = deadline();
        let session = self.server.session(until).await?;
        Ok(session.check(until).await?)
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        Box::new(MutexAcquisition { server: self.server.clone(), request, place: None })
    }
}

struct MutexAcquisition {
    server: ZooKeeperServer,
    request: Request,
    place: Option<Place>,
}

/// A place in the queue, from the moment at which a node may exist.
struct Place {
    contender: Contender,
    node: Option<Node>,
    /// The child right before it.
    predecessor: Option<String>,
    /// Whether that one ends with no session.
    is_endless: bool,
}

#[async_trait]
impl Acquisition for MutexAcquisition {
    async fn attempt(&mut self) -> Result<Option<Box<dyn Hold>>, LockError> {
        let until = deadline();
        let place = if let Some(place) = self.place.take() {
            place
        } else {
            let container: Arc<str> = container(&self.request.name)?.into();
            if let Some(hold) = self.reenter(&container, until).await? {
                return Ok(Some(hold));
            }
            let session = self.server.session(until).await?;
            let contender = Contender { session, container, id: self.request.id };
            Place { contender, node: None, predecessor: None, is_endless: false }
        };
        let place = self.place.insert(place);
        for _ in 0..TRIES {
            let node = if let Some(node) = &place.node {
                node.clone()
            } else {
                let node = place.contender.enter(&self.request.owner, until).await?;
                place.node.insert(node).clone()
            };
            let children = match place.contender.children(until).await {
                // It is behind somebody, as far as anybody knows, and keeps its place.
                Err(Failure::Unanswered(_)) if place.predecessor.is_some() => return Ok(None),
                children => children?,
            };
            match standing(node.name(), &children)? {
                Standing::First => {
                    let contender = place.contender.clone();
                    self.place = None;
                    return Ok(Some(self.held(contender, node)));
                }
                Standing::Behind(predecessor) => {
                    place.is_endless &= place.predecessor.as_ref() == Some(&predecessor);
                    place.predecessor = Some(predecessor);
                    return Ok(None);
                }
                Standing::Absent => (place.node, place.predecessor) = (None, None),
            }
        }
        Err(LockError::Backend("somebody removes the nodes of this lock".into()))
    }

    fn wake(&mut self) -> Wake<'_> {
        match &mut self.place {
            Some(Place { contender, predecessor: Some(predecessor), is_endless, .. }) => {
                Wake::Signal(Box::pin(contender.await_gone(predecessor, is_endless)))
            }
            _ => Wake::Poll,
        }
    }

    fn is_endless(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.is_endless)
    }

    fn is_queued(&self) -> bool {
        self.place.is_some()
    }

    async fn abandon(&mut self) -> Result<(), LockError> {
        let Some(Place { contender, node, .. }) = self.place.take() else { return Ok(()) };
        let until = deadline();
        match timeout_at(until, contender.remove(node)).await {
            Ok(Ok(Removal::Forbidden)) => Err(LockError::Backend("a node stays behind".into())),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(LockError::Backend(error.to_string())),
            Err(_) => Err(LockError::Backend("the removal was not answered in time".into())),
        }
    }
}

impl Drop for MutexAcquisition {
    /// A place that nobody has abandoned goes as a hold that nobody has released.
    fn drop(&mut self) {
        if let Some(Place { contender, node, .. }) = self.place.take() {
            self.server.shared.leaving.add(contender, node);
        }
    }
}

impl MutexAcquisition {
    /// Counts one more entry of an owner who holds the lock already. The server must say that he
    /// still does: a hold that is believed in no more may be there yet, and the other way round.
    async fn reenter(
        &self,
        container: &Arc<str>,
        until: Instant,
    ) -> Result<Option<Box<dyn Hold>>, LockError> {
        let holdings = &self.server.shared.holdings;
        let Some(holding) = holdings.find(container, &self.request.owner) else {
            return Ok(None);
        };
        match holding.contender.session.own(&holding.node.path, until).await {
            Ok(Some(_)) if holding.enter() => Ok(Some(self.hold(holding))),
            Ok(Some(_)) => Ok(None),
            Ok(None) | Err(Failure::Ended) => {
                holdings.remove(&holding);
                Ok(None)
            }
            Err(failure) => Err(failure.into()),
        }
    }

    fn held(&self, contender: Contender, node: Node) -> Box<dyn Hold> {
        contender.session.keep(contender.id, Arc::clone(&node.path));
        let holding = Holding::new(contender, node, self.request.owner.clone());
        self.server.shared.holdings.add(&holding);
        self.hold(holding)
    }

    fn hold(&self, holding: Arc<Holding>) -> Box<dyn Hold> {
        let session = &holding.contender.session;
        // Renewed by the rhythm of the session, and found by the id in the node's name.
        let request =
            Request { id: holding.contender.id, lease: session.timeout(), ..self.request.clone() };
        let belief = session.belief();
        let server = self.server.clone();
        Box::new(MutexHold { server, holding, request, belief, left: false, removing: None })
    }
}

struct MutexHold {
    server: ZooKeeperServer,
    holding: Arc<Holding>,
    request: Request,
    belief: Belief,
    /// Whether this entry no longer counts.
    left: bool,
    /// The removal of the node, if this was the last entry.
    removing: Option<JoinHandle<Removal>>,
}

#[async_trait]
impl Hold for MutexHold {
    fn belief(&self) -> Belief {
        self.belief
    }

    fn token(&self) -> Option<Token> {
        Some(self.holding.node.token)
    }

    fn upkeep(&self) -> Option<Upkeep> {
        let renewer = Arc::clone(&self.holding.contender.session) as Arc<dyn Renewer>;
        Some(Upkeep { renewer, request: self.request.clone() })
    }

    async fn release(&mut self) -> Result<Release, LockError> {
        let until = deadline();
        let mut contender = self.holding.contender.clone();
        if !self.left && !self.leave() {
            let ended = contender.session.has_ended();
            return Ok(if ended { Release::Gone } else { Release::Released });
        }
        loop {
            let node = self.holding.node.clone();
            let start = || contender.clone().remove(Some(node));
            let removing = self.removing.get_or_insert_with(start);
            let Ok(outcome) = timeout_at(until, &mut *removing).await else {
                return Err(LockError::Backend("the release was not answered in time".into()));
            };
            self.removing = None;
            match outcome.map_err(|error| LockError::Backend(error.to_string()))? {
                Removal::Removed => return Ok(Release::Released),
                Removal::Absent => {
                    let others = contender.children(until).await?;
                    let gone = others.is_empty();
                    return Ok(if gone { Release::Gone } else { Release::HeldByOther });
                }
                // The server may not know that yet; then another session may remove the node.
                Removal::SessionEnded => contender.session = self.server.session(until).await?,
                Removal::Forbidden => {
                    return Err(LockError::Backend("ZooKeeper does not let go of it".into()));
                }
            }
        }
    }
}

impl MutexHold {
    /// Takes back this entry; says whether it was the last.
    fn leave(&mut self) -> bool {
        self.left = true;
        let is_last = self.holding.leave();
        if is_last {
            self.server.shared.holdings.remove(&self.holding);
            self.holding.contender.session.forget(self.holding.contender.id);
        }
        is_last
    }
}

impl Drop for MutexHold {
    /// Without a release the lock is kept for one more time-out of the session, as a lease would
    /// be, and then freed: the session itself goes on.
    fn drop(&mut self) {
        if self.left || !self.leave() {
            return;
        }
        let Holding { contender, node, .. } = &*self.holding;
        self.server.shared.leaving.add(contender.clone(), Some(node.clone()));
    }
}
