//! The inspector of `etcd`: reads the contenders for a lock, those of other programs as well.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::{BoxFuture, try_join_all};

use super::client::{EtcdClient, EtcdError, deadline};
use super::contender::seconds;
use super::key::{child, is_lease_id, prefix, range_end};
use super::messages::{
    ASCENDING, BY_CREATION, Compare, DeleteRangeRequest, KeyValue, Operation, RangeRequest,
    TxnRequest,
};
use super::rpc;
use crate::inspector::{CursorPosition, ListCursor, MAX_WAITERS, NO_LOCK_NAME};
use crate::{
    LockError, LockHolder, LockInspector, LockKind, LockName, LockPage, LockSnapshot, LockState,
    LockWaiter, LockWaiters, OwnerTag, RemainingLease, Token, guarantees,
};

/// The keys of one read.
const PAGE: i64 = 1000;

pub(crate) struct EtcdInspector {
    pub(crate) client: Arc<EtcdClient>,
}

impl EtcdInspector {
    async fn read(&self, name: &LockName) -> Result<LockSnapshot, LockError> {
        let prefix = prefix(name);
        let (mut contenders, mut after, mut is_damaged) = (Vec::new(), 0, false);
        // One more than the holder and its waiters: whether there are more.
        while contenders.len() < MAX_WAITERS + 2 {
            let (read, more) = self.by_creation(&prefix, after).await?;
            after = read.last().map_or(after, |kv| kv.create_revision);
            for kv in read {
                match child(&prefix, &kv.key) {
                    Some(child) if is_lease_id(child) => {
                        contenders.push((String::from_utf8_lossy(child).into_owned(), kv));
                    }
                    Some(_) => is_damaged = true,
                    None => {}
                }
            }
            if !more {
                break;
            }
        }
        if is_damaged {
            let why = "a key under the lock's name is no contender for a lock".to_owned();
            return Ok(snapshot(name.to_string(), LockState::Damaged(why)));
        }
        let mut contenders = contenders.into_iter();
        let holder = match contenders.next() {
            Some((id, kv)) => Some(self.holder(id, &kv).await),
            None => None,
        };
        let waiters = contenders.by_ref().take(MAX_WAITERS);
        let waiters = waiters.map(|(id, kv)| LockWaiter { id, tag: OwnerTag::find(&text(&kv)) });
        let waiters = waiters.collect();
        Ok(LockSnapshot {
            waiters: LockWaiters::Ordered(waiters),
            has_more_waiters: contenders.next().is_some(),
            ..snapshot(name.to_string(), LockState::of(holder.into_iter().collect()))
        })
    }

    /// What a key says. Other programs store nothing where these locks store the owner.
    async fn holder(&self, id: String, kv: &KeyValue) -> LockHolder {
        let has_lease = kv.lease != 0;
        let lease = if has_lease { self.lease(kv.lease).await } else { RemainingLease::NoExpiry };
        let owner = (!kv.value.is_empty()).then(|| text(kv).into_owned());
        LockHolder {
            tag: owner.as_deref().and_then(OwnerTag::find),
            owner,
            token: u64::try_from(kv.create_revision).ok().map(Token),
            place: has_lease.then(|| format!("lease {:x}", kv.lease)),
            ..LockHolder::of_owner(id, lease)
        }
    }

    /// What is left of a lease, in whole seconds. It is only known to end if the user may not read
    /// it, if no member answers, or if it has ended.
    async fn lease(&self, id: i64) -> RemainingLease {
        let ask = |connection| rpc::lease_time_to_live(connection, id);
        match self.client.call(deadline(), ask).await {
            Ok(left @ 0..) => RemainingLease::Ends(seconds(left)),
            _ => RemainingLease::Session,
        }
    }

    /// Keys under the prefix that were created after that revision, the oldest first, and whether
    /// there are more.
    async fn by_creation(
        &self,
        prefix: &str,
        after: i64,
    ) -> Result<(Vec<KeyValue>, bool), EtcdError> {
        let range = RangeRequest {
            key: prefix.into(),
            range_end: range_end(prefix),
            limit: PAGE,
            sort_order: ASCENDING,
            sort_target: BY_CREATION,
            min_create_revision: after + 1,
            ..RangeRequest::default()
        };
        let ask = |connection| rpc::range(connection, range.clone());
        let read = self.client.call(deadline(), ask).await?;
        Ok((read.kvs, read.more))
    }

    /// The names of all locks that begin so, those that no lock can have with escapes.
    async fn names(&self, prefix: &str) -> Result<BTreeSet<Vec<u8>>, EtcdError> {
        let (mut names, mut from) = (BTreeSet::new(), prefix.as_bytes().to_vec());
        if from.is_empty() {
            from.push(0);
        }
        // A range that ends with a zero byte has all later keys.
        let end = if prefix.is_empty() { vec![0] } else { range_end(prefix) };
        loop {
            let range = RangeRequest {
                key: from.clone(),
                range_end: end.clone(),
                limit: PAGE,
                keys_only: true,
                ..RangeRequest::default()
            };
            let ask = |connection| rpc::range(connection, range.clone());
            let read = self.client.call(deadline(), ask).await?;
            for kv in &read.kvs {
                if let Some(slash) = kv.key.iter().rposition(|byte| *byte == b'/')
                    && is_lease_id(&kv.key[slash + 1..])
                    && kv.key[..slash].starts_with(prefix.as_bytes())
                {
                    names.insert(kv.key[..slash].to_vec());
                }
            }
            match read.kvs.last().filter(|_| read.more) {
                // The key right after the last one.
                Some(last) => from = [last.key.as_slice(), &[0]].concat(),
                None => return Ok(names),
            }
        }
    }
}

fn text(kv: &KeyValue) -> Cow<'_, str> {
    String::from_utf8_lossy(&kv.value)
}

fn snapshot(name: String, state: LockState) -> LockSnapshot {
    let kind = LockKind::Etcd;
    LockSnapshot {
        kind: kind.as_str(),
        name,
        state,
        waiters: LockWaiters::Unknown,
        has_more_waiters: false,
        renewal: guarantees(kind).renewal,
    }
}

impl LockInspector for EtcdInspector {
    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockSnapshot, LockError>> {
        Box::pin(async move { self.read(name).await })
    }

    /// The server has no pages of names: each page reads the keys of all locks.
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
            let names = self.names(prefix).await?;
            let mut names: Vec<_> = names.into_iter().filter(|name| *name > after).collect();
            let is_more = names.len() > limit;
            names.truncate(limit);
            let mut locks = try_join_all(names.iter().map(async |bytes| {
                let text = std::str::from_utf8(bytes).ok();
                if let Some(name) = text.and_then(|text| LockName::new(text).ok()) {
                    return self.read(&name).await;
                }
                let text = bytes.escape_ascii().to_string();
                Ok(snapshot(text, LockState::Damaged(NO_LOCK_NAME.to_owned())))
            }))
            .await?;
            locks.retain(|lock| lock.state != LockState::Free);
            let next = names.pop().filter(|_| is_more);
            let next = next.map(|name| ListCursor(CursorPosition::After(name)));
            Ok(LockPage { locks, next })
        })
    }

    /// Deletes the key, whose watcher is the next contender. Its lease may have other keys.
    fn force_release<'a>(
        &'a self,
        name: &'a LockName,
        id: &'a str,
    ) -> BoxFuture<'a, Result<bool, LockError>> {
        Box::pin(async move {
            let lock = self.read(name).await?;
            let Some(held) = lock.state.holders().iter().find(|holder| holder.id == id) else {
                return Ok(false);
            };
            let created = held.token.map_or(0, |token| token.0.cast_signed());
            let key = format!("{}{id}", prefix(name));
            let delete =
                Operation::DeleteRange(DeleteRangeRequest { key: key.clone().into_bytes() });
            let txn = TxnRequest {
                compare: vec![Compare::created_at(&key, created)],
                success: vec![delete.op()],
                failure: vec![],
            };
            let ask = |connection| rpc::txn(connection, txn.clone());
            Ok(self.client.call(deadline(), ask).await?.succeeded)
        })
    }
}
