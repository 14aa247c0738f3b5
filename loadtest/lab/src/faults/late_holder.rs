//! A holder whose lease has ended gives back what it takes for its lock. By then the lock is its
//! successor's, whose COMMIT is on the way: if that lock is freed, a third purchase enters, reads
//! the old stock and writes.

use std::time::Duration;

use loadtest_judge::audit::ORDER_INSERT;
use loadtest_measure::error::Result;
use testbed::{Action, Command, Proxy, Rule, Times};
use tokio::time::{Instant, sleep};

use super::held_commit::{HeldCommit, HeldStatement, OtherPurchases};
use super::replicas::stands_still;
use super::{FaultContext, Link, no_witness, replica_name, wait_until};
use crate::cluster::blocking;
use crate::deployment::Deployment;

/// Longest time for a third purchase to take the lock and write; waiters poll every 16 ms. Far
/// shorter than the successor's lease: that must not end meanwhile.
const THIRD_WRITE_TIMEOUT: Duration = Duration::from_millis(400);
/// Longer than the lease in such cells (800 ms), and less than a second, after which the replica
/// gives up a connection that is silent.
const HOLD_PAST_LEASE: Duration = Duration::from_millis(850);

/// The victim stands still past its lease before it writes; then it looks, stops and gives back its
/// lock. Witness: its state in /proc, and what others wrote.
pub(super) async fn stand_still(context: &FaultContext<'_>) -> Result<String> {
    let (victim, lasts) = (context.schedule.victim, context.schedule.lasts());
    let statement = HeldStatement::UnguardedCommit;
    stand_still_until((context.deployment, victim), lasts, statement).await
}

/// [`stand_still`] of that replica, for that time. The statement of its successor is held.
pub(super) async fn stand_still_until(
    (deployment, victim): (&Deployment, usize),
    lasts: Duration,
    statement: HeldStatement,
) -> Result<String> {
    let name = replica_name(victim);
    let replica = deployment.replicas().get(victim).cloned();
    let replica = replica.ok_or_else(|| no_witness(format!("there is no replica {name}")))?;
    let [start, part] = ORDER_INSERT;
    let insert = || vec![Command::sql(start).containing(part)];
    let rules = arm(deployment.proxies(victim, Link::Database), insert);
    let held = wait_until("an order is held", || rules.iter().any(|rule| rule.fired() > 0)).await;
    // One that comes later passes.
    held.inspect_err(|_| rules.iter().for_each(Rule::disarm))?;
    let frozen = replica.clone();
    blocking(move || frozen.freeze()).await?;
    let seen = stands_still(&name, replica.pid(), lasts).await;
    let next = (victim + 1) % deployment.replicas().len();
    let successor = HeldCommit::of_statement(deployment, next, statement).await;
    let third = OtherPurchases::watch(deployment);
    blocking(move || replica.thaw()).await?;
    rules.iter().for_each(Rule::release);
    let (seen, successor) = (seen?, successor?);
    let others = successor.arrive_after(&third, THIRD_WRITE_TIMEOUT).await?;
    Ok(format!("{seen}, with the lock; when it went on, {others}"))
}

/// The last command of a release arrives when the lease has ended. Witness: when it arrived, and
/// what others wrote.
pub(super) async fn release_late(context: &FaultContext<'_>) -> Result<String> {
    // Whichever of them the lock releases with.
    let commands = || ["DEL", "EVALSHA"].map(Command::redis).into();
    let (deployment, victim) = (context.deployment, context.schedule.victim);
    let rules = arm(deployment.proxies(victim, Link::Redis), commands);
    wait_until("a release is held", || rules.iter().any(|rule| rule.fired() > 0)).await?;
    let began = Instant::now();
    rules.iter().for_each(Rule::disarm);
    sleep(HOLD_PAST_LEASE).await;
    let next = (victim + 1) % deployment.replicas().len();
    let successor = HeldCommit::of_replica(deployment, next).await;
    let third = OtherPurchases::watch(deployment);
    let late = began.elapsed();
    rules.iter().for_each(Rule::release);
    let others = successor?.arrive_after(&third, THIRD_WRITE_TIMEOUT).await?;
    Ok(format!("a release arrived after {} ms; {others}", late.as_millis()))
}

/// Holds the next one of these commands on each way of the victim.
fn arm(proxies: &[Proxy], commands: impl Fn() -> Vec<Command>) -> Vec<Rule> {
    let hold = |proxy: &Proxy, command| proxy.arm(command, Action::HoldRequest, Times::Next(1));
    let each = proxies.iter();
    each.flat_map(|proxy| commands().into_iter().map(|command| hold(proxy, command))).collect()
}
