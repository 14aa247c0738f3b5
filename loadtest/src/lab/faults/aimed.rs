//! What happens at the one moment at which a planted bug does harm, and at which a sound service
//! does none. At random moments such bugs show too seldom for a short run.

use std::future::Future;
use std::time::Duration;

use testbed::{Action, Command, Direction, Dropping, Proxy, Rule, Times};
use tokio::time::{Instant, sleep};

use super::failover::{fail_over, follow_the_successor};
use super::frozen_holder::stock_write;
use super::replicas::{freeze, kill};
use super::{Equipment, Link, POLL, Scene, stock, until, witness};
use crate::error::Result;
use crate::lab::cluster::blocking;

/// Longer than the lease in such cells (600 ms): what was held back arrives when another has the
/// lock. Less than a second, after which the replica gives up a connection that is silent, and what
/// was held on it never arrives.
const PAST_THE_LEASE: Duration = Duration::from_millis(700);
/// Releases that arrive so late.
const LATE: usize = 5;
/// Longer than the database lets anybody wait for a row (3 s), and less than the service waits for
/// an answer (5 s).
const PAST_THE_ROW_LOCK: Duration = Duration::from_millis(3500);
/// COMMITs of each replica that never arrive.
const EACH: u64 = 3;
/// Locks that are taken away from their holders.
const TAKEN_AWAY: u32 = 3;
/// How long one answer of an independent Redis takes: longer than the lease in such cells, and less
/// than the service waits for it.
const SLOW: Duration = Duration::from_millis(250);
/// Frees a lock as Redisson's `forceUnlock` does, if its owner is another than at the last look:
/// so it is freed at the beginning of a hold. ARGV: logical database, pattern of locks, that owner.
const FREE_IF_NEW: &str = "redis.call('select', ARGV[1]) \
    local lock = redis.call('KEYS', ARGV[2])[1] \
    if not lock then return '' end \
    local owner = redis.call('HKEYS', lock)[1] \
    if not owner or owner == ARGV[3] or ARGV[3] == '' then return owner or '' end \
    redis.call('DEL', lock) \
    redis.call('PUBLISH', 'redisson_lock__channel:{' .. lock .. '}', '0') \
    return 'freed'";

/// A moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Aim {
    /// A release arrives when its lease has ended.
    LateRelease,
    /// COMMITs never arrive.
    CommitsNeverArrive,
    /// A COMMIT arrives so late that others give up waiting for its rows.
    LateCommit,
    /// Locks are freed by force just after they were taken.
    ForceUnlock,
    /// Nobody hears that locks are free.
    DropMessages,
    /// The independent Redis servers answer later than a lease lasts.
    SlowGrants,
    /// A replica stands still past its lease while it holds the lock.
    FreezeAtWork,
    /// A replica is killed while it holds the lock.
    KillAtWork,
    /// As the failover of Redis, but the new master gets a replica again.
    FailOverAndFollow,
    /// Stock is added when everybody knows that nothing is left.
    AddStock,
}

impl Aim {
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
        }
    }

    pub(super) fn does(self) -> &'static str {
        match self {
            Self::LateRelease => "a release arrives when its lease has ended",
            Self::CommitsNeverArrive => "COMMITs never arrive, and their connections end",
            Self::LateCommit => "a COMMIT arrives after others gave up waiting for its rows",
            Self::ForceUnlock => "locks are freed by force just after they were taken",
            Self::DropMessages => "nobody hears that locks are free",
            Self::SlowGrants => "servers answer one replica later than a lease lasts",
            Self::FreezeAtWork => "a replica stands still past its lease while it holds the lock",
            Self::KillAtWork => "a replica is killed while it holds the lock",
            Self::FailOverAndFollow => {
                "Redis fails over to a replica that has not heard of the locks, and which has one \
                 of its own then"
            }
            Self::AddStock => "stock is added when everybody knows that nothing is left",
        }
    }

    pub(super) fn equipment(self) -> Equipment {
        let own_redis = Equipment { own_redis: true, ..Equipment::default() };
        match self {
            Self::LateRelease | Self::DropMessages | Self::SlowGrants => {
                Equipment::way(Link::Redis)
            }
            Self::CommitsNeverArrive | Self::LateCommit | Self::FreezeAtWork | Self::KillAtWork => {
                Equipment::way(Link::Database)
            }
            Self::ForceUnlock => own_redis,
            Self::AddStock => Equipment::default(),
            Self::FailOverAndFollow => {
                Equipment { follower: true, ..own_redis }.and(Equipment::way(Link::Redis))
            }
        }
    }

    pub(super) async fn strike(self, scene: &Scene<'_>) -> Result<String> {
        match self {
            Self::LateRelease => late_release(scene).await,
            Self::CommitsNeverArrive => commits_never_arrive(scene).await,
            Self::LateCommit => late_commit(scene).await,
            Self::ForceUnlock => force_unlock(scene).await,
            Self::DropMessages => drop_messages(scene).await,
            Self::SlowGrants => slow_grants(scene).await,
            // A COMMIT would count that arrives when the lock is another's.
            Self::FreezeAtWork => at_work(scene, stock_write, freeze(scene)).await,
            Self::KillAtWork => at_work(scene, Command::commit, kill(scene)).await,
            Self::FailOverAndFollow => {
                let seen = fail_over(scene).await?;
                Ok(format!("{seen}; {}", follow_the_successor(scene).await?))
            }
            Self::AddStock => stock::add(scene).await,
        }
    }
}

/// All ways of that kind.
fn ways<'a>(scene: &'a Scene<'_>, link: Link) -> impl Iterator<Item = &'a Proxy> + Clone {
    (0..scene.deployment.replicas().len()).flat_map(move |one| scene.deployment.ways(one, link))
}

/// Again and again, since whoever comes in too early must do so while the other has not written.
/// Witness: how many were held, and for how long.
async fn late_release(scene: &Scene<'_>) -> Result<String> {
    let way = scene.deployment.ways(scene.schedule.victim, Link::Redis);
    let arm = |name| {
        way.iter()
            .map(move |way| way.arm(Command::redis(name), Action::HoldRequest, Times::Next(1)))
    };
    let mut took = Vec::new();
    while took.len() < LATE {
        // Whichever of them the lock releases with.
        let rules: Vec<Rule> = arm("DEL").chain(arm("EVALSHA")).collect();
        let began = Instant::now();
        until("a release is held", || rules.iter().any(|rule| rule.fired() > 0)).await?;
        sleep(PAST_THE_LEASE).await;
        rules.iter().for_each(Rule::disarm);
        rules.iter().for_each(Rule::release);
        took.push(began.elapsed().as_millis().to_string());
    }
    Ok(format!("releases took {} ms to arrive", took.join(", ")))
}

/// Witness: how many never arrived.
async fn commits_never_arrive(scene: &Scene<'_>) -> Result<String> {
    let arm = |way: &Proxy| way.arm(Command::commit(), Action::CutRequest, Times::Next(EACH));
    let rules: Vec<Rule> = ways(scene, Link::Database).map(arm).collect();
    let fired = || rules.iter().map(Rule::fired).sum::<u64>();
    until("a COMMIT does not arrive", || fired() > 0).await?;
    sleep(scene.schedule.lasts()).await;
    ways(scene, Link::Database).for_each(Proxy::heal);
    let lost = fired();
    witness(lost > 0, format!("{lost} COMMITs never arrived"))
}

/// Witness: for how long it was held.
async fn late_commit(scene: &Scene<'_>) -> Result<String> {
    let ways = scene.deployment.ways(scene.schedule.victim, Link::Database);
    let arm = |way: &Proxy| way.arm(Command::commit(), Action::HoldRequest, Times::Next(1));
    let rules: Vec<Rule> = ways.iter().map(arm).collect();
    let fired = || rules.iter().map(Rule::fired).sum::<u64>();
    until("a COMMIT is held", || fired() > 0).await?;
    sleep(PAST_THE_ROW_LOCK).await;
    let held = fired();
    ways.iter().for_each(Proxy::heal);
    let ms = PAST_THE_ROW_LOCK.as_millis();
    witness(held > 0, format!("{held} COMMIT was held back for {ms} ms"))
}

/// Holds that statement of the victim, which has the lock then and keeps it, while the fault
/// happens. Witness: the fault's own.
async fn at_work(
    scene: &Scene<'_>,
    statement: fn() -> Command,
    fault: impl Future<Output = Result<String>>,
) -> Result<String> {
    let ways = scene.deployment.ways(scene.schedule.victim, Link::Database);
    let arm = |way: &Proxy| way.arm(statement(), Action::HoldRequest, Times::Next(1));
    let rules: Vec<Rule> = ways.iter().map(arm).collect();
    until("a statement is held", || rules.iter().any(|rule| rule.fired() > 0)).await?;
    let seen = fault.await;
    rules.iter().for_each(Rule::release);
    Ok(format!("{}, with the lock", seen?))
}

/// Witness: how many locks were freed.
async fn force_unlock(scene: &Scene<'_>) -> Result<String> {
    let (redis, number) = (scene.deployment.redis().clone(), scene.deployment.redis_database());
    let (mut freed, mut owner) = (0, String::new());
    let deadline = Instant::now() + super::SEEN_WITHIN;
    while freed < TAKEN_AWAY && Instant::now() < deadline {
        let (redis, number, last) = (redis.clone(), number.to_string(), owner.clone());
        let said = blocking(move || {
            redis.command(&["EVAL", FREE_IF_NEW, "0", &number, "lock:voucher:*", &last])
        });
        let said = said.await?.trim().to_owned();
        if said == "freed" {
            freed += 1;
            // The next owner is only looked at.
            owner = String::new();
        } else if !said.is_empty() {
            owner = said;
        }
        sleep(POLL).await;
    }
    witness(freed > 0, format!("{freed} locks were freed just after they had been taken"))
}

/// Witness: how many messages nobody heard.
async fn drop_messages(scene: &Scene<'_>) -> Result<String> {
    let dropped = || ways(scene, Link::Redis).map(|way| way.counts().messages_dropped).sum::<u64>();
    let before = dropped();
    ways(scene, Link::Redis).for_each(|way| way.drop_messages("lock", Dropping::All));
    sleep(scene.schedule.lasts()).await;
    ways(scene, Link::Redis).for_each(Proxy::heal);
    let dropped = dropped() - before;
    witness(dropped > 0, format!("{dropped} messages that a lock was free were not heard"))
}

/// Witness: answers that the proxies have seen arrive so late.
async fn slow_grants(scene: &Scene<'_>) -> Result<String> {
    // The first is the main one, on which no such lock lives.
    let ways = scene.deployment.ways(scene.schedule.victim, Link::Redis);
    let ways = ways.get(1..).unwrap_or_default();
    let late = || ways.iter().map(|way| way.counts().late_to_client).sum::<u64>();
    for way in ways {
        way.set_latency(Direction::ToClient, SLOW, Duration::ZERO);
    }
    let before = late();
    sleep(scene.schedule.lasts()).await;
    let late = late() - before;
    ways.iter().for_each(Proxy::heal);
    witness(late > 0, format!("{late} answers arrived {SLOW:?} after they had been given"))
}
