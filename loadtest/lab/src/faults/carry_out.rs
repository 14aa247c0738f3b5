//! Carries out the actions of a person, each with its witness, and ends what they left.

use std::sync::Arc;
use std::time::Duration;

use loadtest_judge::setting::Guards;
use loadtest_measure::error::{Error, Result};
use testbed::{Action, Command, Proxy, Redis, Replica, Times};

use super::action::{ActionTarget, FaultAction, ProcessState};
use super::frozen_holder::{ContenderAction, HolderFreeze};
use super::held_commit::HeldStatement;
use super::replicas::state_of;
use super::{
    Link, at_commit, failover, late_holder, network, redis, replica_name, wait_until, witness,
};
use crate::cluster::blocking;
use crate::deployment::Deployment;
use crate::lock::Lock;
use crate::predict::Family;

/// How far the clock of Redis jumps: past every lease.
const CLOCK_JUMP_MS: i64 = 60_000;
/// How long a frozen holder stands still at least: past its lease of a second.
const PAST_LEASE: Duration = Duration::from_millis(1300);
/// The links on which actions happen.
const LINKS: [Link; 3] = [Link::Redis, Link::Database, Link::Zookeeper];

/// What the replicas of a deployment do, as far as actions depend on it.
#[derive(Debug, Clone, Copy)]
pub struct ActionContext<'a> {
    /// The deployment.
    pub deployment: &'a Deployment,
    /// The lock of its replicas.
    pub lock: Lock,
    /// Whether the database guards the sale.
    pub guards: Guards,
    /// Whether holders show fencing tokens.
    pub fenced: bool,
}

impl ActionContext<'_> {
    /// The state of what the action happens to, and its name; `None` if there is no such replica.
    pub fn target(&self, action: FaultAction, index: usize) -> Option<(String, ProcessState)> {
        match action.target() {
            ActionTarget::Replica => {
                let replica = self.deployment.replicas().get(index)?;
                Some((replica_name(index), ProcessState::of(replica)))
            }
            ActionTarget::Redis => {
                // A failover is that of the main Redis, whatever the lock lives on.
                let redis = match action {
                    FaultAction::FailOverRedis => self.deployment.main_redis(),
                    _ => self.deployment.redis(),
                };
                Some(("Redis".to_owned(), ProcessState::of(redis)))
            }
        }
    }

    /// Carries it out, on the replica of that index if it is of one; what was seen of it. An action
    /// that the state of its target does not allow is a usage error.
    pub async fn carry_out(&self, action: FaultAction, index: usize) -> Result<String> {
        let name = replica_name(index);
        let target = self.target(action, index);
        let (target, state) =
            target.ok_or_else(|| Error::Usage(format!("there is no replica {name}")))?;
        if !action.is_allowed(state) {
            let (state, action) = (state.name(), action.name());
            return Err(Error::Usage(format!("{target} is {state}: it cannot {action}")));
        }
        let proxies = |link| self.deployment.proxies(index, link);
        match action {
            FaultAction::Fail(fault, link) => network::begin(proxies(link), fault).await,
            FaultAction::Heal(link) => {
                proxies(link).iter().for_each(Proxy::heal);
                let text = "connections are accepted, and all is passed on at once";
                witness(!proxies(link).is_empty(), text.to_owned())
            }
            FaultAction::LoseCommit => lose_commit(proxies(Link::Database)).await,
            FaultAction::FreezeHolder => self.freeze_holder(index).await,
            FaultAction::StandStill => {
                let victim = (self.deployment, index);
                late_holder::stand_still_until(victim, PAST_LEASE, self.commit()).await
            }
            FaultAction::FlushAtCommit => self.flush_at_commit(index).await,
            FaultAction::FailOverRedis => failover::fail_over(self.deployment, self.lock).await,
            _ if action.is_of_replica() => {
                // There is one: its state has been read.
                let replica = self.deployment.replicas()[index].clone();
                on_replica(action, replica, &name).await
            }
            _ => self.on_redis(action, self.deployment.redis().clone()).await,
        }
    }

    /// The COMMIT of an order, as the lane writes it.
    fn commit(&self) -> HeldStatement {
        match self.guards {
            Guards::On => HeldStatement::AnyCommit,
            Guards::Off => HeldStatement::UnguardedCommit,
        }
    }

    /// The next purchase of the replica that is about to commit, or to show its token.
    async fn freeze_holder(&self, index: usize) -> Result<String> {
        let (statement, shown) = match (self.fenced, self.guards) {
            (true, _) => (HeldStatement::Token, ContenderAction::ComeToTheFence),
            (_, Guards::On) => (self.commit(), ContenderAction::Wait),
            _ => (self.commit(), ContenderAction::Write),
        };
        let has_others = self.deployment.replicas().len() > 1;
        let lapses = self.lock.is_distributed() && self.lock.family() != Family::Transaction;
        let expected = if lapses && has_others { shown } else { ContenderAction::Wait };
        let freeze = HolderFreeze { statement, at_least: PAST_LEASE, expected };
        freeze.of_replica(self.deployment, index).await
    }

    async fn flush_at_commit(&self, index: usize) -> Result<String> {
        let victim = (self.deployment, index);
        let (locks, text) = at_commit::flush_amid(victim, self.lock, self.commit()).await?;
        witness(locks > 0 || self.lock.holds_in_redis().is_none(), text)
    }

    async fn on_redis(&self, action: FaultAction, redis: Arc<Redis>) -> Result<String> {
        let (database, lock, target) = (self.deployment.redis_database(), self.lock, redis.clone());
        match action {
            FaultAction::FlushRedis => {
                let flushed = blocking(move || redis::flush_once(&redis, database, lock)).await?;
                let (keys, locks) = flushed;
                return Ok(format!("FLUSHALL removed {keys} keys, {locks} of them locks"));
            }
            FaultAction::JumpClock => return set_clock(redis, CLOCK_JUMP_MS).await,
            FaultAction::RestoreClock => return set_clock(redis, 0).await,
            FaultAction::FreezeRedis => blocking(move || target.freeze()).await?,
            _ => blocking(move || target.thaw()).await?,
        }
        let state = state_of(redis.pid());
        let is_frozen = action == FaultAction::FreezeRedis;
        witness((state == 'T') == is_frozen, format!("Redis is in state {state}"))
    }
}

async fn on_replica(action: FaultAction, replica: Arc<Replica>, name: &str) -> Result<String> {
    let (before, target) = (replica.pid(), replica.clone());
    blocking(move || match action {
        FaultAction::Freeze => target.freeze(),
        FaultAction::Thaw => target.thaw(),
        FaultAction::Kill => target.kill(),
        _ => target.restart(),
    })
    .await?;
    let (after, state) = (replica.pid(), state_of(replica.pid()));
    match action {
        FaultAction::Freeze => witness(state == 'T', format!("{name} is in state {state}")),
        FaultAction::Thaw => witness(state != 'T', format!("{name} is in state {state}")),
        FaultAction::Kill => {
            witness(!replica.is_running(), format!("{name}, process {before}, has ended"))
        }
        _ => witness(before != after, format!("{name} was process {before} and is {after}")),
    }
}

/// The next COMMIT on these links is executed, and its connection closed instead of an answer.
async fn lose_commit(proxies: &[Proxy]) -> Result<String> {
    let arm = |proxy: &Proxy| proxy.arm(Command::commit(), Action::CutAnswer, Times::Next(1));
    let rules: Vec<_> = proxies.iter().map(arm).collect();
    let fired = || rules.iter().map(testbed::Rule::fired).sum::<u64>();
    let seen = wait_until("an answer to COMMIT is lost", || fired() > 0).await;
    rules.iter().for_each(testbed::Rule::disarm);
    seen?;
    Ok("a COMMIT was executed, and its connection closed instead of an answer".to_owned())
}

/// Sets the clock of Redis so far ahead. Witness: what the server says the time is.
async fn set_clock(redis: Arc<Redis>, offset_ms: i64) -> Result<String> {
    let ahead = blocking(move || {
        redis.jump_clock(offset_ms)?;
        redis::ahead_us(&redis)
    })
    .await?;
    let (least, most) = (ahead.start() / 1000, ahead.end() / 1000);
    let near = offset_ms - 1..=offset_ms + 1;
    let is_set = *near.start() <= most && least <= *near.end();
    witness(is_set, format!("its clock is {least} to {most} ms ahead"))
}

/// Ends every fault that an action has left: which processes that continued or were started again,
/// by action and index of the replica. Healing what is sound changes nothing.
pub async fn heal_all(context: &ActionContext<'_>) -> Result<Vec<(FaultAction, usize)>> {
    let deployment = context.deployment;
    // A replica that is started again needs its links, and Redis.
    let indexes = 0..deployment.replicas().len();
    let links = indexes.flat_map(|index| LINKS.map(|link| deployment.proxies(index, link)));
    links.flatten().for_each(Proxy::heal);
    let redis = deployment.redis();
    // It fails only where there is no such clock.
    let _ = redis.jump_clock(0);
    let (mut healed, mut failed) = (Vec::new(), None);
    let states = deployment.replicas().iter().map(|replica| ProcessState::of(replica));
    let replicas = states.enumerate().filter_map(|(index, state)| match state {
        ProcessState::Running => None,
        ProcessState::Frozen => Some((FaultAction::Thaw, index)),
        ProcessState::Down => Some((FaultAction::Restart, index)),
    });
    let frozen =
        (ProcessState::of(redis) == ProcessState::Frozen).then_some((FaultAction::ThawRedis, 0));
    for (action, index) in frozen.into_iter().chain(replicas) {
        // The others are healed all the same.
        match context.carry_out(action, index).await {
            Ok(_witness) => healed.push((action, index)),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(healed), Err)
}
