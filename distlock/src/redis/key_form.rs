//! How each kind stores a lock in Redis, for its inspector: which commands read it, and what their
//! answers mean. Every answer is bounded: of a large key of another program only the size is read.
//!
//! The keys of `fair` and `read-write` end with their last hold. So the server's clock is the score
//! of that hold less the rest of the key's life, and no command has to ask for it.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{Cmd, FromRedisValue, RedisError, RedisResult, Value, from_redis_value};

use super::keys::own_key;
use super::one_key::NO_EXPIRY;
use super::scan::escape_glob;
use super::script::LuaScript;
use crate::inspector::MAX_WAITERS;
use crate::{LockError, LockHolder, LockName, LockState, LockWaiters, RemainingLease};

/// Reads locks of one key each.
static INSPECT_KEYS: LazyLock<LuaScript> =
    LazyLock::new(|| LuaScript::new(include_str!("../../lua/inspect_keys.lua")));
/// The most locks of one call of that script, which holds up the server for about a millisecond.
const MAX_KEYS_OF_CALL: usize = 100;

/// The most holds of one snapshot.
const MAX_HOLDS: usize = 1000;
/// The most waiters of a fair lock whose liveness is read. They are sorted by it, not by place.
const MAX_LIVE_WAITERS: usize = 10_000;
/// The most bytes of an owner with its hold count; what is longer is no lock.
const MAX_OWNER_BYTES: usize = 1024;

/// The form of a lock's keys, as its inspector reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyForm {
    /// A string: the owner.
    Owner,
    /// A string: the time in ms at which the lock ends by its holder's clock.
    Deadline,
    /// A hash of owner to hold count.
    Hash,
    /// The sorted set of holds of `fair`, its queue and its waiters.
    Fair,
    /// The sorted sets of `read-write`: writers, readers, and the waiters of both.
    ReadWrite,
}

/// What the server stores under a name.
pub(crate) struct LockReading {
    pub(crate) state: LockState,
    pub(crate) waiters: LockWaiters,
    pub(crate) has_more_waiters: bool,
}

impl KeyForm {
    /// The keys that are read of a lock.
    pub(crate) fn keys(self, name: &LockName) -> Vec<String> {
        let own = |prefixes: &[&str]| prefixes.iter().map(|it| own_key(it, name)).collect();
        match self {
            Self::Owner | Self::Deadline | Self::Hash => vec![name.to_string()],
            Self::Fair => own(&["distlock_fair", "distlock_fair_queue", "distlock_fair_waiters"]),
            Self::ReadWrite => own(&[
                "distlock_rw_write",
                "distlock_rw_read",
                "distlock_rw_writers",
                "distlock_rw_readers",
            ]),
        }
    }

    /// The keys of its holds, where each hold has a name.
    pub(crate) fn hold_keys(self, name: &LockName) -> Vec<String> {
        let mut keys = self.keys(name);
        keys.truncate(match self {
            Self::Owner | Self::Deadline | Self::Hash => 0,
            Self::Fair => 1,
            Self::ReadWrite => 2,
        });
        keys
    }

    /// The pattern of the keys by which locks with names like that are found.
    pub(crate) fn pattern(self, prefix: &str) -> String {
        let prefix = escape_glob(prefix);
        match self {
            Self::Owner | Self::Deadline | Self::Hash => format!("{prefix}*"),
            Self::Fair => format!("distlock_fair:[{{:]{prefix}*"),
            Self::ReadWrite => format!("distlock_rw_[rw]*:[{{:]{prefix}*"),
        }
    }

    /// The name of the lock that has that key, if it is a key of holds.
    pub(crate) fn name(self, key: &str) -> Option<&str> {
        let holds: &[&str] = match self {
            Self::Owner | Self::Deadline | Self::Hash => return Some(key),
            Self::Fair => &["distlock_fair:"],
            Self::ReadWrite => &["distlock_rw_write:", "distlock_rw_read:"],
        };
        let rest = holds.iter().find_map(|prefix| key.strip_prefix(prefix))?;
        match rest.strip_prefix(':') {
            Some(tagged) => Some(tagged),
            None => rest.strip_prefix('{')?.strip_suffix('}'),
        }
    }

    /// How many locks one set of [`KeyForm::commands`] reads. A script takes keys of several slots
    /// only outside of a cluster.
    pub(crate) fn locks_at_once(self, is_cluster: bool) -> usize {
        match self {
            Self::Owner | Self::Deadline | Self::Hash if !is_cluster => MAX_KEYS_OF_CALL,
            _ => 1,
        }
    }

    /// The commands that read these locks, at most [`KeyForm::locks_at_once`]. A script is sent as
    /// a whole, or as the digest of one that the server has just executed.
    pub(crate) fn commands(self, names: &[LockName], sends_script: bool) -> Vec<Cmd> {
        let keys = names.iter().flat_map(|name| self.keys(name)).collect::<Vec<_>>();
        // One more than is shown, to see whether there are more.
        let last = |key: &str, most: usize| {
            let mut range = redis::cmd("ZRANGE");
            range.arg(key).arg(-1 - most.cast_signed()).arg(-1).arg("WITHSCORES");
            [range, redis::cmd("PTTL").arg(key).to_owned()]
        };
        match self {
            Self::Owner | Self::Deadline | Self::Hash => {
                let keys = names.iter().map(LockName::as_str).collect::<Vec<_>>();
                vec![INSPECT_KEYS.command(sends_script, &keys, MAX_OWNER_BYTES)]
            }
            Self::Fair => {
                let queue = redis::cmd("LRANGE").arg(&keys[1]).arg(0).arg(MAX_WAITERS).to_owned();
                let sets = [last(&keys[0], MAX_HOLDS), last(&keys[2], MAX_LIVE_WAITERS)];
                sets.into_iter().flatten().chain([queue]).collect()
            }
            Self::ReadWrite => keys.iter().flat_map(|key| last(key, MAX_HOLDS)).collect(),
        }
    }

    /// Why a lock could not be read.
    pub(crate) fn failure(self, error: RedisError) -> LockError {
        match self {
            Self::Owner | Self::Deadline | Self::Hash => INSPECT_KEYS.failure(error),
            Self::Fair | Self::ReadWrite => error.into(),
        }
    }

    /// The answers that belong to each of these locks, of those to one set of commands.
    pub(crate) fn split(
        self,
        answers: &[RedisResult<Value>],
        locks: usize,
    ) -> Vec<Vec<RedisResult<Value>>> {
        match (self, answers) {
            (Self::Owner | Self::Deadline | Self::Hash, [Ok(Value::Array(each))])
                if each.len() == locks =>
            {
                each.iter().map(|answer| vec![Ok(answer.clone())]).collect()
            }
            _ => vec![answers.to_vec(); locks],
        }
    }

    /// How many answers there are to one set of commands.
    pub(crate) fn answers(self) -> usize {
        match self {
            Self::Owner | Self::Deadline | Self::Hash => 1,
            Self::Fair => 5,
            Self::ReadWrite => 8,
        }
    }

    /// The state of the lock by the answers; `None` if the name stores something else.
    pub(crate) fn read(self, answers: &[Value]) -> Option<LockReading> {
        match self {
            Self::Owner | Self::Deadline | Self::Hash => {
                let state = stored_key(&answers[0])?.state(self);
                Some(LockReading { state, ..LockReading::default() })
            }
            Self::Fair => fair(answers),
            Self::ReadWrite => read_write(answers),
        }
    }
}

impl Default for LockReading {
    fn default() -> Self {
        let (state, waiters) = (LockState::Free, LockWaiters::Unknown);
        Self { state, waiters, has_more_waiters: false }
    }
}

/// A key as its script reads it.
struct StoredKey {
    /// What the server calls its type.
    kind: String,
    left_ms: i64,
    fields: u64,
    bytes: u64,
    /// The string, or the owner and the count of a hash; empty if it is none or too large.
    content: Vec<Vec<u8>>,
}

fn stored_key(answer: &Value) -> Option<StoredKey> {
    let Value::Array(parts) = answer else { return None };
    let [kind, left_ms, fields, bytes, content @ ..] = &parts[..] else { return None };
    Some(StoredKey {
        kind: parsed(kind)?,
        left_ms: parsed(left_ms)?,
        fields: parsed(fields)?,
        bytes: parsed(bytes)?,
        content: content.iter().map(parsed).collect::<Option<_>>()?,
    })
}

impl StoredKey {
    fn state(&self, form: KeyForm) -> LockState {
        if is_gone(self.left_ms) {
            return LockState::Free;
        }
        let held = match (form, &self.content[..]) {
            (KeyForm::Owner, [owner]) => self.holder(owner, None),
            (KeyForm::Deadline, [value]) => {
                return deadline(value).unwrap_or_else(|| self.damaged());
            }
            (KeyForm::Hash, [owner, count]) => {
                let count = std::str::from_utf8(count).ok().and_then(|count| count.parse().ok());
                count.and_then(|count| self.holder(owner, Some(count)))
            }
            _ => None,
        };
        held.map_or_else(|| self.damaged(), |holder| LockState::Held(vec![holder]))
    }

    /// `None` if the owner is not text: no program that takes these locks writes such a one.
    fn holder(&self, owner: &[u8], holds: Option<u64>) -> Option<LockHolder> {
        let owner = std::str::from_utf8(owner).ok()?.to_owned();
        Some(LockHolder { holds, ..LockHolder::of_owner(owner, lease(self.left_ms)) })
    }

    fn damaged(&self) -> LockState {
        let Self { kind, fields, bytes, .. } = self;
        let what = match kind.as_str() {
            "hash" if *fields == 1 => format!("hash with 1 field of {bytes} bytes"),
            "hash" => format!("hash with {fields} fields"),
            "string" => format!("string of {bytes} bytes"),
            kind => kind.to_owned(),
        };
        LockState::Damaged(format!("the key is no lock of this kind: a {what}"))
    }
}

fn parsed<T: FromRedisValue>(answer: &Value) -> Option<T> {
    from_redis_value(answer.clone()).ok()
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

/// The living members of a sorted set of ends, with the time that each has left, by the answers to
/// ZRANGE with scores and PTTL.
pub(crate) fn members(answers: &[Value]) -> Option<Vec<(Vec<u8>, RemainingLease)>> {
    let all: Vec<(Vec<u8>, f64)> = parsed(&answers[0])?;
    let left_ms: i64 = parsed(&answers[1])?;
    let last = all.last().map_or(0.0, |(_, score)| *score);
    let left = |score: f64| {
        if left_ms == NO_EXPIRY {
            return Some(RemainingLease::NoExpiry);
        }
        let left_ms = u64::try_from(left_ms).ok()?;
        let earlier = Duration::try_from_secs_f64((last - score) / 1000.0).ok()?;
        let left = Duration::from_millis(left_ms).checked_sub(earlier)?;
        (!left.is_zero()).then_some(RemainingLease::Ends(left))
    };
    Some(all.into_iter().filter_map(|(member, score)| Some((member, left(score)?))).collect())
}

/// Members `request:owner`, one holder for each owner. `None` if one is no such text.
fn holders(members: &[(Vec<u8>, RemainingLease)], shares: bool) -> Option<Vec<LockHolder>> {
    let mut holders: Vec<LockHolder> = Vec::new();
    // The last ends last.
    for (member, lease) in members.iter().rev() {
        let (_, owner) = std::str::from_utf8(member).ok()?.split_once(':')?;
        if let Some(holder) = holders.iter_mut().find(|holder| holder.id == owner) {
            holder.holds = holder.holds.map(|holds| holds + 1);
        } else {
            let holder = LockHolder::of_owner(owner.to_owned(), *lease);
            holders.push(LockHolder { holds: Some(1), shares, ..holder });
        }
    }
    Some(holders)
}

fn text(waiter: &[u8]) -> String {
    String::from_utf8_lossy(waiter).into_owned()
}

fn fair(answers: &[Value]) -> Option<LockReading> {
    let holders = holders(&members(&answers[..2])?, false)?;
    let alive = members(&answers[2..4])?;
    let mut queue: Vec<Vec<u8>> = parsed(&answers[4])?;
    let has_more_waiters = queue.len() > MAX_WAITERS;
    queue.truncate(MAX_WAITERS);
    // Beyond that many the others' liveness is unknown.
    if alive.len() <= MAX_LIVE_WAITERS {
        let alive: HashSet<&[u8]> = alive.iter().map(|(member, _)| &member[..]).collect();
        queue.retain(|waiter| alive.contains(&waiter[..]));
    }
    let waiters = LockWaiters::Ordered(queue.iter().map(|waiter| text(waiter)).collect());
    Some(LockReading { state: LockState::of(holders), waiters, has_more_waiters })
}

fn read_write(answers: &[Value]) -> Option<LockReading> {
    let members = |at: usize| members(&answers[at..at + 2]);
    let [mut holds, readers] = [holders(&members(0)?, false)?, holders(&members(2)?, true)?];
    holds.extend(readers);
    let mut queue = [members(4)?, members(6)?].concat();
    let has_more_waiters = queue.len() > MAX_WAITERS;
    queue.truncate(MAX_WAITERS);
    let waiters = queue.iter().map(|(waiter, _)| text(waiter)).collect();
    let (state, waiters) = (LockState::of(holds), LockWaiters::Unordered(waiters));
    Some(LockReading { state, waiters, has_more_waiters })
}
