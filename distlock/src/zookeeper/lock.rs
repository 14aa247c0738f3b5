//! `zookeeper`: the recipe of Curator's `InterProcessMutex`, with its names of nodes, so that both
//! exclude each other.
//!
//! How it works: each acquisition makes an ephemeral sequential child `_c_<uuid>-lock-<sequence>`
//! of the lock's znode. The child with the lowest sequence holds the lock. Each other one watches
//! only the child before it, and lists the children again when that one goes. If the answer to a
//! create is lost, the node is looked for by its UUID before another is made.
//!
//! Guarantees exclusion among sessions, the order of arrival, and a token that rises with every
//! ownership. The token is the transaction id of the node's creation, because the sequence begins
//! again with the parent. Validity lasts for three fifths of the session's time-out, counted from
//! the sending of the last request that a majority has confirmed. So it ends before an ensemble
//! gives the lock to another session, also if its leader is cut off. All holds of a process share
//! the session, and so its end. The caller's lease does not matter: a dead
//! holder keeps the lock for the session's time-out. Reentrant by owner within one process.
//!
//! Does not guarantee:
//! - that a holder that is paused past its session stops in time, unless the resource checks its
//!   token;
//! - validity that ends in time where sessions may be shorter than two ticks of the server;
//! - that a server to which a session moves agrees to the same time-out.
//!
//! Source: Apache Curator, Shared Reentrant Lock; `ZooKeeper` Recipes, Locks. Tests:
//! `tests/zookeeper.rs`, `tests/zookeeper_faults.rs`, `tests/zookeeper_sessions.rs`,
//! `tests/zookeeper_ensemble.rs`.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::zookeeper::ZooKeeperServer;
use crate::zookeeper::contender::{Contender, Node, Removal};
use crate::zookeeper::held_nodes::HeldNode;
use crate::zookeeper::inspector::ZooKeeperInspector;
use crate::zookeeper::path::{QueuePlace, container, queue_place};
use crate::zookeeper::session::{RequestError, deadline};
use crate::{
    Acquisition, Guarantees, Hold, LockError, LockInspector, LockKind, Locker, Release,
    RenewalTarget, Renewer, Request, Token, Validity, WakeStrategy, guarantees,
};

/// How often an attempt makes its node again if another program removes it.
const MAX_NODE_ATTEMPTS: u32 = 3;

pub(crate) struct ZookeeperLock {
    server: ZooKeeperServer,
}

impl ZookeeperLock {
    pub(crate) fn new(server: &ZooKeeperServer) -> Self {
        Self { server: server.clone() }
    }
}

impl Locker for ZookeeperLock {
    fn name(&self) -> &'static str {
        LockKind::Zookeeper.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::Zookeeper)
    }

    fn check_servers(&self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move {
            let until = deadline();
            let session = self.server.session(until).await?;
            Ok(session.check(until).await?)
        })
    }

    fn inspector(&self) -> Option<Arc<dyn LockInspector>> {
        Some(Arc::new(ZooKeeperInspector { server: self.server.clone() }))
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        Box::new(ZookeeperAcquisition { server: self.server.clone(), request, place: None })
    }
}

struct ZookeeperAcquisition {
    server: ZooKeeperServer,
    request: Request,
    place: Option<QueueNode>,
}

/// A place in the queue, from the moment at which a node may exist.
struct QueueNode {
    contender: Contender,
    node: Option<Node>,
    /// The child right before it.
    predecessor: Option<String>,
    /// Whether that one ends with no session.
    has_no_expiry: bool,
}

impl Acquisition for ZookeeperAcquisition {
    fn attempt(&mut self) -> BoxFuture<'_, Result<Option<Box<dyn Hold>>, LockError>> {
        Box::pin(async move {
            let (began, until) = (Instant::now(), deadline());
            let place = if let Some(place) = self.place.take() {
                place
            } else {
                let container: Arc<str> = container(&self.request.name)?.into();
                if let Some(hold) = self.reenter(&container, until).await? {
                    return Ok(Some(hold));
                }
                let session = self.server.session(until).await?;
                let contender = Contender { session, container, id: self.request.id };
                QueueNode { contender, node: None, predecessor: None, has_no_expiry: false }
            };
            let place = self.place.insert(place);
            for _ in 0..MAX_NODE_ATTEMPTS {
                let node = if let Some(node) = &place.node {
                    node.clone()
                } else {
                    let node = place.contender.enter(&self.request.owner, until).await?;
                    place.node.insert(node).clone()
                };
                let children = match place.contender.children(until).await {
                    // It is behind another node, as far as is known, and keeps its place.
                    Err(RequestError::Unanswered(_)) if place.predecessor.is_some() => {
                        return Ok(None);
                    }
                    children => children?,
                };
                match queue_place(node.name(), &children)? {
                    QueuePlace::First => {
                        // Its node may be long gone, where a majority is out of reach.
                        match place.contender.session.confirm(began, until).await {
                            Err(RequestError::Unanswered(_)) if place.predecessor.is_some() => {
                                return Ok(None);
                            }
                            confirmed => confirmed?,
                        }
                        let contender = place.contender.clone();
                        self.place = None;
                        return Ok(Some(self.held(contender, node)));
                    }
                    QueuePlace::Behind(predecessor) => {
                        place.has_no_expiry &= place.predecessor.as_ref() == Some(&predecessor);
                        place.predecessor = Some(predecessor);
                        return Ok(None);
                    }
                    QueuePlace::Absent => (place.node, place.predecessor) = (None, None),
                }
            }
            Err(LockError::Backend("another program removes the nodes of this lock".into()))
        })
    }

    fn wake_strategy(&mut self) -> WakeStrategy<'_> {
        match &mut self.place {
            Some(QueueNode {
                contender, predecessor: Some(predecessor), has_no_expiry, ..
            }) => WakeStrategy::Signal(Box::pin(contender.await_gone(predecessor, has_no_expiry))),
            _ => WakeStrategy::Poll,
        }
    }

    fn has_no_expiry(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(async move { self.place.as_ref().is_some_and(|place| place.has_no_expiry) })
    }

    fn is_queued(&self) -> bool {
        self.place.is_some()
    }

    fn abandon(&mut self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move {
            let Some(QueueNode { contender, node, .. }) = self.place.take() else { return Ok(()) };
            let until = deadline();
            match timeout_at(until, contender.remove(node)).await {
                Ok(Ok(Removal::Forbidden)) => Err(LockError::Backend("a node stays behind".into())),
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(LockError::Backend(error.to_string())),
                Err(_) => Err(LockError::Backend("the removal was not answered in time".into())),
            }
        })
    }
}

impl Drop for ZookeeperAcquisition {
    /// A place that was not abandoned is removed later, as a hold without a release is.
    fn drop(&mut self) {
        if let Some(QueueNode { contender, node, .. }) = self.place.take() {
            self.server.shared.delayed_removals.add(contender, node);
        }
    }
}

impl ZookeeperAcquisition {
    /// Counts one more entry of an owner that holds the lock. The server must confirm the hold: a
    /// hold past its validity may still exist, and a valid one may have ended.
    async fn reenter(
        &self,
        container: &Arc<str>,
        until: Instant,
    ) -> Result<Option<Box<dyn Hold>>, LockError> {
        let held_nodes = &self.server.shared.held_nodes;
        let Some(held_node) = held_nodes.find(container, &self.request.owner) else {
            return Ok(None);
        };
        match held_node.contender.session.own(&held_node.node.path, until).await {
            Ok(Some(_)) if held_node.enter() => Ok(Some(self.hold(held_node))),
            Ok(Some(_)) => Ok(None),
            Ok(None) | Err(RequestError::Ended) => {
                held_nodes.remove(&held_node);
                Ok(None)
            }
            Err(failure) => Err(failure.into()),
        }
    }

    fn held(&self, contender: Contender, node: Node) -> Box<dyn Hold> {
        contender.session.keep(contender.id, Arc::clone(&node.path));
        let held_node = HeldNode::new(contender, node, self.request.owner.clone());
        self.server.shared.held_nodes.add(&held_node);
        self.hold(held_node)
    }

    fn hold(&self, held_node: Arc<HeldNode>) -> Box<dyn Hold> {
        let session = &held_node.contender.session;
        // Renewed by the rhythm of the session, and found by the id in the node's name.
        let request = Request {
            id: held_node.contender.id,
            lease: session.timeout(),
            ..self.request.clone()
        };
        let validity = session.validity();
        let server = self.server.clone();
        Box::new(ZookeeperHold {
            server,
            held_node,
            request,
            validity,
            left: false,
            removing: None,
        })
    }
}

struct ZookeeperHold {
    server: ZooKeeperServer,
    held_node: Arc<HeldNode>,
    request: Request,
    validity: Validity,
    /// Whether this entry no longer counts.
    left: bool,
    /// The removal of the node, if this was the last entry.
    removing: Option<JoinHandle<Removal>>,
}

impl Hold for ZookeeperHold {
    fn validity(&self) -> Validity {
        self.validity
    }

    fn token(&self) -> Option<Token> {
        Some(self.held_node.node.token)
    }

    fn renewal_target(&self) -> Option<RenewalTarget> {
        let renewer = Arc::clone(&self.held_node.contender.session) as Arc<dyn Renewer>;
        Some(RenewalTarget { renewer, request: self.request.clone() })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<Release, LockError>> {
        Box::pin(async move {
            let until = deadline();
            let mut contender = self.held_node.contender.clone();
            if !self.left && !self.leave() {
                let ended = contender.session.has_ended();
                return Ok(if ended { Release::Gone } else { Release::Released });
            }
            loop {
                let node = self.held_node.node.clone();
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
        })
    }
}

impl ZookeeperHold {
    /// Takes back this entry; says whether it was the last.
    fn leave(&mut self) -> bool {
        self.left = true;
        let is_last = self.held_node.leave();
        if is_last {
            self.server.shared.held_nodes.remove(&self.held_node);
            self.held_node.contender.session.forget(self.held_node.contender.id);
        }
        is_last
    }
}

impl Drop for ZookeeperHold {
    /// Without a release the lock is kept for one more session time-out, like a lease, and then
    /// freed: the session itself lives on.
    fn drop(&mut self) {
        if self.left || !self.leave() {
            return;
        }
        let HeldNode { contender, node, .. } = &*self.held_node;
        self.server.shared.delayed_removals.add(contender.clone(), Some(node.clone()));
    }
}
