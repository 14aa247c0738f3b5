//! The inspector of `nats`: reads the entries of the bucket, those of other programs as well. It
//! makes no bucket.

use std::sync::Arc;

use futures_util::future::{BoxFuture, try_join_all};

use super::bucket::{MAX_TRIES, NatsBucket, NatsError, in_time};
use super::key::{EntryText, key_of, name_of};
use super::open_bucket::OpenBucket;
use crate::inspector::{CursorPosition, ListCursor, NO_LOCK_NAME};
use crate::{
    LockError, LockHolder, LockInspector, LockKind, LockName, LockPage, LockSnapshot, LockState,
    LockWaiters, RemainingLease, Token, guarantees,
};

pub(crate) struct NatsInspector {
    pub(crate) bucket: Arc<NatsBucket>,
}

/// What the entry of that key says. An entry of another program has its value as its owner.
async fn read(bucket: &OpenBucket, key: &str, name: String) -> Result<LockSnapshot, NatsError> {
    let entry = bucket.read(key).await?;
    let holder = entry.value.map(|value| {
        let text = EntryText::read(&value);
        let holder = LockHolder::of_owner(text.owner.to_owned(), RemainingLease::Session);
        let token = Some(Token(text.token.unwrap_or(entry.revision)));
        LockHolder { id: text.id.to_owned(), token, ..holder }
    });
    Ok(snapshot(name, LockState::of(holder.into_iter().collect())))
}

/// What a key of a list says, which need not be that of a lock.
async fn read_listed(bucket: &OpenBucket, key: &str) -> Result<LockSnapshot, NatsError> {
    let name = name_of(key).filter(|name| LockName::new(name.as_str()).is_ok());
    let is_a_name = name.is_some();
    let shown = read(bucket, key, name.unwrap_or_else(|| key.to_owned())).await?;
    if is_a_name || shown.state == LockState::Free {
        return Ok(shown);
    }
    Ok(LockSnapshot { state: LockState::Damaged(NO_LOCK_NAME.to_owned()), ..shown })
}

fn snapshot(name: String, state: LockState) -> LockSnapshot {
    let kind = LockKind::Nats;
    LockSnapshot {
        kind: kind.as_str(),
        name,
        state,
        waiters: LockWaiters::Unknown,
        has_more_waiters: false,
        renewal: guarantees(kind).renewal,
    }
}

impl NatsInspector {
    async fn remove(&self, name: &LockName, id: &str) -> Result<bool, NatsError> {
        let Some(bucket) = self.bucket.open_existing().await? else { return Ok(false) };
        let key = key_of(name.as_str());
        for _ in 0..MAX_TRIES {
            let entry = bucket.read(&key).await?;
            if entry.value.is_none_or(|value| EntryText::read(&value).id != id) {
                return Ok(false);
            }
            match bucket.write(&key, entry.revision, None).await {
                Ok(_) => return Ok(true),
                // A renewal came in between.
                Err(NatsError::Conflict) => {}
                Err(failure) => return Err(failure),
            }
        }
        Err(NatsError::Conflict)
    }
}

impl LockInspector for NatsInspector {
    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockSnapshot, LockError>> {
        Box::pin(in_time(async move {
            match self.bucket.open_existing().await? {
                Some(bucket) => read(&bucket, &key_of(name.as_str()), name.to_string()).await,
                None => Ok(snapshot(name.to_string(), LockState::Free)),
            }
        }))
    }

    /// The server has no pages of keys, so the first page reads all of them, deleted ones too. The
    /// cursor has those that are left.
    fn list<'a>(
        &'a self,
        prefix: &'a str,
        cursor: Option<ListCursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<LockPage, LockError>> {
        Box::pin(async move {
            let empty = LockPage { locks: Vec::new(), next: None };
            let Some(bucket) = in_time(self.bucket.open_existing()).await? else {
                return Ok(empty);
            };
            let mut keys = match cursor {
                Some(ListCursor(CursorPosition::Keys(left))) => left,
                _ => bucket.keys(&key_of(prefix)).await?,
            };
            let left = keys.split_off(limit.min(keys.len()));
            let locks = try_join_all(keys.iter().map(|key| read_listed(&bucket, key)));
            let mut locks = in_time(locks).await?;
            locks.retain(|lock| lock.state != LockState::Free);
            let next = (!left.is_empty()).then_some(ListCursor(CursorPosition::Keys(left)));
            Ok(LockPage { locks, next })
        })
    }

    /// Deletes the entry while it is that hold's.
    fn force_release<'a>(
        &'a self,
        name: &'a LockName,
        id: &'a str,
    ) -> BoxFuture<'a, Result<bool, LockError>> {
        Box::pin(in_time(self.remove(name, id)))
    }
}
