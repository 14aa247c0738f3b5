//! Locks that wait, renew and share: what a library adds to the key.

use loadtest_judge::setting::Guards;
use loadtest_judge::verdict::Rule;

use super::rungs::{SALE_RULES, WAIT_RULES, guarded, naked, per_user};
use super::{Breach, Rung, RungCell};
use crate::cell_axes::InjectedBug;
use crate::faults::{FaultKind, Link, NetworkFault, TargetedFault};
use crate::lock::Lock;
use crate::predict::Scenario;

const DROP_MESSAGES: Option<FaultKind> = Some(FaultKind::Targeted(TargetedFault::DropMessages));
const FLUSH_AT_COMMIT: Option<FaultKind> = Some(FaultKind::Targeted(TargetedFault::FlushAtCommit));
const SLOW_REDIS: Option<FaultKind> = Some(FaultKind::Network(NetworkFault::Delay, Link::Redis));

/// A lease that the work outlasts unless it is renewed, with a second for a late renewal; holders
/// that ignore a loss.
const OUTLASTING: &[(&str, &str)] =
    &[("--lease-ms", "1500"), ("--on-lost", "ignore"), ("--lock-wait-ms", "20000")];
/// Waiters that are seen to wait.
const PATIENT: &[(&str, &str)] = &[("--lock-wait-ms", "6000")];
/// Half of the lease is enough for a new connection. The work outlasts it by so much that a second
/// holder is certain if the renewal does not go on.
const LONG_WORK: &[(&str, &str)] = &[
    ("--lease-ms", "2400"),
    ("--lock-wait-ms", "6000"),
    ("--db-pool", "128"),
    ("--on-lost", "ignore"),
];
/// A lease that outlives the time for which a COMMIT is on the way.
pub(super) const OUTLIVING: &[(&str, &str)] = &[("--lease-ms", "6000")];

/// A line that is longer than a fault: no waiter leaves it meanwhile.
const IN_LINE: &[(&str, &str)] = &[("--lock-wait-ms", "7000")];
/// A method under the lock calls another one that takes it as well.
const NESTED: &[(&str, &str)] = &[("--lock-order", "nested"), ("--lock-wait-ms", "300")];
/// Each purchase reads the stock under the lock first.
const READ_FIRST: &[(&str, &str)] = &[("--lock-order", "read-first"), ("--lock-wait-ms", "1500")];

pub(super) const LUA_RELEASE: Rung = Rung {
    slug: "lua-release",
    lesson: "one script compares and deletes",
    fault: "a method that holds the lock calls another one that takes it too",
    breaks: "The holder waits for itself until its time is over. No purchase is made.",
    because: "the key says only that it is taken; the same owner is refused like any other",
    repair: "a hash counts the holds of its owner: the second one is let in",
    broken: RungCell::short(per_user(Lock::LuaRelease, Guards::On), None).with(NESTED),
    breach: Breach::NoPurchase,
    repaired: RungCell::short(per_user(Lock::Reentrant, Guards::On), None).with(NESTED),
};

pub(super) const REENTRANT: Rung = Rung {
    slug: "reentrant",
    lesson: "re-entry: a hash of owner and count, with a fixed lease",
    fault: "work that takes longer than the lease",
    breaks: "Two purchases are in at a time, and units are sold twice.",
    because: "the lease ends while its holder works on, and no process renews it",
    repair: "a watchdog renews the lease at every third of it while its holder lives",
    broken: RungCell::of(naked(Lock::Reentrant, 2), Scenario::LongWorkIgnored, None)
        .load(60, 4, 2100, 3)
        .with(OUTLASTING),
    breach: Breach::Rules(SALE_RULES),
    repaired: RungCell::of(naked(Lock::Redisson, 2), Scenario::LongWorkKept, None)
        .load(60, 4, 2100, 3)
        .with(OUTLASTING),
};

pub(super) const RETRY: Rung = Rung {
    slug: "retry",
    lesson: "retry: a waiter subscribes to the message of the release",
    fault: "messages that locks are free are dropped for 2.5 s",
    breaks: "Waiters wait on for locks that are free.",
    because: "publish and subscribe delivers a message at most once, and this waiter has nothing \
              else",
    repair: "a waiter that looks again after a bounded time, besides the message",
    broken: RungCell::short(per_user(Lock::Redisson, Guards::On), DROP_MESSAGES)
        .bug(InjectedBug::LostWakeUp)
        .load(2500, 250, 10, 2)
        .with(PATIENT)
        .lasting(2500),
    breach: Breach::Rules(WAIT_RULES),
    repaired: RungCell::short(per_user(Lock::Redisson, Guards::On), DROP_MESSAGES)
        .load(2500, 250, 10, 2)
        .with(PATIENT)
        .lasting(2500),
};

pub(super) const WATCHDOG: Rung = Rung {
    slug: "watchdog",
    lesson: "the watchdog: a renewal at every third of the lease",
    fault: "a replica cannot reach Redis for 180 ms",
    breaks: "The lease ends while its holder lives, and users buy twice.",
    because: "a renewal that got no answer was the last one",
    repair: "a renewal without an answer is tried again within the rest of the lease",
    broken: RungCell::short(per_user(Lock::Redisson, Guards::Off), Some(FaultKind::CUT_REDIS))
        .bug(InjectedBug::WatchdogNotRearmed)
        .load(1000, 1000, 3600, 2)
        .with(LONG_WORK)
        .lasting(180),
    breach: Breach::Rules(&[Rule::OneOrderPerUser]),
    repaired: RungCell::short(per_user(Lock::Redisson, Guards::Off), Some(FaultKind::CUT_REDIS))
        .load(1000, 1000, 3600, 2)
        .with(LONG_WORK)
        .lasting(180),
};

pub(super) const REDISSON: Rung = Rung {
    slug: "redisson",
    lesson: "Redisson: one Redis has the lock",
    fault: "Redis forgets the lock while its holder's COMMIT is on the way",
    breaks: "The next purchase gets the lock and reads the old stock. One unit is sold twice.",
    because: "the only copy of the lock is gone, as after a failover to a replica that lags",
    repair: "MultiLock takes the lock on every one of five servers: four still refuse the next \
             holder",
    broken: RungCell::short(naked(Lock::Redisson, 2), FLUSH_AT_COMMIT)
        .load(2500, 160, 10, 1)
        .with(OUTLIVING),
    breach: Breach::Rules(SALE_RULES),
    repaired: RungCell::short(naked(Lock::Multi, 2), FLUSH_AT_COMMIT)
        .load(2500, 160, 10, 1)
        .with(OUTLIVING),
};

pub(super) const FAIR: Rung = Rung {
    slug: "fair",
    lesson: "fair: first come, first served",
    fault: "a replica's way to Redis is slow for 5 s, and all replicas want one lock",
    breaks: "The slow replica hardly ever gets the lock: faster ones overtake its buyers.",
    because: "a released lock goes to the first attempt that arrives, not to the first in line",
    repair: "the line is kept in Redis, and only its head may take the lock",
    broken: RungCell::short(guarded(Lock::Redisson), SLOW_REDIS)
        .load(2500, 300, 40, 1)
        .with(IN_LINE)
        .lasting(5000),
    breach: Breach::Starvation,
    repaired: RungCell::short(guarded(Lock::Fair), SLOW_REDIS)
        .load(2500, 300, 40, 1)
        .with(IN_LINE)
        .lasting(5000),
};

pub(super) const READ_WRITE: Rung = Rung {
    slug: "read-write",
    lesson: "read-write: readers share, a writer is alone",
    fault: "a crowd that reads the stock under the lock before it buys",
    breaks: "Most requests are refused, since readers wait for each other.",
    because: "an exclusive lock does not know that a reader changes nothing",
    repair: "a read lock is shared: only a writer waits, for the readers that are inside",
    broken: RungCell::short(naked(Lock::Redisson, 2), None)
        .load(700, 100, 50, 3)
        .connections(96)
        .with(READ_FIRST),
    breach: Breach::Refusals { code: "409 order_in_progress", percent: 50 },
    repaired: RungCell::short(naked(Lock::ReadWrite, 2), None)
        .load(700, 100, 50, 3)
        .connections(96)
        .with(READ_FIRST),
};
