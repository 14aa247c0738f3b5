//! A Redis that runs and does not work: it delays writes, or refuses them.

use std::time::{Duration, Instant};

use loadtest_measure::error::{Error, Result};
use testbed::Redis;
use tokio::time::sleep;

use super::redis::refused;
use super::{FaultContext, witness};
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
/// What it answers to writes while it wants more replicas.
const NOREPLICAS: &str = "NOREPLICAS";

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

/// Redis wants a replica to write to, and has none. Witness: how many writes it refused, the
/// probe's own and, where the lock or the queue lives there, others.
pub(super) async fn want_replicas(context: &FaultContext<'_>) -> Result<String> {
    let redis = context.deployment.redis().clone();
    let refusing = redis.clone();
    let (before, ours) = blocking(move || {
        let before = refused(&refusing, NOREPLICAS)?;
        set(&refusing, "min-replicas-to-write", "1")?;
        Ok((before, refusing.command(&PROBE_WRITE)))
    })
    .await?;
    sleep(context.schedule.lasts()).await;
    let times = blocking(move || {
        set(&redis, "min-replicas-to-write", "0")?;
        refused(&redis, NOREPLICAS)
    })
    .await?;
    let times = times.saturating_sub(before);
    let lives_there =
        context.lock.holds_in_redis().is_some() || context.mode == PurchaseMode::Queued;
    let text = format!("{times} writes were refused with {NOREPLICAS}, one of them ours");
    witness(ours.is_err() && times > u64::from(lives_there), text)
}

fn set(redis: &Redis, name: &str, value: &str) -> testbed::Result<()> {
    redis.command(&["CONFIG", "SET", name, value]).map(drop)
}
