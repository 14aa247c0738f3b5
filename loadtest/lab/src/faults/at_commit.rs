//! A holder loses its lock while its COMMIT is on the way: it cannot stop any more, and only what
//! the lock's servers do keeps the next holder out.
//!
//! The COMMIT arrives when another purchase has written, or after a bounded time.

use std::time::Duration;

use loadtest_judge::audit::LOCK_RENEWALS;
use loadtest_measure::error::Result;
use testbed::{Action, Command, Proxy, Rule, Times};

use super::held_commit::{HeldCommit, HeldStatement, OtherPurchases};
use super::{FaultContext, Link, no_witness, redis, wait_until, witness};
use crate::cluster::blocking;
use crate::deployment::Deployment;
use crate::lock::Lock;

/// Longest time for another purchase to take the lock and write: waiters look again after a second.
/// Shorter than what is left of a lease in such cells.
const NEXT_WRITE_TIMEOUT: Duration = Duration::from_millis(2500);

/// All keys of the lock's Redis are removed meanwhile. Witness: that locks were among them, and
/// what others wrote.
pub(super) async fn flush(context: &FaultContext<'_>) -> Result<String> {
    let (deployment, victim) = (context.deployment, context.schedule.victim);
    let (locks, text) =
        flush_amid((deployment, victim), context.lock, HeldStatement::UnguardedCommit).await?;
    witness(locks > 0, text)
}

/// Removes all keys of the lock's Redis while such a statement of that replica is on the way: how
/// many locks were among them, and what was seen.
pub(super) async fn flush_amid(
    (deployment, victim): (&Deployment, usize),
    lock: Lock,
    statement: HeldStatement,
) -> Result<(u64, String)> {
    let held = HeldCommit::of_statement(deployment, victim, statement).await?;
    let (redis, number) = (deployment.redis().clone(), deployment.redis_database());
    let next = OtherPurchases::watch(deployment);
    let flushed = blocking(move || redis::flush_once(&redis, number, lock)).await;
    let others = held.arrive_after(&next, NEXT_WRITE_TIMEOUT).await?;
    let (keys, locks) = flushed?;
    Ok((locks, format!("FLUSHALL removed {keys} keys, {locks} of them locks; {others}")))
}

/// The connection is cut by which the victim keeps its lock. Witness: that it was, and what others
/// wrote.
pub(super) async fn cut(context: &FaultContext<'_>) -> Result<String> {
    let (fired, others, _) = cut_renewals(context, Times::Next(1)).await?;
    witness(fired > 0, format!("{fired} connection that kept the lock alive was cut; {others}"))
}

/// No renewal of the victim arrives until its lease has ended. Witness: how many were lost, and
/// that another purchase got the lock.
pub(super) async fn lose_renewals(context: &FaultContext<'_>) -> Result<String> {
    let (fired, others, got_lock) = cut_renewals(context, Times::Always).await?;
    witness(fired > 0 && got_lock, format!("{fired} renewals never arrived; {others}"))
}

/// The victim cannot reach `ZooKeeper` until its session has expired. Witness: connections that
/// were cut, and that another purchase got the lock.
pub(super) async fn expire_session(context: &FaultContext<'_>) -> Result<String> {
    let held = HeldCommit::of_order(context).await?;
    let proxies = context.deployment.proxies(context.schedule.victim, Link::Zookeeper);
    let cut = || proxies.iter().map(|proxy| proxy.counts().cut).sum::<u64>();
    let (before, next) = (cut(), OtherPurchases::watch(context.deployment));
    proxies.iter().for_each(Proxy::start_outage);
    let others = held.arrive_after(&next, NEXT_WRITE_TIMEOUT).await;
    proxies.iter().for_each(Proxy::heal);
    let (cut, others) = (cut() - before, others?);
    let text = format!("{cut} connections to ZooKeeper were cut; {others}");
    witness(cut > 0 && next.got_lock(), text)
}

/// Cuts statements that keep the victim's lock alive, amid its COMMIT: how many, what others did,
/// and whether one got the lock.
async fn cut_renewals(context: &FaultContext<'_>, times: Times) -> Result<(u64, String, bool)> {
    let held = HeldCommit::of_order(context).await?;
    let proxies = context.deployment.proxies(context.schedule.victim, Link::Database);
    let Some(proxy) = proxies.first() else {
        return Err(no_witness("there is no way that could be cut".to_owned()));
    };
    let next = OtherPurchases::watch(context.deployment);
    let arm = |start| proxy.arm(Command::sql(start), Action::CutRequest, times);
    let cuts: Vec<Rule> = LOCK_RENEWALS.into_iter().map(arm).collect();
    let fired = || cuts.iter().map(Rule::fired).sum::<u64>();
    wait_until("the lock is kept alive", || fired() > 0).await?;
    let others = held.arrive_after(&next, NEXT_WRITE_TIMEOUT).await?;
    cuts.iter().for_each(Rule::disarm);
    Ok((fired(), others, next.got_lock()))
}
