//! Locks of one key each, as `inspect_keys.lua` reads them.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{Value, from_redis_value};

use super::key_form::KeyForm;
use super::one_key::NO_EXPIRY;
use super::redisson_read_write;
use crate::{LockHolder, LockState, RemainingLease};

/// A key, and how long its server keeps it.
pub(crate) struct StoredKey {
    left_ms: i64,
    content: StoredContent,
}

enum StoredContent {
    Text(Vec<u8>),
    /// The owner and the count of a hash with one field.
    Count(Vec<u8>, Vec<u8>),
    /// Anything else, and what is too large, by its type as the server calls it.
    Other {
        kind: String,
        fields: u64,
        bytes: usize,
        /// Each field and its value, if it may be a read-write lock of Redisson.
        content: Vec<(Vec<u8>, Vec<u8>)>,
    },
}

/// The keys by the answer of the script, whose texts they take over; `None` if it is no answer
/// about that many.
pub(crate) fn stored_keys(answer: Value, count: usize) -> Option<Vec<StoredKey>> {
    let Value::Array(answer) = answer else { return None };
    let Ok([Value::Array(locks), Value::Array(others)]) = <[Value; 2]>::try_from(answer) else {
        return None;
    };
    if locks.len() != 3 * count {
        return None;
    }
    let mut others = others.into_iter().map(other).collect::<Option<VecDeque<_>>>()?;
    let mut parts = locks.into_iter();
    let key = |place| {
        let Value::Int(left_ms) = parts.next()? else { return None };
        let content = match (parts.next()?, parts.next()?) {
            (Value::BulkString(text), Value::Nil) => StoredContent::Text(text),
            (Value::BulkString(owner), Value::BulkString(count)) => {
                StoredContent::Count(owner, count)
            }
            (Value::Nil, Value::Nil) if is_gone(left_ms) => StoredContent::Text(Vec::new()),
            (Value::Nil, Value::Nil) => {
                let (at, content) = others.pop_front()?;
                (at == place).then_some(content)?
            }
            _ => return None,
        };
        Some(StoredKey { left_ms, content })
    };
    (1..=count).map(key).collect()
}

/// The place of a key, and what it is.
fn other(answer: Value) -> Option<(usize, StoredContent)> {
    let (place, kind, fields, bytes, content) = from_redis_value(answer).ok()?;
    Some((place, StoredContent::Other { kind, fields, bytes, content }))
}

impl StoredKey {
    pub(crate) fn state(self, form: KeyForm) -> LockState {
        let Self { left_ms, content } = self;
        if is_gone(left_ms) {
            return LockState::Free;
        }
        let (owner, holds) = match (form, &content) {
            (KeyForm::Owner, StoredContent::Text(owner)) => (owner, None),
            (KeyForm::Deadline, StoredContent::Text(value)) => {
                return deadline(value).unwrap_or_else(|| content.damaged());
            }
            (KeyForm::Hash, StoredContent::Count(owner, count)) => match number(count) {
                Some(count) => (owner, Some(count)),
                None => return content.damaged(),
            },
            (KeyForm::Hash, StoredContent::Other { content: fields, .. }) => {
                let holders = redisson_read_write::holders(fields, lease(left_ms));
                return holders.map_or_else(|| content.damaged(), LockState::Held);
            }
            _ => return content.damaged(),
        };
        // No program that takes these locks writes an owner that is no text.
        let Ok(owner) = std::str::from_utf8(owner) else { return content.damaged() };
        let holder = LockHolder::of_owner(owner.to_owned(), lease(left_ms));
        LockState::Held(vec![LockHolder { holds, ..holder }])
    }
}

impl StoredContent {
    /// Says what it is instead of a lock.
    fn damaged(&self) -> LockState {
        let hash = |bytes: usize| format!("hash with 1 field of {bytes} bytes");
        let string = |bytes: usize| format!("string of {bytes} bytes");
        let what = match self {
            Self::Text(text) => string(text.len()),
            Self::Count(owner, count) => hash(owner.len() + count.len()),
            Self::Other { kind, fields, bytes, .. } => match kind.as_str() {
                "hash" if *fields == 1 => hash(*bytes),
                "hash" => format!("hash with {fields} fields"),
                "string" => string(*bytes),
                kind => kind.to_owned(),
            },
        };
        LockState::Damaged(format!("the key is no lock of this kind: a {what}"))
    }
}

pub(crate) fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn lease(left_ms: i64) -> RemainingLease {
    match u64::try_from(left_ms) {
        Ok(left_ms) => RemainingLease::Ends(Duration::from_millis(left_ms)),
        Err(_) => RemainingLease::NoExpiry,
    }
}

/// Whether the key was missing when PTTL was answered.
fn is_gone(left_ms: i64) -> bool {
    left_ms < NO_EXPIRY
}

/// A time that has passed by this machine's clock is free, as it is for a contender here.
fn deadline(value: &[u8]) -> Option<LockState> {
    let value = std::str::from_utf8(value).ok()?;
    let until_ms: u64 = value.parse().ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let lease = RemainingLease::ClientClock(until_ms);
    let holder = LockHolder { owner: None, ..LockHolder::of_owner(value.to_owned(), lease) };
    let is_over = u128::from(until_ms) <= now.as_millis();
    Some(if is_over { LockState::Free } else { LockState::Held(vec![holder]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn hashes_of_several_fields_are_read_write_locks_of_redisson_or_damaged() {
        let reader = "0d0bc4d7-3b2c-4b73-9d4c-4f6f0a3c8f11:42";
        let other = |place, content| {
            let fields_and_bytes = [Value::Int(2), Value::Int(0)];
            let parts = [Value::Int(place), text("hash")].into_iter().chain(fields_and_bytes);
            Value::Array(parts.chain([Value::Array(content)]).collect())
        };
        let locks = (0..2).flat_map(|_| [Value::Int(5000), Value::Nil, Value::Nil]).collect();
        let content = ["mode", "read", reader, "1"].map(text).to_vec();
        let others = Value::Array(vec![other(1, content), other(2, Vec::new())]);
        let keys = stored_keys(Value::Array(vec![Value::Array(locks), others]), 2);
        let states = keys.expect("two keys").into_iter().map(|key| key.state(KeyForm::Hash));
        let [lock, hash] = &states.collect::<Vec<_>>()[..] else { panic!("not two") };
        assert_eq!(lock.holders()[0].id, reader);
        let damaged = "the key is no lock of this kind: a hash with 2 fields";
        assert_eq!(hash, &LockState::Damaged(damaged.to_owned()));
    }
}
