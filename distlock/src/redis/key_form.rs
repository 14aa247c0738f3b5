//! How each kind stores a lock in Redis, for its inspector: which commands read it, and what their
//! answers mean. Every answer is bounded: of a large key of another program only the size is read.
//!
//! The keys of `fair` and `read-write` end with their last hold. So the server's clock is the score
//! of that hold less the rest of the key's life, and no command has to ask for it.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisError, RedisResult, Value, from_redis_value};

use super::keys::own_key;
use super::one_key::NO_EXPIRY;
use super::scan::escape_glob;
use super::script::LuaScript;
use super::stored_key::{StoredKey, stored_keys};
use crate::inspector::MAX_WAITERS;
use crate::{LockError, LockHolder, LockName, LockState, LockWaiter, LockWaiters, RemainingLease};

/// Reads locks of one key each.
static INSPECT_KEYS: LazyLock<LuaScript> =
    LazyLock::new(|| LuaScript::new(include_str!("../../lua/inspect_keys.lua")));
/// The most locks of one call of that script, which holds up the server for about a millisecond.
pub(crate) const MAX_KEYS_OF_CALL: usize = 100;

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
        let keys = || names.iter().flat_map(|name| self.keys(name)).collect::<Vec<_>>();
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
                let keys = keys();
                let queue = redis::cmd("LRANGE").arg(&keys[1]).arg(0).arg(MAX_WAITERS).to_owned();
                let sets = [last(&keys[0], MAX_HOLDS), last(&keys[2], MAX_LIVE_WAITERS)];
                sets.into_iter().flatten().chain([queue]).collect()
            }
            Self::ReadWrite => keys().iter().flat_map(|key| last(key, MAX_HOLDS)).collect(),
        }
    }

    /// Why a lock could not be read.
    pub(crate) fn failure(self, error: RedisError) -> LockError {
        match self {
            Self::Owner | Self::Deadline | Self::Hash => INSPECT_KEYS.failure(error),
            Self::Fair | Self::ReadWrite => error.into(),
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

    /// Each of these locks by the answers to one set of commands; `None` if the name stores
    /// something else.
    pub(crate) fn read(
        self,
        answers: Vec<RedisResult<Value>>,
        locks: usize,
    ) -> RedisResult<Vec<Option<LockReading>>> {
        let (mut values, mut has_wrong_type) = (Vec::with_capacity(self.answers()), false);
        for answer in answers {
            match answer {
                Ok(value) => values.push(value),
                Err(error) if error.code() == Some("WRONGTYPE") => has_wrong_type = true,
                Err(error) => return Err(error),
            }
        }
        let readings = match self {
            _ if has_wrong_type => None,
            Self::Owner | Self::Deadline | Self::Hash => {
                let keys = values.pop().and_then(|answer| stored_keys(answer, locks));
                let reading = |key: StoredKey| {
                    Some(LockReading { state: key.state(self), ..LockReading::default() })
                };
                keys.map(|keys| keys.into_iter().map(reading).collect())
            }
            Self::Fair => Some(vec![fair(&values)]),
            Self::ReadWrite => Some(vec![read_write(&values)]),
        };
        Ok(readings.unwrap_or_else(|| (0..locks).map(|_| None).collect()))
    }
}

impl Default for LockReading {
    fn default() -> Self {
        let (state, waiters) = (LockState::Free, LockWaiters::Unknown);
        Self { state, waiters, has_more_waiters: false }
    }
}

fn parsed<T: FromRedisValue>(answer: &Value) -> Option<T> {
    from_redis_value(answer.clone()).ok()
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

fn waiter(id: &[u8]) -> LockWaiter {
    String::from_utf8_lossy(id).into_owned().into()
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
    let waiters = LockWaiters::Ordered(queue.iter().map(|id| waiter(id)).collect());
    Some(LockReading { state: LockState::of(holders), waiters, has_more_waiters })
}

fn read_write(answers: &[Value]) -> Option<LockReading> {
    let members = |at: usize| members(&answers[at..at + 2]);
    let [mut holds, readers] = [holders(&members(0)?, false)?, holders(&members(2)?, true)?];
    holds.extend(readers);
    let mut queue = [members(4)?, members(6)?].concat();
    let has_more_waiters = queue.len() > MAX_WAITERS;
    queue.truncate(MAX_WAITERS);
    let waiters = queue.iter().map(|(id, _)| waiter(id)).collect();
    let (state, waiters) = (LockState::of(holds), LockWaiters::Unordered(waiters));
    Some(LockReading { state, waiters, has_more_waiters })
}
