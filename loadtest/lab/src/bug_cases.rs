//! The table of the injected bugs: under which lock, load and fault each shows, and by which rule.

use loadtest_judge::setting::{Guards, Scope};
use loadtest_judge::verdict::Rule;

use crate::cell_axes::{CellAxes, InjectedBug, Load, PurchaseMode};
use crate::cell_spec::CellSpec;
use crate::faults::{FaultKind, TargetedFault};
use crate::injected_bugs::{Bug, BugCase};
use crate::lock::Lock;
use crate::predict::Scenario;

/// The sale itself is wrong.
const SALE_RULES: &[Rule] = &[Rule::OrdersWithinStock, Rule::OneOrderPerUser, Rule::StockAddsUp];

/// A buyer waited longer than the round allows.
const WAIT_RULES: &[Rule] = &[
    Rule::ServedAfterFault,
    Rule::AnsweredAfterFault,
    Rule::EachReplicaServes,
    Rule::LocksAreHandedOn,
    Rule::TicketsEnd,
];

const fn at(lock: Lock, scope: Scope, guards: Guards) -> CellAxes {
    CellAxes { lock, scope, guards, replicas: 2 }
}

const fn row(
    bug: Bug,
    breaks: &'static str,
    (axes, scenario): (CellAxes, Scenario),
    fault: Option<FaultKind>,
    signs: &'static [Rule],
) -> BugCase {
    let trial = CellSpec::of(axes, scenario, fault);
    BugCase { bug, breaks, trial, load: None, flags: &[], lasts_ms: None, signs }
}

impl BugCase {
    const fn load(mut self, users: usize, stock: u64, work_ms: u64, at_once: usize) -> Self {
        let (connections, requests_per_user) = (600, at_once);
        let load = Load { users, stock, connections, requests_per_user, work_ms, ..Load::DEFAULT };
        self.load = Some(load);
        self
    }

    /// In the mode `queued`, where no work is done under a lock.
    const fn queued(self, users: usize, stock: u64) -> Self {
        let mut row = self.load(users, stock, 0, 1);
        if let Some(load) = &mut row.load {
            load.mode = PurchaseMode::Queued;
        }
        row
    }

    const fn with(mut self, flags: &'static [(&'static str, &'static str)]) -> Self {
        self.flags = flags;
        self
    }

    const fn lasting(mut self, ms: u64) -> Self {
        self.lasts_ms = Some(ms);
        self
    }
}

use Bug::Service as S;
use FaultKind as F;
use Lock as L;
use Scenario::{FrozenFenced, LongWorkKept, ShortWork};

const PER_VOUCHER: Scope = Scope::Voucher;
const PER_USER: Scope = Scope::User;

/// The usual place of bugs that are not those of the lock.
const GUARDED: (CellAxes, Scenario) = (at(L::Redisson, PER_USER, Guards::On), ShortWork);
/// The usual place of those that are: nothing but the lock keeps purchases apart.
const LOCKED: (CellAxes, Scenario) = (at(L::Redisson, PER_VOUCHER, Guards::Off), ShortWork);

/// The place of those of the mode `queued`.
const QUEUED: (CellAxes, Scenario) = (at(L::None, PER_USER, Guards::On), ShortWork);

/// The bugs, in the order of the table.
pub const BUG_CASES: [BugCase; 31] = [
    row(
        S(InjectedBug::SetnxWithoutExpire),
        "the lock of a holder that dies stays for ever",
        (at(L::SetNx, PER_VOUCHER, Guards::On), ShortWork),
        Some(F::Targeted(TargetedFault::KillAtWork)),
        WAIT_RULES,
    ),
    row(
        S(InjectedBug::DelWithoutOwnerCheck),
        "a holder whose lease has ended frees its successor's lock",
        (at(L::LuaRelease, PER_VOUCHER, Guards::Off), ShortWork),
        Some(F::Targeted(TargetedFault::LateRelease)),
        SALE_RULES,
    )
    .load(2500, 100, 70, 1)
    .with(&[("--lease-ms", "600")]),
    row(
        S(InjectedBug::GetThenDel),
        "between GET and DEL the lock becomes another's, and is deleted",
        (at(L::LuaRelease, PER_VOUCHER, Guards::Off), ShortWork),
        Some(F::Targeted(TargetedFault::LateRelease)),
        SALE_RULES,
    )
    .load(2500, 100, 70, 1)
    .with(&[("--lease-ms", "600")]),
    row(
        S(InjectedBug::NoWatchdog),
        "work that outlasts the lease is not alone",
        (at(L::Redisson, PER_VOUCHER, Guards::Off), LongWorkKept),
        None,
        SALE_RULES,
    )
    .load(60, 12, 700, 3)
    .with(&[("--lease-ms", "500"), ("--on-lost", "ignore")]),
    row(
        S(InjectedBug::WatchdogNotRearmed),
        "a short outage of Redis costs a lock that should outlive it",
        (at(L::Redisson, PER_USER, Guards::Off), ShortWork),
        Some(F::CUT_REDIS),
        &[Rule::OneOrderPerUser],
    )
    // The sound renewal has half of the lease for a new connection. The work outlasts the lease by
    // so much that the next holder comes in even if the second renewal was the last one.
    .load(1000, 1000, 3600, 2)
    .with(&[
        ("--lease-ms", "2400"),
        ("--lock-wait-ms", "6000"),
        ("--db-pool", "128"),
        ("--on-lost", "ignore"),
    ])
    .lasting(180),
    row(
        S(InjectedBug::RenewWithoutOwnerCheck),
        "a holder that has lost its lock gets the answer that it still has it",
        LOCKED,
        Some(F::Targeted(TargetedFault::ForceUnlock)),
        SALE_RULES,
    )
    .load(1000, 40, 600, 1)
    .with(&[("--lease-ms", "600")]),
    row(
        S(InjectedBug::TokenFromRedis),
        "a failover sets the counter back, and a later holder has a lower token",
        (at(L::Redisson, PER_VOUCHER, Guards::On), ShortWork),
        Some(F::FailOverRedis),
        &[Rule::TokensRise],
    )
    .with(&[("--fenced", "")]),
    row(
        S(InjectedBug::FenceAtWriteOnly),
        "a frozen holder and its successor both sell what they read before",
        (at(L::Redisson, PER_VOUCHER, Guards::Off), FrozenFenced),
        Some(F::FreezeReplica),
        SALE_RULES,
    ),
    row(
        S(InjectedBug::CommitAfterLockWait),
        "an order is committed whose unit was not taken",
        GUARDED,
        Some(F::Targeted(TargetedFault::LateCommit)),
        &[Rule::StockAddsUp],
    ),
    row(
        S(InjectedBug::RetryWithFreshId),
        "a buyer gets the answer that another request has bought",
        GUARDED,
        Some(F::LoseCommit),
        &[Rule::RefusalsLeftNoRow],
    ),
    row(
        Bug::Forgetful,
        "a killed database forgets orders that were acknowledged",
        GUARDED,
        Some(F::RestartDatabase),
        &[Rule::AcknowledgedExist],
    ),
    row(
        S(InjectedBug::NoStockCondition),
        "units are sold that are not there",
        GUARDED,
        None,
        &[Rule::OrdersWithinStock],
    ),
    row(
        S(InjectedBug::IgnoredDecrement),
        "orders are written for which no unit was taken",
        GUARDED,
        None,
        &[Rule::OrdersWithinStock, Rule::StockAddsUp],
    ),
    row(
        S(InjectedBug::DecrementBeforeDuplicateCheck),
        "each refusal of a second order costs a unit",
        GUARDED,
        None,
        &[Rule::StockAddsUp],
    ),
    row(
        S(InjectedBug::LockRefusalAcknowledged),
        "a purchase that does not get its lock is acknowledged and lost",
        GUARDED,
        None,
        &[Rule::AcknowledgedExist],
    )
    .load(1000, 100, 20, 3)
    .with(&[("--lock-wait-ms", "0")]),
    row(
        S(InjectedBug::RoundedOrderIds),
        "a buyer gets an id that no order has",
        GUARDED,
        None,
        &[Rule::AcknowledgedExist, Rule::IdsAreUnique],
    ),
    row(
        S(InjectedBug::AnswerBeforeCommit),
        "orders are acknowledged whose COMMIT never arrives",
        GUARDED,
        Some(F::Targeted(TargetedFault::CommitsNeverArrive)),
        &[Rule::AcknowledgedExist],
    ),
    row(
        S(InjectedBug::LostWakeUp),
        "a waiter that misses a message waits on for a free lock",
        GUARDED,
        Some(F::Targeted(TargetedFault::DropMessages)),
        WAIT_RULES,
    )
    .with(&[("--lock-wait-ms", "6000")])
    .lasting(2500),
    row(
        S(InjectedBug::WaitOnAnotherConnection),
        "a lock counts as confirmed that no replica has, and a failover forgets it",
        (at(L::Redisson, PER_USER, Guards::Off), ShortWork),
        Some(F::Targeted(TargetedFault::FailOverAndFollow)),
        &[Rule::OneOrderPerUser],
    )
    // The work outlasts what the successor needs to have a replica of its own, and no renewal tells
    // its holder meanwhile that the lock is gone.
    .load(1000, 1000, 4500, 2)
    .with(&[
        ("--lease-ms", "20000"),
        ("--lock-wait-ms", "6000"),
        ("--db-pool", "128"),
        ("--lock-replication", "1"),
    ]),
    row(
        S(InjectedBug::RedlockWithoutElapsedTime),
        "a lock counts as held though its lease was over when it was granted",
        (at(L::Redlock, PER_VOUCHER, Guards::Off), ShortWork),
        Some(F::Targeted(TargetedFault::SlowGrants)),
        SALE_RULES,
    )
    .load(2500, 200, 20, 1)
    .with(&[("--lease-ms", "200")])
    .lasting(4000),
    row(
        S(InjectedBug::ReleaseBeforeCommit),
        "the next holder does not see the last one's order",
        LOCKED,
        None,
        SALE_RULES,
    ),
    row(
        S(InjectedBug::OwnerCheckAlwaysTrue),
        "a holder whose lease has ended frees its successor's lock",
        LOCKED,
        Some(F::Targeted(TargetedFault::FreezeAtWork)),
        SALE_RULES,
    )
    .load(2500, 120, 40, 1),
    row(
        S(InjectedBug::LyingAudit),
        "the service's own account hides what it has done",
        (at(L::Redisson, PER_USER, Guards::Off), ShortWork),
        None,
        &[Rule::AuditAgrees],
    ),
    row(
        S(InjectedBug::AbortWithClient),
        "a purchase ends with its client, and the next one commits what it had written",
        GUARDED,
        Some(F::HangUp),
        &[Rule::StockAddsUp],
    ),
    row(
        S(InjectedBug::SoldOutForEver),
        "units that are added to a voucher that was sold out are never sold",
        GUARDED,
        Some(F::Targeted(TargetedFault::AddStock)),
        &[Rule::SoldOutIsTrue],
    )
    .load(2500, 60, 0, 3),
    // A rebuilt queue does not know who has bought, and admits a buyer again.
    row(
        S(InjectedBug::LostCompensation),
        "a buyer that was admitted and cannot buy has a ticket that never ends",
        QUEUED,
        Some(F::FlushRedis),
        WAIT_RULES,
    )
    .queued(1000, 400),
    row(
        S(InjectedBug::NoTimeWindow),
        "a voucher is sold before its sale begins, and after it has ended",
        QUEUED,
        Some(F::Targeted(TargetedFault::ClosedSales)),
        &[Rule::SoldWithinWindow],
    )
    .queued(1000, 400),
    row(
        S(InjectedBug::MissingStockKey),
        "a sale whose keys Redis has lost is answered as sold out",
        QUEUED,
        Some(F::FlushRedis),
        &[Rule::SoldOutIsTrue],
    )
    .queued(1000, 400),
    row(
        S(InjectedBug::PoisonEntryBlocks),
        "one entry that no replica can read keeps all later ones waiting",
        QUEUED,
        Some(F::Targeted(TargetedFault::PoisonEntries)),
        WAIT_RULES,
    )
    .queued(1000, 400),
    // What a replica deletes at its end is in flight at another one.
    row(
        S(InjectedBug::OneConsumerName),
        "a replica that ends takes entries of others with it, whose tickets never end",
        QUEUED,
        Some(F::RollingRestart),
        WAIT_RULES,
    )
    .queued(2500, 550),
    row(
        S(InjectedBug::AdminWithoutLogin),
        "a stranger adds units that no admin has ordered",
        GUARDED,
        Some(F::Targeted(TargetedFault::StrangersAddStock)),
        &[Rule::StockAsOrdered, Rule::OrdersWithinStock],
    ),
];
