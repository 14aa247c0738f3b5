//! The inspector of `nats`: reads the entries of the bucket, those of other programs as well.

use std::sync::Arc;

use futures_util::future::{BoxFuture, try_join_all};

use super::bucket::{NatsBucket, NatsError};
use super::key::{EntryText, key_of, name_of};
use crate::inspector::{CursorPosition, ListCursor, NO_LOCK_NAME};
use crate::{
    LockError, LockHolder, LockInspector, LockKind, LockName, LockPage, LockSnapshot, LockState,
    LockWaiters, RemainingLease, Token, guarantees,
};

/// How often a removal meets a renewal.
const MAX_CONFLICTS: u32 = 8;

pub(crate) struct NatsInspector {
    pub(crate) bucket: Arc<NatsBucket>,
}

impl NatsInspector {
    /// What the entry of that key says. An entry of another program has its value as its owner.
    async fn read(&self, key: &str, name: String) -> Result<LockSnapshot, LockError> {
        let entry = self.bucket.read(key).await?;
        let holder = entry.value.map(|value| {
            let text = EntryText::read(&value);
            let holder = LockHolder::of_owner(text.owner.to_owned(), RemainingLease::Session);
            let token = Some(Token(text.token.unwrap_or(entry.revision)));
            LockHolder { id: text.id.to_owned(), token, ..holder }
        });
        Ok(snapshot(name, LockState::of(holder.into_iter().collect())))
    }
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

impl LockInspector for NatsInspector {
    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockSnapshot, LockError>> {
        Box::pin(async move { self.read(&key_of(name.as_str()), name.to_string()).await })
    }

    /// The server has no pages of keys: each page reads the keys of all locks.
    fn list<'a>(
        &'a self,
        prefix: &'a str,
        cursor: Option<ListCursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<LockPage, LockError>> {
        Box::pin(async move {
            let after = match cursor {
                Some(ListCursor(CursorPosition::After(key))) => key,
                _ => Vec::new(),
            };
            let bucket = self.bucket.open().await?;
            let mut keys = bucket.keys(&key_of(prefix)).await?;
            keys.retain(|key| key.as_bytes() > after.as_slice());
            keys.sort_unstable();
            let is_more = keys.len() > limit;
            keys.truncate(limit);
            let locks = try_join_all(keys.iter().map(async |key| match name_of(key) {
                Some(name) if LockName::new(name.as_str()).is_ok() => self.read(key, name).await,
                _ => Ok(snapshot(key.clone(), LockState::Damaged(NO_LOCK_NAME.to_owned()))),
            }));
            let mut locks = locks.await?;
            locks.retain(|lock| lock.state != LockState::Free);
            let next = keys.pop().filter(|_| is_more);
            let next = next.map(|key| ListCursor(CursorPosition::After(key.into_bytes())));
            Ok(LockPage { locks, next })
        })
    }

    /// Deletes the entry while it is that hold's: a renewal may come in between.
    fn force_release<'a>(
        &'a self,
        name: &'a LockName,
        id: &'a str,
    ) -> BoxFuture<'a, Result<bool, LockError>> {
        Box::pin(async move {
            let key = key_of(name.as_str());
            for _ in 0..MAX_CONFLICTS {
                let entry = self.bucket.read(&key).await?;
                if entry.value.is_none_or(|value| EntryText::read(&value).id != id) {
                    return Ok(false);
                }
                match self.bucket.write(&key, entry.revision, None).await {
                    Ok(_) => return Ok(true),
                    Err(NatsError::Conflict) => {}
                    Err(failure) => return Err(failure.into()),
                }
            }
            Err(NatsError::Conflict.into())
        })
    }
}
