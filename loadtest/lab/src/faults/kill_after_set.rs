//! A replica that is killed when Redis has granted it the lock, and before it has sent its next
//! command. What the lock's key is then, it stays, unless it has a lease.

use std::sync::{Arc, Mutex, PoisonError};

use loadtest_measure::error::Result;
use testbed::{Action, Command, Redis, Rule, Times};
use tokio::time::{Instant, sleep};

use super::replicas::victim;
use super::{FaultContext, Link, POLL_INTERVAL, WITNESS_TIMEOUT, no_witness, witness};
use crate::cluster::blocking;

/// Whose key it is and what is left of its lease. ARGV: logical database, key.
const KEY_SCRIPT: &str = "redis.call('select', ARGV[1]) \
    return (redis.call('GET', ARGV[2]) or '') .. ' ' .. redis.call('PTTL', ARGV[2])";
/// What PTTL says of a key without a lease.
const NO_LEASE: i64 = -1;

/// Key and owner of a command that takes a lock.
type LockedKey = (String, String);

/// Witness: another process, and the key that it left, with its lease.
pub(super) async fn kill(context: &FaultContext<'_>) -> Result<String> {
    let (victim, deployment) = (victim(context)?, context.deployment);
    let Some(proxy) = deployment.proxies(context.schedule.victim, Link::Redis).first() else {
        return Err(no_witness("there is no way on which an answer could be held".to_owned()));
    };
    let (redis, number) = (deployment.redis().clone(), deployment.redis_database());
    let deadline = Instant::now() + WITNESS_TIMEOUT;
    let (key, lease) = loop {
        let taking = Arc::new(Mutex::new(None));
        let arm = |name| {
            let taking = taking.clone();
            let command = Command::redis(name).when(move |parts| note(parts, &taking));
            proxy.arm(command, Action::HoldAnswer, Times::Next(1))
        };
        let rules = ["SETNX", "SET"].map(arm);
        while rules.iter().all(|rule| rule.fired() == 0) {
            if Instant::now() >= deadline {
                return Err(no_witness(format!("no lock was taken within {WITNESS_TIMEOUT:?}")));
            }
            sleep(POLL_INTERVAL).await;
        }
        rules.iter().for_each(Rule::disarm);
        let taken = taking.lock().unwrap_or_else(PoisonError::into_inner).take();
        let granted = match taken {
            Some(taken) => lease_if_granted(&redis, number, &taken).await?.map(|it| (taken.0, it)),
            None => None,
        };
        if let Some(granted) = granted {
            let killed = victim.clone();
            blocking(move || killed.kill()).await?;
            rules.iter().for_each(Rule::release);
            break granted;
        }
        // Another replica has the lock: this attempt failed.
        rules.iter().for_each(Rule::release);
    };
    let before = victim.pid();
    sleep(context.schedule.lasts()).await;
    let started = victim.clone();
    blocking(move || started.restart()).await?;
    let lease = match lease {
        NO_LEASE => "no lease".to_owned(),
        ms => format!("a lease of {ms} ms left"),
    };
    let (name, after) = (context.schedule.victim_name(), victim.pid());
    let text = format!("{name}, process {before}, was killed when it had {key}, with {lease}");
    witness(before != after, text)
}

/// Whether the command takes a lock; keeps its key and owner if so.
fn note(parts: &[&[u8]], taking: &Mutex<Option<LockedKey>>) -> bool {
    let [_, key, owner, ..] = parts else { return false };
    let is_lock = key.starts_with(b"lock:");
    if is_lock {
        let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
        let mut taking = taking.lock().unwrap_or_else(PoisonError::into_inner);
        taking.get_or_insert_with(|| (text(key), text(owner)));
    }
    is_lock
}

/// What is left of the lease if the key is that owner's, in milliseconds.
async fn lease_if_granted(
    redis: &Arc<Redis>,
    number: u16,
    (key, owner): &LockedKey,
) -> Result<Option<i64>> {
    let (redis, number, key) = (redis.clone(), number.to_string(), key.clone());
    let said = blocking(move || redis.command(&["EVAL", KEY_SCRIPT, "0", &number, &key])).await?;
    let Some((found, lease)) = said.trim().rsplit_once(' ') else { return Ok(None) };
    Ok(lease.parse().ok().filter(|_| found == owner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_command_on_the_key_of_a_lock_takes_one() {
        let taking = Mutex::new(None);
        let parts = |key: &'static str| [b"SET".as_slice(), key.as_bytes(), b"me", b"NX"];
        assert!(!note(&parts("seckill:id"), &taking));
        assert!(note(&parts("lock:voucher:1"), &taking));
        let taken = taking.lock().expect("no panic").take();
        assert_eq!(taken, Some(("lock:voucher:1".to_owned(), "me".to_owned())));
    }
}
