//! Faults of the Redis that the lock lives on: the only one, or the first of several independent
//! ones.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use loadtest_measure::error::Result;
use testbed::{Evictions, Redis};
use tokio::time::sleep;

use super::replicas::stands_still;
use super::{FaultContext, WITNESS_TIMEOUT, witness};
use crate::cluster::blocking;
use crate::lock::Lock;

/// How often it is filled at least, and what lies between.
const MIN_FLOODS: u32 = 12;
const FLOOD_PAUSE: Duration = Duration::from_millis(100);
/// What is left for keys before some are evicted, in bytes.
const FREE_MEMORY_BYTES: u64 = 256 * 1024;
/// How many keys it looks at for the one that ends soonest: enough to find a lock among the others.
const EVICTION_SAMPLES: &str = "64";
/// Writes 64 KiB in keys of 1 KiB each; the keys expire.
const FLOOD_SCRIPT: &str = "for i = 1, 64 do \
    redis.call('SET', 'flood:' .. ARGV[1] .. ':' .. i, string.rep('x', 1024), 'PX', 20000) end";

/// Forgets everything, and says how many keys that were, and how many of them locks. ARGV: logical
/// database, what locks are called.
const FLUSH_SCRIPT: &str = "redis.call('select', ARGV[1]) \
    local said = redis.call('DBSIZE') .. ' ' .. #redis.call('KEYS', ARGV[2]) \
    redis.call('FLUSHALL') \
    return said";
/// What no key is called.
const NO_KEY_PATTERN: &str = "";
/// How often everything is forgotten at least, and what lies between.
const MIN_FLUSHES: u32 = 5;
const FLUSH_PAUSE: Duration = Duration::from_millis(100);
/// How often the time of a server is asked for: the quickest answer says most.
const CLOCK_READINGS: u32 = 5;
/// Clocks are set by the millisecond.
const CLOCK_STEP_US: i64 = 1000;

/// Killed and started again without its data. Witness: another run id.
pub(super) async fn restart(context: &FaultContext<'_>) -> Result<String> {
    let redis = context.deployment.redis().clone();
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

/// Deletes all keys, several times: a lock lives for milliseconds, and one must be hit in the
/// middle. Witness: how many there were at the moment they were removed, and how many of them
/// locks. Locks of kinds that live elsewhere are none of them.
pub(super) async fn flush(context: &FaultContext<'_>) -> Result<String> {
    let (redis, number) = (context.deployment.redis().clone(), context.deployment.redis_database());
    let lock = context.lock;
    let has_locks = lock.holds_in_redis().is_some();
    let (keys, locks) = blocking(move || {
        let (mut keys, mut locks, mut flushes) = (0, 0, 0);
        let deadline = Instant::now() + WITNESS_TIMEOUT;
        while flushes < MIN_FLUSHES || (has_locks && locks == 0 && Instant::now() < deadline) {
            let removed = flush_once(&redis, number, lock)?;
            keys += removed.0;
            locks += removed.1;
            flushes += 1;
            std::thread::sleep(FLUSH_PAUSE);
        }
        Ok((keys, locks))
    })
    .await?;
    let text = format!("FLUSHALL removed {keys} keys, {locks} of them locks");
    witness(if has_locks { locks > 0 } else { keys > 0 }, text)
}

/// Removes all keys once: how many there were, and how many of them locks.
pub(super) fn flush_once(redis: &Redis, database: u16, lock: Lock) -> testbed::Result<(u64, u64)> {
    let (database, pattern) = (database.to_string(), lock.holds_in_redis());
    let pattern = pattern.unwrap_or(NO_KEY_PATTERN);
    let said = redis.command(&["EVAL", FLUSH_SCRIPT, "0", &database, pattern])?;
    let mut said = said.split_whitespace().map(|count| count.parse().unwrap_or(0));
    Ok((said.next().unwrap_or(0), said.next().unwrap_or(0)))
}

/// Deletes all scripts. Witness: the server's count of scripts that were called by their hashes and
/// not there.
pub(super) async fn flush_scripts(context: &FaultContext<'_>) -> Result<String> {
    let redis = context.deployment.redis().clone();
    let before = blocking({
        let redis = redis.clone();
        move || refused(&redis, "NOSCRIPT")
    })
    .await?;
    for _ in 0..5 {
        let redis = redis.clone();
        blocking(move || redis.command(&["SCRIPT", "FLUSH"])).await?;
        sleep(context.schedule.lasts() / 5).await;
    }
    let missed = blocking(move || refused(&redis, "NOSCRIPT")).await?.saturating_sub(before);
    witness(missed > 0, format!("{missed} calls of a script were answered with NOSCRIPT"))
}

/// Keys are evicted: first any, then those that end soonest, which are locks. Witness: the names
/// that the server reports, and how many of them are locks. Locks of kinds that live elsewhere are
/// none of them.
pub(super) async fn evict(context: &FaultContext<'_>) -> Result<String> {
    let (redis, number) = (context.deployment.redis().clone(), context.deployment.redis_database());
    let prefix = context.lock.holds_in_redis().map(|pattern| pattern.trim_end_matches('*'));
    let (keys, locks) = blocking(move || {
        let mut evictions = Evictions::of(&redis, number)?;
        let used: u64 = figure(&redis, "memory", "used_memory")?.parse().unwrap_or(0);
        let set = |name: &str, value: &str| redis.command(&["CONFIG", "SET", name, value]);
        set("maxmemory-policy", "allkeys-random")?;
        set("maxmemory", &(used + FREE_MEMORY_BYTES).to_string())?;
        let (mut keys, mut locks, mut floods) = (0, 0, 0);
        let deadline = Instant::now() + WITNESS_TIMEOUT;
        while floods < MIN_FLOODS || (prefix.is_some() && locks == 0 && Instant::now() < deadline) {
            if floods == MIN_FLOODS {
                set("maxmemory-samples", EVICTION_SAMPLES)?;
                set("maxmemory-policy", "volatile-ttl")?;
            }
            // Refused for a moment while nothing can be evicted.
            let _refused = redis.command(&["EVAL", FLOOD_SCRIPT, "0", &floods.to_string()]);
            std::thread::sleep(FLOOD_PAUSE);
            let names = evictions.since_last()?;
            let is_lock = |name: &&String| prefix.is_some_and(|prefix| name.starts_with(prefix));
            locks += names.iter().filter(is_lock).count();
            keys += names.len();
            floods += 1;
        }
        set("maxmemory", "0")?;
        set("maxmemory-policy", "noeviction")?;
        set("notify-keyspace-events", "")?;
        Ok((keys, locks))
    })
    .await?;
    let text = format!("{keys} keys were evicted, {locks} of them locks");
    witness(if prefix.is_some() { locks > 0 } else { keys > 0 }, text)
}

/// Stopped in its tracks. Witness: its state in /proc.
pub(super) async fn freeze(context: &FaultContext<'_>) -> Result<String> {
    let redis = context.deployment.redis().clone();
    let frozen = redis.clone();
    blocking(move || frozen.freeze()).await?;
    let seen = stands_still("Redis", redis.pid(), context.schedule.lasts()).await;
    blocking(move || redis.thaw()).await?;
    seen
}

/// The clock jumps, and back. Witness: what the server says the time is.
pub(super) async fn jump_clock(context: &FaultContext<'_>) -> Result<String> {
    let redis = context.deployment.redis().clone();
    // Jepsen's range, from a bump to a jump past every lease, in either direction.
    let sizes = [11, 120, 900, 4_500, 60_000, 288_000];
    let choice = usize::try_from(context.schedule.variation % 12).unwrap_or(0);
    let size = sizes[choice % sizes.len()];
    let offset_ms: i64 = if choice < sizes.len() { size } else { -size };
    let jumped = redis.clone();
    blocking(move || jumped.jump_clock(offset_ms)).await?;
    let seen = blocking({
        let redis = redis.clone();
        move || ahead_us(&redis)
    })
    .await?;
    sleep(context.schedule.lasts()).await;
    blocking(move || redis.jump_clock(0)).await?;
    let text = format!(
        "set {offset_ms} ms off, Redis returned a time {:.1} to {:.1} ms off",
        ms(*seen.start()),
        ms(*seen.end())
    );
    witness(shows(&seen, offset_ms * 1000), text)
}

/// Whether a clock that is so far ahead is one that was set so far ahead, and not one that was left
/// alone.
fn shows(ahead_us: &RangeInclusive<i64>, offset_us: i64) -> bool {
    let (least, most) = (ahead_us.start() - CLOCK_STEP_US, ahead_us.end() + CLOCK_STEP_US);
    (least..=most).contains(&offset_us) && !ahead_us.contains(&0)
}

#[allow(clippy::cast_precision_loss)]
fn ms(us: i64) -> f64 {
    us as f64 / 1000.0
}

/// How far its clock is ahead of ours, in microseconds: at least and at most, because ours is read
/// before the question and after the answer. That of the quickest answer of several.
pub(super) fn ahead_us(redis: &Redis) -> testbed::Result<RangeInclusive<i64>> {
    let ours = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(now.as_micros()).unwrap_or(0)
    };
    let mut best: Option<RangeInclusive<i64>> = None;
    for _ in 0..CLOCK_READINGS {
        let before = ours();
        let told = redis.command(&["TIME"])?;
        let after = ours();
        let mut parts = told.lines().map(|part| part.trim().parse::<i64>().unwrap_or(0));
        let theirs = parts.next().unwrap_or(0) * 1_000_000 + parts.next().unwrap_or(0);
        let seen = theirs - after..=theirs - before;
        let width = |seen: &RangeInclusive<i64>| seen.end() - seen.start();
        if best.as_ref().is_none_or(|best| width(&seen) < width(best)) {
            best = Some(seen);
        }
    }
    Ok(best.unwrap_or(0..=0))
}

/// The value of the first line of that section of INFO that begins so.
fn figure(redis: &Redis, section: &str, name: &str) -> testbed::Result<String> {
    let told = redis.command(&["INFO", section])?;
    let line = told.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim());
    Ok(value.unwrap_or_default().to_owned())
}

/// How many commands it has answered with that error so far.
pub(super) fn refused(redis: &Redis, error: &str) -> testbed::Result<u64> {
    // `count=3`
    let told = figure(redis, "errorstats", &format!("errorstat_{error}:"))?;
    Ok(told.split('=').nth(1).and_then(|count| count.parse().ok()).unwrap_or(0))
}

/// Enough of an id to distinguish two.
fn short(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_was_set_if_its_time_can_be_that_one_and_cannot_be_ours() {
        assert!(shows(&(10_800..=11_900), 11_000));
        assert!(shows(&(-11_900..=-10_800), -11_000));
        assert!(!shows(&(-200..=300), 11_000), "it was left alone");
        assert!(!shows(&(-100..=11_000), 11_000), "too slow an answer to say");
        assert!(!shows(&(119_000..=119_900), 11_000), "another time");
    }
}
