//! Faults of a Redis Cluster: slots move from master to master while their keys are in use, and a
//! master is lost.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use loadtest_measure::error::Result;
use testbed::RedisCluster;

use super::{FaultContext, no_witness, witness};
use crate::cell_axes::PurchaseMode;
use crate::cluster::blocking;

/// The key that a queue has as long as its sale. All of a voucher are in one slot.
const QUEUES: &str = "{v:*}:sale";
/// How long a key may take to be hit while it is in use.
const HIT_WITHIN: Duration = Duration::from_secs(30);
/// A lock is held for some ten milliseconds.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Witness: slots that moved with a key for which they had been chosen.
pub(super) async fn move_slots(context: &FaultContext<'_>) -> Result<String> {
    let Some(cluster) = context.deployment.redis_cluster().cloned() else {
        return Err(no_witness("its Redis is no cluster".to_owned()));
    };
    let (keys, what) = match (context.mode, context.lock.holds_in_shared_redis()) {
        (PurchaseMode::Queued, _) => (QUEUES, "a queue that was in use"),
        (PurchaseMode::Direct, Some(locks)) => (locks, "a lock that was held"),
        (PurchaseMode::Direct, None) => {
            return Err(no_witness("its locks are elsewhere".to_owned()));
        }
    };
    let lasts = context.schedule.lasts();
    let (slots, hit) = blocking(move || move_slots_in_use(&cluster, keys, lasts)).await?;
    witness(hit > 0, format!("{slots} slots moved to another master, {hit} of them with {what}"))
}

/// Slots that moved, and how many of them had the key for which they were chosen when they moved.
fn move_slots_in_use(
    cluster: &RedisCluster,
    pattern: &str,
    lasts: Duration,
) -> testbed::Result<(usize, usize)> {
    // Each slot moves once: of one that moved on before all nodes know its owner, some would send
    // clients to the former one.
    let (began, mut slots, mut hit) = (Instant::now(), BTreeSet::new(), 0);
    while began.elapsed() < lasts || hit == 0 && began.elapsed() < HIT_WITHIN {
        sleep(LOOK_INTERVAL);
        let Some((home, key)) = key_in_use(cluster, pattern)? else { continue };
        let (slot, to) = (cluster.slot(&key)?, (home + 1) % cluster.masters().len());
        if !slots.insert(slot) {
            continue;
        }
        cluster.begin_move(slot, home, to)?;
        let moved = cluster.finish_move(slot, home, to)?;
        hit += usize::from(moved.contains(&key));
    }
    Ok((slots.len(), hit))
}

/// A key of that pattern, and the master that has it.
fn key_in_use(cluster: &RedisCluster, pattern: &str) -> testbed::Result<Option<(usize, String)>> {
    for (home, master) in cluster.masters().iter().enumerate() {
        let keys = master.command(&["KEYS", pattern])?;
        if let Some(key) = keys.lines().find(|key| !key.is_empty()) {
            return Ok(Some((home, key.to_owned())));
        }
    }
    Ok(None)
}

/// A master is killed or frozen, and returns once its replica is the master. Witness: the roles of
/// both.
pub(super) async fn lose_a_master(context: &FaultContext<'_>) -> Result<String> {
    let Some(cluster) = context.deployment.redis_cluster().cloned() else {
        return Err(no_witness("its Redis is no cluster".to_owned()));
    };
    let (lasts, variation) = (context.schedule.lasts(), context.schedule.variation);
    let kills = variation.is_multiple_of(2);
    let at = usize::try_from(variation / 2).unwrap_or(0) % cluster.masters().len();
    let (promoted, follows, text) = blocking(move || {
        let Some(replica) = cluster.replicas().get(at) else {
            return Ok((false, false, "its masters have no replicas".to_owned()));
        };
        let (master, began) = (&cluster.masters()[at], Instant::now());
        if kills { master.kill() } else { master.freeze() }?;
        let promoted = replica.takes_role("master");
        let took = began.elapsed();
        sleep(lasts.saturating_sub(took));
        // Also if no other has replaced it.
        if kills { master.restart() } else { master.thaw() }?;
        let follows = promoted && master.takes_role("slave");
        let (how, old) = (if kills { "killed" } else { "frozen" }, master.name());
        let (new, took) = (replica.name(), took.as_millis());
        let text = if promoted {
            let then = if follows { "follows it" } else { "does not follow it" };
            format!("{old} was {how}; after {took} ms {new} was the master, and {old} {then}")
        } else {
            format!("{old} was {how}, and {new} was not the master after {took} ms")
        };
        Ok((promoted, follows, text))
    })
    .await?;
    witness(promoted && follows, text)
}
