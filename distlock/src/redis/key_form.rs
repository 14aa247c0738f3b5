//! How each kind stores a lock in Redis, for its inspector: which commands read it, and what their
//! answers mean.
//!
//! The keys of `fair` and `read-write` end with their last hold. So the server's clock is the score
//! of that hold less the rest of the key's life, and no command has to ask for it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{Pipeline, Value, from_redis_value};

use super::keys::own_key;
use super::one_key::NO_EXPIRY;
use super::scan::escape_glob;
use crate::{LockHolder, LockName, LockState, LockWaiters, RemainingLease};

/// The most holds and the most waiters of one snapshot.
const MAX_MEMBERS: isize = 1000;

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

/// What answers mean; `None` means that the name stores something else.
type Reading = Option<(LockState, LockWaiters)>;

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

    /// Adds the commands that read a lock.
    pub(crate) fn add_commands(self, pipeline: &mut Pipeline, keys: &[String]) {
        let all = |pipeline: &mut Pipeline, key: &str| {
            pipeline.cmd("ZRANGE").arg(key).arg(-MAX_MEMBERS).arg(-1).arg("WITHSCORES");
            pipeline.cmd("PTTL").arg(key);
        };
        match (self, keys) {
            (Self::Owner | Self::Deadline, keys) => {
                for key in keys {
                    pipeline.cmd("GET").arg(key).cmd("PTTL").arg(key);
                }
            }
            (Self::Hash, keys) => {
                for key in keys {
                    pipeline.cmd("HGETALL").arg(key).cmd("PTTL").arg(key);
                }
            }
            (Self::Fair, keys) => {
                all(pipeline, &keys[0]);
                all(pipeline, &keys[2]);
                pipeline.cmd("LRANGE").arg(&keys[1]).arg(0).arg(MAX_MEMBERS - 1);
            }
            (Self::ReadWrite, keys) => keys.iter().for_each(|key| all(pipeline, key)),
        }
    }

    /// How many answers there are to the commands of one lock.
    pub(crate) fn answers(self) -> usize {
        match self {
            Self::Owner | Self::Deadline | Self::Hash => 2,
            Self::Fair => 5,
            Self::ReadWrite => 8,
        }
    }

    /// What the answers mean.
    pub(crate) fn read(self, answers: &[Value]) -> Reading {
        match self {
            Self::Owner => owner(answers),
            Self::Deadline => deadline(answers),
            Self::Hash => hash(answers),
            Self::Fair => fair(answers),
            Self::ReadWrite => read_write(answers),
        }
    }
}

fn parsed<T: redis::FromRedisValue>(answer: &Value) -> Option<T> {
    from_redis_value(answer.clone()).ok()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn lease(left_ms: i64) -> RemainingLease {
    match u64::try_from(left_ms) {
        Ok(left_ms) => RemainingLease::Ends(Duration::from_millis(left_ms)),
        Err(_) => RemainingLease::NoExpiry,
    }
}

/// Whether the key was gone when PTTL was answered.
fn is_gone(left_ms: i64) -> bool {
    left_ms < NO_EXPIRY
}

fn owner(answers: &[Value]) -> Reading {
    let (value, left_ms): (Option<Vec<u8>>, i64) = (parsed(&answers[0])?, parsed(&answers[1])?);
    let holder = value.filter(|_| !is_gone(left_ms));
    let holder = holder.map(|value| LockHolder::of_owner(text(&value), lease(left_ms)));
    Some((LockState::of(holder.into_iter().collect()), LockWaiters::Unknown))
}

/// A time that has passed by this machine's clock is free, as it is for a contender here.
fn deadline(answers: &[Value]) -> Reading {
    let value: Option<Vec<u8>> = parsed(&answers[0])?;
    let Some(value) = value else { return Some((LockState::Free, LockWaiters::Unknown)) };
    let until_ms: u64 = text(&value).parse().ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let lease = RemainingLease::ClientClock(until_ms);
    let holder = LockHolder { owner: None, ..LockHolder::of_owner(text(&value), lease) };
    let is_over = u128::from(until_ms) <= now.as_millis();
    let state = if is_over { LockState::Free } else { LockState::Held(vec![holder]) };
    Some((state, LockWaiters::Unknown))
}

fn hash(answers: &[Value]) -> Reading {
    let fields: Vec<(Vec<u8>, Vec<u8>)> = parsed(&answers[0])?;
    let left_ms: i64 = parsed(&answers[1])?;
    let holder = match &fields[..] {
        [] => None,
        _ if is_gone(left_ms) => None,
        [(owner, count)] => {
            let holds = Some(text(count).parse().ok()?);
            Some(LockHolder { holds, ..LockHolder::of_owner(text(owner), lease(left_ms)) })
        }
        _ => return None,
    };
    Some((LockState::of(holder.into_iter().collect()), LockWaiters::Unknown))
}

/// The living members of a sorted set of ends, with the time that each has left.
fn members(answers: &[Value]) -> Option<Vec<(String, RemainingLease)>> {
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
    Some(all.iter().filter_map(|(member, score)| Some((text(member), left(*score)?))).collect())
}

/// Members `request:owner`, one holder for each owner.
fn holders(members: Vec<(String, RemainingLease)>, shares: bool) -> Option<Vec<LockHolder>> {
    let mut holders: Vec<LockHolder> = Vec::new();
    // The last ends last.
    for (member, lease) in members.into_iter().rev() {
        let (_, owner) = member.split_once(':')?;
        if let Some(holder) = holders.iter_mut().find(|holder| holder.id == owner) {
            holder.holds = holder.holds.map(|holds| holds + 1);
        } else {
            let holder = LockHolder::of_owner(owner.to_owned(), lease);
            holders.push(LockHolder { holds: Some(1), shares, ..holder });
        }
    }
    Some(holders)
}

fn fair(answers: &[Value]) -> Reading {
    let holders = holders(members(&answers[..2])?, false)?;
    let alive = members(&answers[2..4])?;
    let queue: Vec<Vec<u8>> = parsed(&answers[4])?;
    let is_alive = |waiter: &String| alive.iter().any(|(member, _)| member == waiter);
    let queue = queue.iter().map(|waiter| text(waiter)).filter(is_alive).collect();
    Some((LockState::of(holders), LockWaiters::Ordered(queue)))
}

fn read_write(answers: &[Value]) -> Reading {
    let writers = holders(members(&answers[..2])?, false)?;
    let readers = holders(members(&answers[2..4])?, true)?;
    let holders = writers.into_iter().chain(readers).collect();
    let queue = [members(&answers[4..6])?, members(&answers[6..8])?].concat();
    let queue = queue.into_iter().map(|(waiter, _)| waiter).take(MAX_MEMBERS.unsigned_abs());
    Some((LockState::of(holders), LockWaiters::Unordered(queue.collect())))
}
