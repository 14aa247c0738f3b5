//! Slots of a Redis Cluster that move from master to master while locks in them are held.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use loadtest_measure::error::Result;
use testbed::RedisCluster;

use super::{FaultContext, no_witness, witness};
use crate::cluster::blocking;

/// How long a key may take to be hit while it is in use.
const HIT_WITHIN: Duration = Duration::from_secs(30);
/// A lock is held for some ten milliseconds.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Witness: slots that moved with a key for which they had been chosen.
pub(super) async fn move_slots(context: &FaultContext<'_>) -> Result<String> {
    let Some(cluster) = context.deployment.redis_cluster().cloned() else {
        return Err(no_witness("its Redis is no cluster".to_owned()));
    };
    let Some(locks) = context.lock.holds_in_shared_redis() else {
        return Err(no_witness("its locks are elsewhere".to_owned()));
    };
    let lasts = context.schedule.lasts();
    let (slots, hit) = blocking(move || move_slots_in_use(&cluster, locks, lasts)).await?;
    let what = "a lock that was held";
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
