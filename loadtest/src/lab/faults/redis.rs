//! What happens to the Redis that the lock lives on: the only one, or the first of several
//! independent ones.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use testbed::Redis;
use tokio::time::sleep;

use super::replicas::state_of;
use super::{Scene, witness};
use crate::error::Result;
use crate::lab::cluster::blocking;

/// Filled again and again this often.
const FLOODS: u32 = 12;
/// What is left for keys before the oldest are evicted, in bytes.
const ROOM: u64 = 256 * 1024;
/// Writes 64 KiB in keys of 1 KiB each; the keys end by themselves.
const FLOOD: &str = "for i = 1, 64 do \
    redis.call('SET', 'flood:' .. ARGV[1] .. ':' .. i, string.rep('x', 1024), 'PX', 20000) end";

/// Killed and started again without its data. Witness: another run id.
pub(super) async fn restart(scene: &Scene<'_>) -> Result<String> {
    let redis = scene.deployment.redis().clone();
    blocking(move || {
        let before = figure(&redis, "server", "run_id")?;
        redis.restart()?;
        Ok((before, figure(&redis, "server", "run_id")?))
    })
    .await
    .and_then(|(before, after)| {
        let text = format!("run_id {} became {}", short(&before), short(&after));
        witness(before != after && !after.is_empty(), text)
    })
}

/// All keys gone. Witness: how many there were, and that the server has executed it.
pub(super) async fn flush(scene: &Scene<'_>) -> Result<String> {
    let redis = scene.deployment.redis().clone();
    blocking(move || {
        let mut keys = 0;
        // A lock lives for milliseconds: several times, so that one is hit in the middle.
        for _ in 0..5 {
            keys += figure(&redis, "keyspace", "db")?
                .split(['=', ','])
                .nth(1)
                .and_then(|count| count.parse::<u64>().ok())
                .unwrap_or(0);
            redis.command(&["FLUSHALL"])?;
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok((keys, figure(&redis, "commandstats", "cmdstat_flushall")?))
    })
    .await
    .and_then(|(keys, done)| {
        witness(!done.is_empty() && keys > 0, format!("FLUSHALL removed {keys} keys ({done})"))
    })
}

/// All scripts gone. Witness: the server's count of scripts that were called by their hashes and
/// not there.
pub(super) async fn flush_scripts(scene: &Scene<'_>) -> Result<String> {
    let redis = scene.deployment.redis().clone();
    let unknown = |redis: &Arc<Redis>| {
        // `count=3`
        let told = figure(redis, "errorstats", "errorstat_NOSCRIPT")?;
        Ok(told.split('=').nth(1).and_then(|count| count.parse::<u64>().ok()).unwrap_or(0))
    };
    let before = blocking({
        let redis = redis.clone();
        move || unknown(&redis)
    })
    .await?;
    for _ in 0..5 {
        let redis = redis.clone();
        blocking(move || redis.command(&["SCRIPT", "FLUSH"])).await?;
        sleep(scene.schedule.lasts() / 5).await;
    }
    let missed = blocking(move || unknown(&redis)).await?.saturating_sub(before);
    witness(missed > 0, format!("{missed} calls of a script were answered with NOSCRIPT"))
}

/// Keys are evicted, the oldest first. Witness: the server's count of them.
pub(super) async fn evict(scene: &Scene<'_>) -> Result<String> {
    let redis = scene.deployment.redis().clone();
    blocking(move || {
        let before: u64 = figure(&redis, "stats", "evicted_keys")?.parse().unwrap_or(0);
        let used: u64 = figure(&redis, "memory", "used_memory")?.parse().unwrap_or(0);
        let set = |name: &str, value: &str| redis.command(&["CONFIG", "SET", name, value]);
        set("maxmemory-policy", "allkeys-random")?;
        set("maxmemory", &(used + ROOM).to_string())?;
        for number in 0..FLOODS {
            // Refused for a moment while nothing can be evicted.
            let _refused = redis.command(&["EVAL", FLOOD, "0", &number.to_string()]);
            std::thread::sleep(Duration::from_millis(100));
        }
        let after: u64 = figure(&redis, "stats", "evicted_keys")?.parse().unwrap_or(0);
        set("maxmemory", "0")?;
        set("maxmemory-policy", "noeviction")?;
        Ok(after.saturating_sub(before))
    })
    .await
    .and_then(|evicted| witness(evicted > 0, format!("{evicted} keys were evicted")))
}

/// Stopped in its tracks. Witness: its state in /proc.
pub(super) async fn freeze(scene: &Scene<'_>) -> Result<String> {
    let redis = scene.deployment.redis().clone();
    let frozen = redis.clone();
    blocking(move || frozen.freeze()).await?;
    sleep(scene.schedule.lasts()).await;
    let state = state_of(redis.pid());
    blocking(move || redis.thaw()).await?;
    let ms = scene.schedule.lasts_ms;
    witness(state == 'T', format!("Redis was in state {state} for {ms} ms"))
}

/// The clock jumps, and back. Witness: what the server says the time is.
pub(super) async fn jump_clock(scene: &Scene<'_>) -> Result<String> {
    let redis = scene.deployment.redis().clone();
    // Jepsen's range, from a bump to a jump past every lease, in either direction.
    let sizes = [11, 120, 900, 4_500, 60_000, 288_000];
    let choice = usize::try_from(scene.schedule.variation % 12).unwrap_or(0);
    let size = sizes[choice % sizes.len()];
    let offset_ms: i64 = if choice < sizes.len() { size } else { -size };
    let jumped = redis.clone();
    blocking(move || jumped.jump_clock(offset_ms)).await?;
    let seen = blocking({
        let redis = redis.clone();
        move || ahead_ms(&redis)
    })
    .await?;
    sleep(scene.schedule.lasts()).await;
    blocking(move || redis.jump_clock(0)).await?;
    let text = format!("set {offset_ms} ms off, Redis told a time {seen} ms off");
    // The question takes time as well.
    witness((offset_ms - 5..offset_ms + 2000).contains(&seen), text)
}

/// How far the server's clock is ahead of ours.
fn ahead_ms(redis: &Arc<Redis>) -> testbed::Result<i64> {
    let ours = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let told = redis.command(&["TIME"])?;
    let mut parts = told.lines().map(|part| part.trim().parse::<i64>().unwrap_or(0));
    let theirs = parts.next().unwrap_or(0) * 1000 + parts.next().unwrap_or(0) / 1000;
    Ok(theirs - i64::try_from(ours).unwrap_or(0))
}

/// The value of the first line of that section of INFO that begins so.
fn figure(redis: &Arc<Redis>, section: &str, name: &str) -> testbed::Result<String> {
    let told = redis.command(&["INFO", section])?;
    let line = told.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim());
    Ok(value.unwrap_or_default().to_owned())
}

/// Enough of an id to tell two apart.
fn short(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}
