//! A Redis that runs and does not work: it delays writes, or refuses them.

use std::thread;
use std::time::{Duration, Instant};

use loadtest_measure::error::{Error, Result};
use testbed::Redis;
use tokio::time::sleep;

use super::redis::refused;
use super::{FaultContext, POLL_INTERVAL, WITNESS_TIMEOUT, witness};
use crate::cell_axes::PurchaseMode;
use crate::cluster::blocking;

/// Counts for at least ten seconds unless it is killed, and writes nothing.
const BUSY_SCRIPT: &str = "for i = 1, 5e9 do end";
/// When a script is so old, in milliseconds, Redis says that it is busy instead of nothing.
const BUSY_THRESHOLD_MS: &str = "50";
/// The busy threshold of a server with default settings.
const DEFAULT_BUSY_THRESHOLD_MS: &str = "5000";
/// A write of our own, which shows whether those of others succeed.
const PROBE_WRITE: [&str; 5] = ["SET", "fault-witness", "1", "PX", "1000"];

/// What it answers to writes while it cannot write its append-only file.
const MISCONF: &str = "MISCONF";

/// Writes wait, and so do scripts. Witness: how long one of ours did.
pub(super) async fn pause(context: &FaultContext<'_>) -> Result<String> {
    let (redis, lasts) = (context.deployment.redis().clone(), context.schedule.lasts());
    let waited = blocking(move || {
        redis.command(&["CLIENT", "PAUSE", &lasts.as_millis().to_string(), "WRITE"])?;
        let began = Instant::now();
        redis.command(&PROBE_WRITE)?;
        Ok(began.elapsed())
    })
    .await?;
    let text = format!("a write waited for {} ms", waited.as_millis());
    // Ours begins a little later than the pause, whose end Redis sees by its own clock.
    witness(waited + Duration::from_millis(100) >= lasts, text)
}

/// A script that does not end until it is killed. Witness: how many commands were answered with
/// BUSY, and that there was a script to be killed.
pub(super) async fn keep_busy(context: &FaultContext<'_>) -> Result<String> {
    let redis = context.deployment.redis().clone();
    let prepared = redis.clone();
    let before = blocking(move || {
        set(&prepared, "busy-reply-threshold", BUSY_THRESHOLD_MS)?;
        refused(&prepared, "BUSY")
    })
    .await?;
    let script = tokio::task::spawn_blocking({
        let redis = redis.clone();
        move || redis.command(&["EVAL", BUSY_SCRIPT, "0"])
    });
    sleep(context.schedule.lasts()).await;
    let killed = redis.clone();
    blocking(move || killed.command(&["SCRIPT", "KILL"])).await?;
    let said = script.await.map_err(|error| Error::Setup(error.to_string()))?;
    let times = blocking(move || {
        set(&redis, "busy-reply-threshold", DEFAULT_BUSY_THRESHOLD_MS)?;
        refused(&redis, "BUSY")
    })
    .await?;
    let times = times.saturating_sub(before);
    let text = format!("{times} commands were answered with BUSY until the script was killed");
    witness(times > 0 && said.is_err(), text)
}

/// Redis wants a replica to write to, and has none.
pub(super) async fn want_replicas(context: &FaultContext<'_>) -> Result<String> {
    refuse_writes(context, ("min-replicas-to-write", ["1", "0"]), "NOREPLICAS").await
}

/// Redis uses more memory than it may, and evicts nothing: its policy is `noeviction`.
pub(super) async fn want_memory(context: &FaultContext<'_>) -> Result<String> {
    refuse_writes(context, ("maxmemory", ["1", "0"]), "OOM").await
}

/// Redis refuses writes with that error while a setting has the first of two values. Witness: how
/// many it refused, the probe's own and, where the lock or the queue lives there, others.
async fn refuse_writes(
    context: &FaultContext<'_>,
    (setting, [refusing, usual]): (&'static str, [&'static str; 2]),
    error: &'static str,
) -> Result<String> {
    let redis = context.deployment.redis().clone();
    let target = redis.clone();
    let (before, ours) = blocking(move || {
        let before = refused(&target, error)?;
        set(&target, setting, refusing)?;
        Ok((before, target.command(&PROBE_WRITE)))
    })
    .await?;
    sleep(context.schedule.lasts()).await;
    let times = blocking(move || {
        set(&redis, setting, usual)?;
        refused(&redis, error)
    })
    .await?;
    let times = times.saturating_sub(before);
    let text = format!("{times} writes were refused with {error}, one of them ours");
    witness(ours.is_err() && times > u64::from(lives_in_redis(context)), text)
}

/// No file of Redis gets another block, and its append-only file cannot grow. Witness: how many
/// writes to it failed, how many commands were refused for that, and that Redis took a write again
/// by itself once there was space.
pub(super) async fn fill_disk(context: &FaultContext<'_>) -> Result<String> {
    let (redis, lasts) = (context.deployment.redis().clone(), context.schedule.lasts());
    let lives_there = lives_in_redis(context);
    let (happened, text) = blocking(move || {
        let before = refused_but_pings(&redis)?;
        redis.fill_disk(true)?;
        let began = Instant::now();
        let (_, ours) = await_probe(&redis, false);
        thread::sleep(lasts.saturating_sub(began.elapsed()));
        let times = refused_but_pings(&redis);
        redis.fill_disk(false)?;
        let healed = Instant::now();
        let (is_served, _) = await_probe(&redis, true);
        let times = times?.saturating_sub(before);
        let (failed, took) = (redis.writes_without_space()?, healed.elapsed().as_millis());
        let text = format!(
            "{failed} writes to its file failed, {times} commands were refused with {MISCONF}, \
             {ours} of them ours; it took a write again {took} ms after there was space"
        );
        let others = times.saturating_sub(ours);
        Ok((is_served && failed > 0 && ours > 0 && (others > 0 || !lives_there), text))
    })
    .await?;
    witness(happened, text)
}

/// How many commands it has refused with that error. PING is one of them, and each replica of the
/// service sends it all the time: it is left out.
fn refused_but_pings(redis: &Redis) -> testbed::Result<u64> {
    let statistics = redis.command(&["INFO", "commandstats"])?;
    let line = statistics.lines().find(|line| line.starts_with("cmdstat_ping:"));
    let rejected = line.and_then(|line| line.split("rejected_calls=").nth(1));
    let rejected = rejected.and_then(|rest| rest.split(',').next()?.trim().parse().ok());
    Ok(refused(redis, MISCONF)?.saturating_sub(rejected.unwrap_or(0)))
}

/// Writes until a write is served or refused as told: whether that was in time, and how many were
/// refused.
fn await_probe(redis: &Redis, is_served: bool) -> (bool, u64) {
    let (began, mut ours) = (Instant::now(), 0);
    while began.elapsed() < WITNESS_TIMEOUT {
        let probe = redis.command(&PROBE_WRITE);
        ours += u64::from(probe.is_err());
        if probe.is_ok() == is_served {
            return (true, ours);
        }
        thread::sleep(POLL_INTERVAL);
    }
    (false, ours)
}

/// Whether a purchase writes its lock, or its place in the queue, to Redis.
fn lives_in_redis(context: &FaultContext<'_>) -> bool {
    context.lock.holds_in_redis().is_some() || context.mode == PurchaseMode::Queued
}

fn set(redis: &Redis, name: &str, value: &str) -> testbed::Result<()> {
    redis.command(&["CONFIG", "SET", name, value]).map(drop)
}
