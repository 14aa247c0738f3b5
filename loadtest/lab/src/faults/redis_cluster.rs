//! Slots of a Redis Cluster that move from master to master while locks in them are held.

use std::thread::sleep;
use std::time::{Duration, Instant};

use loadtest_measure::error::Result;
use testbed::RedisCluster;

use super::{FaultContext, no_witness, witness};
use crate::cluster::blocking;
use crate::lock::ExtraServers;

/// How long a key may take to be hit while it is in use.
const HIT_WITHIN: Duration = Duration::from_secs(30);
/// A lock is held for some ten milliseconds.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// Whatever a slot has, where no lock lives in Redis.
const ANY_KEY: &str = "*";

/// Witness: slots that moved with a key for which they had been chosen.
pub(super) async fn move_slots(context: &FaultContext<'_>) -> Result<String> {
    let Some(cluster) = context.deployment.redis_cluster().cloned() else {
        return Err(no_witness("its Redis is no cluster".to_owned()));
    };
    let lasts = context.schedule.lasts();
    // Those of `redlock` and `multi` are on servers of their own.
    let is_shared = context.lock.needs() == ExtraServers::Nothing;
    let locks = context.lock.holds_in_redis().filter(|_| is_shared);
    let pattern = locks.unwrap_or(ANY_KEY);
    let (slots, hit) = blocking(move || move_slots_in_use(&cluster, pattern, lasts)).await?;
    let what = if locks.is_some() { "a lock that was held" } else { "a key that was in use" };
    witness(hit > 0, format!("{slots} slots moved to another master, {hit} of them with {what}"))
}

/// Slots that moved, and how many of them had the key for which they were chosen when they moved.
fn move_slots_in_use(
    cluster: &RedisCluster,
    pattern: &str,
    lasts: Duration,
) -> testbed::Result<(usize, usize)> {
    let (began, mut slots, mut hit) = (Instant::now(), 0, 0);
    while began.elapsed() < lasts || hit == 0 && began.elapsed() < HIT_WITHIN {
        let Some((home, key)) = key_in_use(cluster, pattern)? else {
            sleep(LOOK_INTERVAL);
            continue;
        };
        let (slot, to) = (cluster.slot(&key)?, (home + 1) % cluster.masters().len());
        cluster.begin_move(slot, home, to)?;
        let moved = cluster.finish_move(slot, home, to)?;
        slots += 1;
        hit += usize::from(moved.contains(&key));
    }
    Ok((slots, hit))
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
