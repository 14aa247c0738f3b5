//! From no lock to a key in Redis that only its owner frees.

use super::rungs::{SALE_RULES, WAIT_RULES, guarded, naked};
use super::{Breach, Rung, RungCell};
use crate::cell_axes::InjectedBug;
use crate::faults::{FaultKind, TargetedFault};
use crate::lock::Lock;

const KILL_AT_WORK: Option<FaultKind> = Some(FaultKind::Targeted(TargetedFault::KillAtWork));
const KILL_AFTER_SET: Option<FaultKind> = Some(FaultKind::Targeted(TargetedFault::KillAfterSet));
const STAND_STILL: Option<FaultKind> =
    Some(FaultKind::Targeted(TargetedFault::StandStillPastLease));
const LATE_RELEASE: Option<FaultKind> = Some(FaultKind::Targeted(TargetedFault::ReleasePastLease));

/// Leases that only the fault exceeds.
const LEASE: &[(&str, &str)] = &[("--lease-ms", "2000")];
const SHORT_LEASE: &[(&str, &str)] = &[("--lease-ms", "800")];

pub(super) const NO_LOCK: Rung = Rung {
    slug: "no-lock",
    lesson: "no lock: read the stock, write back one less",
    fault: "a crowd: 700 users send three requests each to one replica",
    breaks: "More orders than units, and users with two orders.",
    because: "nothing keeps two purchases apart, so both read the same stock",
    repair: "a lock of the process lets one purchase in at a time",
    broken: RungCell::short(naked(Lock::None, 1), None),
    breach: Breach::Rules(SALE_RULES),
    repaired: RungCell::short(naked(Lock::Local, 1), None),
};

pub(super) const JVM_LOCK: Rung = Rung {
    slug: "jvm-lock",
    lesson: "a lock of the process, as synchronized is in a JVM",
    fault: "three replicas behind a proxy",
    breaks: "More orders than units, and users with two orders, as without a lock.",
    because: "each replica has a lock of its own, so three purchases are in at a time",
    repair: "a key in Redis is one lock for all replicas: SETNX takes it, DEL frees it",
    broken: RungCell::short(naked(Lock::Local, 3), None),
    breach: Breach::Rules(SALE_RULES),
    repaired: RungCell::short(naked(Lock::SetNx, 3), None).bug(InjectedBug::SetnxWithoutExpire),
};

pub(super) const SETNX: Rung = Rung {
    slug: "setnx",
    lesson: "SETNX takes the key, DEL frees it",
    fault: "a replica is killed while it holds the lock",
    breaks: "The key stays for ever. No replica serves a buyer again.",
    because: "the key has no lease, and the only process that would delete it is dead",
    repair: "EXPIRE gives the key a lease: it ends without its holder",
    broken: RungCell::short(guarded(Lock::SetNx), KILL_AT_WORK)
        .bug(InjectedBug::SetnxWithoutExpire),
    breach: Breach::Rules(WAIT_RULES),
    repaired: RungCell::short(guarded(Lock::SetnxExpire), KILL_AT_WORK),
};

pub(super) const SETNX_EXPIRE: Rung = Rung {
    slug: "setnx-expire",
    lesson: "SETNX, then EXPIRE: two commands",
    fault: "a replica is killed between the command that took the lock and its next one",
    breaks: "The key stays for ever, as without EXPIRE.",
    because: "SETNX was executed and EXPIRE was never sent",
    repair: "SET NX EX is one command: there is no key without a lease",
    broken: RungCell::short(guarded(Lock::SetnxExpire), KILL_AFTER_SET),
    breach: Breach::Rules(WAIT_RULES),
    repaired: RungCell::short(guarded(Lock::SetNx), KILL_AFTER_SET),
};

pub(super) const SET_NX: Rung = Rung {
    slug: "set-nx",
    lesson: "SET NX EX, then a bare DEL",
    fault: "a replica stands still past its lease while it holds the lock, then goes on",
    breaks: "Its DEL frees the lock of its successor. A third purchase enters beside it, and units \
             are sold twice.",
    because: "DEL removes the key of any owner, and each mistaken DEL causes the next one",
    repair: "the value of the key names its owner, and the release compares it before DEL",
    broken: RungCell::short(naked(Lock::SetNx, 3), STAND_STILL)
        .load(2500, 160, 10, 1)
        .with(LEASE)
        .lasting(2200),
    breach: Breach::Rules(SALE_RULES),
    repaired: RungCell::short(naked(Lock::OwnerCheck, 3), STAND_STILL)
        .load(2500, 160, 10, 1)
        .with(LEASE)
        .lasting(2200),
};

pub(super) const OWNER_CHECK: Rung = Rung {
    slug: "owner-check",
    lesson: "GET, compare the owner, DEL",
    fault: "the last command of a release arrives when the lease has ended",
    breaks: "The DEL frees the lock of the successor, although GET had found the own key.",
    because: "the key became another's between GET and DEL",
    repair: "a Lua script compares and deletes in one step",
    broken: RungCell::short(naked(Lock::OwnerCheck, 3), LATE_RELEASE)
        .load(2500, 160, 10, 1)
        .with(SHORT_LEASE),
    breach: Breach::Rules(SALE_RULES),
    repaired: RungCell::short(naked(Lock::LuaRelease, 3), LATE_RELEASE)
        .load(2500, 160, 10, 1)
        .with(SHORT_LEASE),
};
