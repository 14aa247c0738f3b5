//! The inspector of `zookeeper`: reads the children of a lock's znode, those of Curator as well.

use futures_util::future::{BoxFuture, join_all, try_join_all};
use zookeeper_client::{Client, Error, Stat};

use super::ZooKeeperServer;
use super::path::{BASE_PATH, QueuedNode, container, decoded, in_order};
use super::session::{RequestError, ZooKeeperSession, deadline};
use crate::inspector::{CursorPosition, ListCursor, MAX_WAITERS, NO_LOCK_NAME};
use crate::{
    LockError, LockHolder, LockInspector, LockKind, LockName, LockPage, LockSnapshot, LockState,
    LockWaiter, LockWaiters, OwnerTag, RemainingLease, Token, guarantees,
};

/// The most waiters of a lock whose nodes are read: each is a request of its own.
const MAX_TAGS: usize = 16;
/// The most waiters of each lock of a list whose nodes are read.
const MAX_TAGS_IN_LIST: usize = 1;

pub(crate) struct ZooKeeperInspector {
    pub(crate) server: ZooKeeperServer,
}

impl ZooKeeperInspector {
    async fn read(
        session: &ZooKeeperSession,
        name: &LockName,
        tags: usize,
    ) -> Result<LockSnapshot, LockError> {
        let container = container(name)?;
        let children = children(session, &container).await?;
        let Some(order) = in_order(&children) else {
            let why = "a child of the znode is no contender for a lock".to_owned();
            return Ok(Self::snapshot(name.to_string(), LockState::Damaged(why)));
        };
        let (holders, behind) = Self::holders(session, &container, &order).await?;
        let waiters = behind.iter().take(MAX_WAITERS).map(|node| node.name);
        let waiters = Self::waiters(session, &container, waiters, tags).await;
        let has_more_waiters = behind.len() > MAX_WAITERS;
        let (state, waiters) = (LockState::of(holders), LockWaiters::Ordered(waiters));
        let snapshot = Self::snapshot(name.to_string(), state);
        Ok(LockSnapshot { waiters, has_more_waiters, ..snapshot })
    }

    fn snapshot(name: String, state: LockState) -> LockSnapshot {
        let kind = LockKind::Zookeeper;
        LockSnapshot {
            kind: kind.as_str(),
            name,
            state,
            waiters: LockWaiters::Unknown,
            has_more_waiters: false,
            renewal: guarantees(kind).renewal,
        }
    }

    /// The first node holds the lock, or all readers before the first writer do. The next one does
    /// as soon as those before it were removed. Returns as well the nodes that wait.
    async fn holders<'a>(
        session: &ZooKeeperSession,
        container: &str,
        mut order: &'a [QueuedNode<'a>],
    ) -> Result<(Vec<LockHolder>, &'a [QueuedNode<'a>]), RequestError> {
        let mut holders = Vec::new();
        while holders.is_empty() && !order.is_empty() {
            let readers = order.iter().take_while(|node| node.is_reader).count();
            let (first, behind) = order.split_at(readers.max(1));
            let read = first.iter().map(|node| Self::holder(session, container, node));
            holders = try_join_all(read).await?.into_iter().flatten().collect();
            order = behind;
        }
        Ok((holders, order))
    }

    /// What a node says; `None` if it was removed since. Other programs store an address, or
    /// nothing, where these locks store the owner.
    async fn holder(
        session: &ZooKeeperSession,
        container: &str,
        node: &QueuedNode<'_>,
    ) -> Result<Option<LockHolder>, RequestError> {
        let Some((data, stat)) = data(session, container, node.name).await? else {
            return Ok(None);
        };
        let is_ephemeral = stat.ephemeral_owner != 0;
        let lease = if is_ephemeral { RemainingLease::Session } else { RemainingLease::NoExpiry };
        let owner = (!data.is_empty()).then(|| String::from_utf8_lossy(&data).into_owned());
        Ok(Some(LockHolder {
            tag: owner.as_deref().and_then(OwnerTag::find),
            owner,
            shares: node.is_reader,
            token: u64::try_from(stat.czxid).ok().map(Token),
            place: is_ephemeral.then(|| format!("session {:#x}", stat.ephemeral_owner)),
            ..LockHolder::of_owner(node.name.to_owned(), lease)
        }))
    }

    /// Those of these nodes, in their order; the first of them with their tags, where these can be
    /// read. All are asked for before one is answered.
    async fn waiters(
        session: &ZooKeeperSession,
        container: &str,
        nodes: impl Iterator<Item = &str>,
        tags: usize,
    ) -> Vec<LockWaiter> {
        join_all(nodes.enumerate().map(async |(place, node)| {
            let read = if place < tags { data(session, container, node).await } else { Ok(None) };
            let read = read.ok().flatten();
            let tag = read.and_then(|(data, _)| OwnerTag::find(str::from_utf8(&data).ok()?));
            LockWaiter { id: node.to_owned(), tag }
        }))
        .await
    }
}

/// What a node stores; `None` if it was removed since.
async fn data(
    session: &ZooKeeperSession,
    container: &str,
    node: &str,
) -> Result<Option<(Vec<u8>, Stat)>, RequestError> {
    let path = format!("{container}/{node}");
    match session.ask_again(deadline(), |client| client.get_data(&path)).await {
        Err(RequestError::Refused(Error::NoNode)) => Ok(None),
        read => read.map(Some),
    }
}

async fn children(session: &ZooKeeperSession, path: &str) -> Result<Vec<String>, RequestError> {
    match session.read(deadline(), path, Client::list_children).await {
        Err(RequestError::Refused(Error::NoNode)) => Ok(Vec::new()),
        outcome => outcome,
    }
}

/// The folder whose children have names that begin so. A prefix that begins with `/` lists the
/// znodes of other programs.
fn folder(prefix: &str) -> &str {
    match prefix.rsplit_once('/').filter(|_| prefix.starts_with('/')) {
        Some(("", _)) => "/",
        Some((folder, _)) => folder,
        None => BASE_PATH,
    }
}

/// The name of the lock with that child of the folder.
fn name_of(prefix: &str, child: &str) -> Option<String> {
    match folder(prefix) {
        _ if !prefix.starts_with('/') => decoded(child),
        "/" => Some(format!("/{child}")),
        folder => Some(format!("{folder}/{child}")),
    }
}

impl LockInspector for ZooKeeperInspector {
    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockSnapshot, LockError>> {
        Box::pin(async move {
            let session = self.server.session(deadline()).await?;
            Self::read(&session, name, MAX_TAGS).await
        })
    }

    /// The server has no pages: each page reads the names of all locks, and then its own locks.
    fn list<'a>(
        &'a self,
        prefix: &'a str,
        cursor: Option<ListCursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<LockPage, LockError>> {
        Box::pin(async move {
            let after = match cursor {
                Some(ListCursor(CursorPosition::After(name))) => name,
                _ => Vec::new(),
            };
            let session = self.server.session(deadline()).await?;
            let children = children(&session, folder(prefix)).await?;
            let names = children.iter().filter_map(|child| name_of(prefix, child));
            let mut names: Vec<String> = names
                .filter(|name| name.starts_with(prefix) && name.as_bytes() > &after[..])
                .collect();
            names.sort_unstable();
            let is_more = names.len() > limit;
            names.truncate(limit);
            let mut locks = try_join_all(names.iter().map(async |text| {
                let name = LockName::new(text.as_str()).ok();
                if let Some(name) = name.filter(|name| container(name).is_ok()) {
                    return Self::read(&session, &name, MAX_TAGS_IN_LIST).await;
                }
                let state = LockState::Damaged(NO_LOCK_NAME.to_owned());
                Ok(Self::snapshot(text.clone(), state))
            }))
            .await?;
            locks.retain(|lock| lock.state != LockState::Free);
            let next = names.pop().filter(|_| is_more);
            let next = next.map(|name| ListCursor(CursorPosition::After(name.into_bytes())));
            Ok(LockPage { locks, next })
        })
    }

    /// Removes the node, whose watcher is the next contender.
    fn force_release<'a>(
        &'a self,
        name: &'a LockName,
        id: &'a str,
    ) -> BoxFuture<'a, Result<bool, LockError>> {
        Box::pin(async move {
            let session = self.server.session(deadline()).await?;
            let lock = Self::read(&session, name, 0).await?;
            if !lock.state.holders().iter().any(|holder| holder.id == id) {
                return Ok(false);
            }
            let path = format!("{}/{id}", container(name)?);
            match session.ask(deadline(), |client| client.delete(&path, None)).await {
                Ok(()) => Ok(true),
                Err(RequestError::Refused(Error::NoNode)) => Ok(false),
                Err(failure) => Err(failure.into()),
            }
        })
    }
}
