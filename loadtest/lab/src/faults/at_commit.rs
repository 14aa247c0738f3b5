//! A holder loses its lock while its COMMIT is on the way: it cannot stop any more, and only what
//! the lock's servers do keeps the next holder out.
//!
//! The COMMIT arrives when another purchase has written, or after a bounded time.

use std::time::Duration;

use loadtest_judge::audit::LOCK_RENEWALS;
use loadtest_measure::error::Result;
use testbed::{Action, Command, Rule, Times};

use super::held_commit::{HeldCommit, watch_writes};
use super::{FaultContext, Link, redis, unseen, until, witness};
use crate::cluster::blocking;

/// Longest time for another purchase to take the lock and write: waiters look again after a second.
/// Shorter than what is left of a lease in such cells.
const NEXT_WRITE_TIMEOUT: Duration = Duration::from_millis(2500);
/// All keys of the lock's Redis are removed meanwhile. Witness: that locks were among them, and
/// what others wrote.
pub(super) async fn flush(context: &FaultContext<'_>) -> Result<String> {
    let held = HeldCommit::of_order(context).await?;
    let deployment = context.deployment;
    let (redis, number) = (deployment.redis().clone(), deployment.redis_database());
    let lock = context.lock;
    let writes = watch_writes(context);
    let (keys, locks) = blocking(move || redis::flush_once(&redis, number, lock)).await?;
    let others = held.arrive_after_another(&writes, NEXT_WRITE_TIMEOUT).await?;
    let text = format!("FLUSHALL removed {keys} keys, {locks} of them locks; {others}");
    witness(locks > 0, text)
}

/// The connection is cut by which the victim keeps its lock. Witness: how often that happened, and
/// what others wrote.
pub(super) async fn cut(context: &FaultContext<'_>) -> Result<String> {
    let held = HeldCommit::of_order(context).await?;
    let proxies = context.deployment.proxies(context.schedule.victim, Link::Database);
    let Some(proxy) = proxies.first() else {
        return Err(unseen("there is no way that could be cut".to_owned()));
    };
    let writes = watch_writes(context);
    let arm = |start| proxy.arm(Command::sql(start), Action::CutRequest, Times::Next(1));
    let cuts: Vec<Rule> = LOCK_RENEWALS.into_iter().map(arm).collect();
    let fired = || cuts.iter().map(Rule::fired).sum::<u64>();
    until("the lock is kept alive", || fired() > 0).await?;
    let others = held.arrive_after_another(&writes, NEXT_WRITE_TIMEOUT).await?;
    let fired = fired();
    witness(fired > 0, format!("{fired} connection that kept the lock alive was cut; {others}"))
}
