//! Locks on several servers, in the database and in `ZooKeeper`, and the token that a resource
//! checks.

use loadtest_judge::setting::Guards;

use super::rungs::{SALE_RULES, naked, per_user};
use super::{Breach, Rung, RungCell};
use crate::cell_axes::{CellAxes, InjectedBug};
use crate::faults::{FaultKind, TargetedFault};
use crate::lock::Lock;
use crate::predict::Scenario::{FrozenFenced, FrozenUnfenced};

const FREEZE_REDIS: Option<FaultKind> = Some(FaultKind::FreezeRedis);
const FREEZE: Option<FaultKind> = Some(FaultKind::FreezeReplica);
const CUT_AT_COMMIT: Option<FaultKind> = Some(FaultKind::Targeted(TargetedFault::CutAtCommit));

const LOSE_RENEWALS: Option<FaultKind> =
    Some(FaultKind::Targeted(TargetedFault::LoseRenewalsAtCommit));
const EXPIRE_SESSION: Option<FaultKind> =
    Some(FaultKind::Targeted(TargetedFault::ExpireSessionAtCommit));

/// The sale checks the token of its holder.
const FENCE: &[(&str, &str)] = &[(super::FENCED, "")];
/// A heartbeat or a renewal comes every second.
const HEARTBEAT: &[(&str, &str)] = &[("--lease-ms", "3000")];
/// Fewer connections than waiters.
const SMALL_POOL: &[(&str, &str)] = &[("--lock-pool", "2"), ("--db-pool", "128")];

/// One replica under a lock of each user: its users never wait for each other's locks.
const fn alone(lock: Lock) -> CellAxes {
    CellAxes { replicas: 1, ..per_user(lock, Guards::On) }
}

const FROZEN: &str = "the holder stands still past its lock, between its last look and its COMMIT";

pub(super) const MULTI: Rung = Rung {
    slug: "multi",
    lesson: "MultiLock: all of five servers",
    fault: "one of five Redis servers stands still for 3 s",
    breaks: "No purchase is made meanwhile.",
    because: "a lock on all servers needs all servers",
    repair: "Redlock needs a majority: four of five are enough",
    broken: RungCell::short(per_user(Lock::Multi, Guards::On), FREEZE_REDIS).lasting(3000),
    breach: Breach::NoPurchase,
    repaired: RungCell::short(per_user(Lock::Redlock, Guards::On), FREEZE_REDIS).lasting(3000),
};

pub(super) const REDLOCK: Rung = Rung {
    slug: "redlock",
    lesson: "Redlock: a majority of five servers",
    fault: FROZEN,
    breaks: "The next holder reads the old stock, and both sell the same unit.",
    because: "a lease ends by time on any number of servers, and the late COMMIT is accepted",
    repair: "with a row lock, lock and write are one transaction: no other one gets in before its \
             COMMIT",
    broken: RungCell::of(naked(Lock::Redlock, 2), FrozenUnfenced, FREEZE),
    breach: Breach::Rules(SALE_RULES),
    repaired: RungCell::of(naked(Lock::MysqlRow, 2), FrozenFenced, FREEZE),
};

pub(super) const MYSQL_ROW: Rung = Rung {
    slug: "mysql-row",
    lesson: "MySQL: a row lock of the transaction that writes",
    fault: "more buyers at a time than the pool of the locks has connections",
    breaks: "Buyers are refused because no connection is free.",
    because: "each holder and each waiter keeps a connection for as long as it holds or waits",
    repair: "a row of a lock table with a lease: each step is one statement, and no waiter keeps a \
             connection",
    broken: RungCell::short(alone(Lock::MysqlRow), None)
        .load(700, 100, 200, 3)
        .connections(192)
        .with(SMALL_POOL),
    breach: Breach::Refusals { code: "503 overloaded", percent: 5 },
    repaired: RungCell::short(alone(Lock::MysqlTable), None)
        .load(700, 100, 200, 3)
        .connections(192)
        .with(SMALL_POOL),
};

pub(super) const MYSQL_TABLE: Rung = Rung {
    slug: "mysql-table",
    lesson: "MySQL: a row of a lock table, with a lease",
    fault: "no renewal arrives until the lease has ended, while the COMMIT is on the way",
    breaks: "The next holder takes the expired row, reads the old stock, and both sell one unit.",
    because: "the lease of the row ends by time, as that of a key in Redis",
    repair: "every ownership has a higher token, and the sale checks it before it reads",
    broken: RungCell::short(naked(Lock::MysqlTable, 2), LOSE_RENEWALS).load(2500, 160, 10, 1),
    breach: Breach::Rules(SALE_RULES),
    repaired: RungCell::short(naked(Lock::MysqlTable, 2), LOSE_RENEWALS)
        .load(2500, 160, 10, 1)
        .with(FENCE),
};

pub(super) const MYSQL_NAMED: Rung = Rung {
    slug: "mysql-named",
    lesson: "MySQL: GET_LOCK, which belongs to a session",
    fault: "the connection that keeps the lock alive is cut while the COMMIT is on the way",
    breaks: "The database frees the lock at once. The next holder reads the old stock, and both \
             sell one unit.",
    because: "the lock ends with its session, and the order is written on another connection",
    repair: "the row of a lock table has a lease that outlives a connection",
    broken: RungCell::short(naked(Lock::MysqlNamed, 2), CUT_AT_COMMIT)
        .load(2500, 160, 10, 1)
        .with(HEARTBEAT),
    breach: Breach::Rules(SALE_RULES),
    repaired: RungCell::short(naked(Lock::MysqlTable, 2), CUT_AT_COMMIT)
        .load(2500, 160, 10, 1)
        .with(HEARTBEAT),
};

pub(super) const ZOOKEEPER: Rung = Rung {
    slug: "zookeeper",
    lesson: "ZooKeeper: the lowest ephemeral node of a session",
    fault: "a replica cannot reach ZooKeeper until its session has expired, while its COMMIT is on \
            the way",
    breaks: "The node is gone. The next holder reads the old stock, and both sell one unit.",
    because: "consensus orders the holders, and does not stop a COMMIT that was sent before",
    repair: "the number of the node is a token that rises with every holder; the sale checks it",
    broken: RungCell::short(naked(Lock::Zookeeper, 2), EXPIRE_SESSION).load(2500, 160, 10, 1),
    breach: Breach::Rules(SALE_RULES),
    repaired: RungCell::short(naked(Lock::Zookeeper, 2), EXPIRE_SESSION)
        .load(2500, 160, 10, 1)
        .with(FENCE),
};

pub(super) const FENCING: Rung = Rung {
    slug: "fencing",
    lesson: "fencing: the resource refuses an old token",
    fault: FROZEN,
    breaks: "Both holders sell what they had read before, although the token was checked.",
    because: "the token was checked at the write, and the stock had been read long ago",
    repair: "the token is checked before the read as well, in the transaction that writes",
    broken: RungCell::of(naked(Lock::Redisson, 2), FrozenFenced, FREEZE)
        .bug(InjectedBug::FenceAtWriteOnly),
    breach: Breach::Rules(SALE_RULES),
    repaired: RungCell::of(naked(Lock::Redisson, 2), FrozenFenced, FREEZE),
};
