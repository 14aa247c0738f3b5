//! Faults at the one moment at which an injected bug does harm, and a sound service does none. At
//! random moments such bugs show too seldom for a short run.

use std::future::Future;
use std::time::Duration;

use loadtest_measure::error::Result;
use testbed::{Action, Command, Direction, MessageDrop, Proxy, Rule, Times};
use tokio::time::{Instant, sleep};

use super::failover::{fail_over, follow_the_successor};
use super::held_commit::stock_write;
use super::replicas::{freeze, kill};
use super::{
    FaultContext, FaultRequirements, Link, POLL_INTERVAL, at_commit, callers, kill_after_set,
    late_holder, poison, stock, wait_until, witness,
};
use crate::cluster::blocking;

/// Longer than the lease in such cells (600 ms): what was held back arrives when another has the
/// lock. Less than a second, after which the replica gives up a connection that is silent, and what
/// was held on it never arrives.
const HOLD_PAST_LEASE: Duration = Duration::from_millis(700);
/// Releases that arrive so late.
const LATE_RELEASES: usize = 5;
/// Longer than the database's wait for a row (3 s), and shorter than the service's wait for an
/// answer (5 s).
const HOLD_PAST_ROW_LOCK_WAIT: Duration = Duration::from_millis(3500);
/// COMMITs of each replica that never arrive.
const COMMITS_PER_REPLICA: u64 = 3;
/// Locks that are taken away from their holders.
const FORCED_UNLOCKS: u32 = 3;
/// How long one answer of an independent Redis takes: longer than the lease in such cells, and less
/// than the service waits for it.
const SLOW_ANSWER: Duration = Duration::from_millis(250);
/// Frees a lock as Redisson's `forceUnlock` does, if its owner is another than at the last look:
/// so it is freed at the beginning of a hold. ARGV: logical database, pattern of locks, that owner.
const FORCE_UNLOCK_SCRIPT: &str = "redis.call('select', ARGV[1]) \
    local lock = redis.call('KEYS', ARGV[2])[1] \
    if not lock then return '' end \
    local owner = redis.call('HKEYS', lock)[1] \
    if not owner or owner == ARGV[3] or ARGV[3] == '' then return owner or '' end \
    redis.call('DEL', lock) \
    redis.call('PUBLISH', 'redisson_lock__channel:{' .. lock .. '}', '0') \
    return 'freed'";

/// A moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TargetedFault {
    /// A release arrives when its lease has ended.
    LateRelease,
    /// COMMITs never arrive.
    CommitsNeverArrive,
    /// A COMMIT arrives so late that others give up waiting for its rows.
    LateCommit,
    /// Locks are freed by force just after they were taken.
    ForceUnlock,
    /// Messages that locks are free are dropped.
    DropMessages,
    /// The independent Redis servers answer later than a lease lasts.
    SlowGrants,
    /// A replica is frozen past its lease while it holds the lock.
    FreezeAtWork,
    /// A replica is killed while it holds the lock.
    KillAtWork,
    /// As the failover of Redis, but the new master gets a replica again.
    FailOverAndFollow,
    /// Stock is added after every replica has seen that nothing is left.
    AddStock,
    /// Buyers ask for vouchers whose sale has not begun, or is over.
    ClosedSales,
    /// Callers that are no admins ask to add stock.
    StrangersAddStock,
    /// Entries that no replica can read are put into the voucher's stream.
    PoisonEntries,
    /// A replica is killed between the command that took the lock and its next one.
    KillAfterSet,
    /// A replica stands still past its lease with the lock, and gives it back amid the successor's
    /// COMMIT.
    StandStillPastLease,
    /// The last command of a release arrives past the lease, amid the successor's COMMIT.
    ReleasePastLease,
    /// Redis forgets the lock while its holder's COMMIT is on the way.
    FlushAtCommit,
    /// The connection that keeps the lock alive is cut while its holder's COMMIT is on the way.
    CutAtCommit,
    /// No renewal arrives until the lease has ended, amid its holder's COMMIT.
    LoseRenewalsAtCommit,
    /// A replica cannot reach `ZooKeeper` until its session has expired, amid its holder's COMMIT.
    ExpireSessionAtCommit,
}

impl TargetedFault {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::LateRelease => "late-release",
            Self::CommitsNeverArrive => "commits-never-arrive",
            Self::LateCommit => "late-commit",
            Self::ForceUnlock => "force-unlock",
            Self::DropMessages => "drop-messages",
            Self::SlowGrants => "slow-grants",
            Self::FreezeAtWork => "freeze-at-work",
            Self::KillAtWork => "kill-at-work",
            Self::FailOverAndFollow => "redis-failover-and-follow",
            Self::AddStock => "add-stock",
            Self::ClosedSales => "closed-sales",
            Self::StrangersAddStock => "strangers-add-stock",
            Self::PoisonEntries => "poison-entries",
            Self::KillAfterSet => "kill-after-set",
            Self::StandStillPastLease => "stand-still-past-lease",
            Self::ReleasePastLease => "release-past-lease",
            Self::FlushAtCommit => "redis-flush-at-commit",
            Self::CutAtCommit => "cut-at-commit",
            Self::LoseRenewalsAtCommit => "lose-renewals-at-commit",
            Self::ExpireSessionAtCommit => "expire-session-at-commit",
        }
    }

    pub(super) fn description(self) -> &'static str {
        match self {
            Self::LateRelease => "a release arrives when its lease has ended",
            Self::CommitsNeverArrive => "COMMITs never arrive, and their connections end",
            Self::LateCommit => "a COMMIT arrives after others gave up waiting for its rows",
            Self::ForceUnlock => "locks are freed by force just after they were taken",
            Self::DropMessages => "messages that locks are free are dropped",
            Self::SlowGrants => "servers answer one replica later than a lease lasts",
            Self::FreezeAtWork => "a replica is frozen past its lease while it holds the lock",
            Self::KillAtWork => "a replica is killed while it holds the lock",
            Self::FailOverAndFollow => {
                "Redis fails over to a replica that has not received the locks, and which has one \
                 of its own then"
            }
            Self::AddStock => "stock is added after every replica has seen that nothing is left",
            Self::ClosedSales => "buyers ask for a sale that is over, and for one that is to come",
            Self::StrangersAddStock => "callers that are no admins ask to add stock",
            Self::PoisonEntries => "entries that no replica can read are put into the stream",
            Self::StandStillPastLease => {
                "a replica stands still past its lease while it holds the lock, then gives it back"
            }
            Self::ReleasePastLease => {
                "the last command of a release arrives when the lease has ended"
            }
            Self::KillAfterSet => {
                "a replica is killed between the command that took the lock and its next one"
            }
            Self::FlushAtCommit => "Redis forgets the lock while its holder's COMMIT is on the way",
            Self::CutAtCommit => {
                "the connection that keeps the lock alive is cut while its holder's COMMIT is on \
                 the way"
            }
            Self::LoseRenewalsAtCommit => {
                "no renewal arrives until the lease has ended, while its holder's COMMIT is on \
                 the way"
            }
            Self::ExpireSessionAtCommit => {
                "a replica cannot reach ZooKeeper until its session has expired, while its \
                 COMMIT is on the way"
            }
        }
    }

    pub(super) fn requirements(self) -> FaultRequirements {
        let own_redis = FaultRequirements { own_redis: true, ..FaultRequirements::default() };
        match self {
            Self::LateRelease | Self::DropMessages | Self::SlowGrants => {
                FaultRequirements::link(Link::Redis)
            }
            Self::CommitsNeverArrive
            | Self::LateCommit
            | Self::FreezeAtWork
            | Self::KillAtWork
            | Self::StandStillPastLease
            | Self::CutAtCommit
            | Self::LoseRenewalsAtCommit => FaultRequirements::link(Link::Database),
            Self::ExpireSessionAtCommit => FaultRequirements::link(Link::Zookeeper)
                .and(FaultRequirements::link(Link::Database)),
            Self::ReleasePastLease => {
                FaultRequirements::link(Link::Redis).and(FaultRequirements::link(Link::Database))
            }
            Self::KillAfterSet => own_redis.and(FaultRequirements::link(Link::Redis)),
            Self::FlushAtCommit => own_redis.and(FaultRequirements::link(Link::Database)),
            Self::ForceUnlock | Self::PoisonEntries => own_redis,
            Self::AddStock | Self::ClosedSales | Self::StrangersAddStock => {
                FaultRequirements::default()
            }
            Self::FailOverAndFollow => FaultRequirements { follower: true, ..own_redis }
                .and(FaultRequirements::link(Link::Redis)),
        }
    }

    pub(super) async fn inject(self, context: &FaultContext<'_>) -> Result<String> {
        match self {
            Self::LateRelease => late_release(context).await,
            Self::CommitsNeverArrive => commits_never_arrive(context).await,
            Self::LateCommit => late_commit(context).await,
            Self::ForceUnlock => force_unlock(context).await,
            Self::DropMessages => drop_messages(context).await,
            Self::SlowGrants => slow_grants(context).await,
            // A COMMIT would count that arrives when the lock is another's.
            Self::FreezeAtWork => at_work(context, stock_write, freeze(context)).await,
            Self::KillAtWork => at_work(context, Command::commit, kill(context)).await,
            Self::FailOverAndFollow => {
                let seen = fail_over(context.deployment, context.lock).await?;
                Ok(format!("{seen}; {}", follow_the_successor(context).await?))
            }
            Self::AddStock => stock::add(context).await,
            Self::ClosedSales => callers::ask_outside_of_window(context).await,
            Self::StrangersAddStock => callers::add_stock_as_strangers(context).await,
            Self::PoisonEntries => poison::add_entries(context).await,
            Self::KillAfterSet => kill_after_set::kill(context).await,
            Self::StandStillPastLease => late_holder::stand_still(context).await,
            Self::ReleasePastLease => late_holder::release_late(context).await,
            Self::FlushAtCommit => at_commit::flush(context).await,
            Self::CutAtCommit => at_commit::cut(context).await,
            Self::LoseRenewalsAtCommit => at_commit::lose_renewals(context).await,
            Self::ExpireSessionAtCommit => at_commit::expire_session(context).await,
        }
    }
}

/// The proxies of all replicas on that link.
fn proxies<'a>(
    context: &'a FaultContext<'_>,
    link: Link,
) -> impl Iterator<Item = &'a Proxy> + Clone {
    (0..context.deployment.replicas().len())
        .flat_map(move |one| context.deployment.proxies(one, link))
}

/// Repeated, since a holder that comes in too early does harm only before the other has written.
/// Witness: how many releases were held back, and for how long.
async fn late_release(context: &FaultContext<'_>) -> Result<String> {
    let proxy = context.deployment.proxies(context.schedule.victim, Link::Redis);
    let arm = |name| {
        proxy
            .iter()
            .map(move |proxy| proxy.arm(Command::redis(name), Action::HoldRequest, Times::Next(1)))
    };
    let mut took = Vec::new();
    while took.len() < LATE_RELEASES {
        // Whichever of them the lock releases with.
        let rules: Vec<Rule> = arm("DEL").chain(arm("EVALSHA")).collect();
        let began = Instant::now();
        wait_until("a release is held", || rules.iter().any(|rule| rule.fired() > 0)).await?;
        sleep(HOLD_PAST_LEASE).await;
        rules.iter().for_each(Rule::disarm);
        rules.iter().for_each(Rule::release);
        took.push(began.elapsed().as_millis().to_string());
    }
    Ok(format!("releases took {} ms to arrive", took.join(", ")))
}

/// Witness: how many never arrived.
async fn commits_never_arrive(context: &FaultContext<'_>) -> Result<String> {
    let arm = |proxy: &Proxy| {
        proxy.arm(Command::commit(), Action::CutRequest, Times::Next(COMMITS_PER_REPLICA))
    };
    let rules: Vec<Rule> = proxies(context, Link::Database).map(arm).collect();
    let fired = || rules.iter().map(Rule::fired).sum::<u64>();
    wait_until("a COMMIT does not arrive", || fired() > 0).await?;
    sleep(context.schedule.lasts()).await;
    proxies(context, Link::Database).for_each(Proxy::heal);
    let lost = fired();
    witness(lost > 0, format!("{lost} COMMITs never arrived"))
}

/// Witness: for how long it was held.
async fn late_commit(context: &FaultContext<'_>) -> Result<String> {
    let proxies = context.deployment.proxies(context.schedule.victim, Link::Database);
    let arm = |proxy: &Proxy| proxy.arm(Command::commit(), Action::HoldRequest, Times::Next(1));
    let rules: Vec<Rule> = proxies.iter().map(arm).collect();
    let fired = || rules.iter().map(Rule::fired).sum::<u64>();
    wait_until("a COMMIT is held", || fired() > 0).await?;
    sleep(HOLD_PAST_ROW_LOCK_WAIT).await;
    let held = fired();
    proxies.iter().for_each(Proxy::heal);
    let ms = HOLD_PAST_ROW_LOCK_WAIT.as_millis();
    witness(held > 0, format!("{held} COMMIT was held back for {ms} ms"))
}

/// Holds that statement of the victim, which has the lock then and keeps it, while the fault
/// happens. Witness: the fault's own.
async fn at_work(
    context: &FaultContext<'_>,
    statement: fn() -> Command,
    fault: impl Future<Output = Result<String>>,
) -> Result<String> {
    let proxies = context.deployment.proxies(context.schedule.victim, Link::Database);
    let arm = |proxy: &Proxy| proxy.arm(statement(), Action::HoldRequest, Times::Next(1));
    let rules: Vec<Rule> = proxies.iter().map(arm).collect();
    wait_until("a statement is held", || rules.iter().any(|rule| rule.fired() > 0)).await?;
    let seen = fault.await;
    rules.iter().for_each(Rule::release);
    Ok(format!("{}, with the lock", seen?))
}

/// Witness: how many locks were freed.
async fn force_unlock(context: &FaultContext<'_>) -> Result<String> {
    let (redis, number) = (context.deployment.redis().clone(), context.deployment.redis_database());
    let (mut freed, mut owner) = (0, String::new());
    let deadline = Instant::now() + super::WITNESS_TIMEOUT;
    while freed < FORCED_UNLOCKS && Instant::now() < deadline {
        let (redis, number, last) = (redis.clone(), number.to_string(), owner.clone());
        let said = blocking(move || {
            redis.command(&["EVAL", FORCE_UNLOCK_SCRIPT, "0", &number, "lock:voucher:*", &last])
        });
        let said = said.await?.trim().to_owned();
        if said == "freed" {
            freed += 1;
            // The next owner is only looked at.
            owner = String::new();
        } else if !said.is_empty() {
            owner = said;
        }
        sleep(POLL_INTERVAL).await;
    }
    witness(freed > 0, format!("{freed} locks were freed just after they had been taken"))
}

/// Witness: how many messages were dropped.
async fn drop_messages(context: &FaultContext<'_>) -> Result<String> {
    let dropped =
        || proxies(context, Link::Redis).map(|proxy| proxy.counts().messages_dropped).sum::<u64>();
    let before = dropped();
    proxies(context, Link::Redis).for_each(|proxy| proxy.drop_messages("lock", MessageDrop::All));
    sleep(context.schedule.lasts()).await;
    proxies(context, Link::Redis).for_each(Proxy::heal);
    let dropped = dropped() - before;
    witness(dropped > 0, format!("{dropped} messages that a lock was free were lost"))
}

/// Witness: answers that the proxies have seen arrive so late.
async fn slow_grants(context: &FaultContext<'_>) -> Result<String> {
    // The first is the main one, on which no such lock lives.
    let proxies = context.deployment.proxies(context.schedule.victim, Link::Redis);
    let proxies = proxies.get(1..).unwrap_or_default();
    let late = || proxies.iter().map(|proxy| proxy.counts().late_to_client).sum::<u64>();
    for proxy in proxies {
        proxy.set_latency(Direction::ToClient, SLOW_ANSWER, Duration::ZERO);
    }
    let before = late();
    sleep(context.schedule.lasts()).await;
    let late = late() - before;
    proxies.iter().for_each(Proxy::heal);
    witness(late > 0, format!("{late} answers arrived {SLOW_ANSWER:?} after they had been given"))
}
