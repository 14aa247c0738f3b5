//! Deadlocks among `seckill lock run` processes: each publishes what it waits for in the Redis of
//! --redis-url. `seckill lock ls --deadlocks` and each replica read it.

use std::sync::Arc;

use distlock::{Deadlock, DeadlockDetector, LockError, OwnerTag, RedisWaitExchange};
use serde_json::{Value, json};

use super::failure::{BAD_USAGE, Failure};
use super::held_list::print_out;
use super::list::{table, text};
use super::{authority, server};
use crate::config::{Address, LockAddresses, LockLs};
use crate::store::{self, RedisAddress, RedisConnection};

/// The exit code if there is a deadlock.
const FOUND: u8 = 1;

/// A detector that connects when it is first needed; `None` without an address of Redis.
/// `inherited` is what processes hold that wait for the end of this one.
pub(super) fn detector(
    addresses: &LockAddresses,
    tag: &OwnerTag,
    inherited: &str,
) -> Result<Option<DeadlockDetector>, Failure> {
    let Some(url) = addresses.redis_url.as_ref().filter(|url| !Address::is_missing(Some(*url)))
    else {
        return Ok(None);
    };
    let bad = |error: &dyn std::fmt::Display| Failure::new(BAD_USAGE, error.to_string());
    let how = &addresses.servers.redis;
    let ca = authority(how).map_err(|error| bad(&format!("{error:#}")))?;
    let address = RedisAddress { url: url.expose(), ca: ca.as_deref() };
    let connection = store::redis_later(address, how.answer_timeout())
        .map_err(|error| bad(&format!("{}: {error}", url.given_as())))?;
    detector_in(&connection, tag, inherited).map(Some).map_err(|error| bad(&error))
}

fn detector_in(
    redis: &RedisConnection,
    tag: &OwnerTag,
    inherited: &str,
) -> Result<DeadlockDetector, LockError> {
    DeadlockDetector::new(Arc::new(RedisWaitExchange::new(&server(redis))), tag, inherited)
}

/// A detector for a replica. A purchase takes one lock, so it observes the jobs of others.
pub fn deadlock_observer(redis: &RedisConnection) -> Result<DeadlockDetector, LockError> {
    detector_in(redis, &OwnerTag::of_this_process("seckill"), "")
}

/// Prints the deadlocks there are. Returns 1 if there is one.
pub(super) async fn list_deadlocks(config: &LockLs) -> Result<u8, Failure> {
    let tag = OwnerTag::of_this_process("seckill");
    let detector = detector(&config.addresses, &tag, "")?
        .ok_or_else(|| Failure::new(BAD_USAGE, "--deadlocks needs --redis-url (REDIS_URL)"))?;
    let found = detector.find().await.map_err(|error| Failure::about("deadlocks", &error))?;
    print_out(&if config.json { format!("{:#}", as_json(&found)) } else { as_text(&found) })?;
    Ok(if found.is_empty() { 0 } else { FOUND })
}

fn as_json(deadlocks: &[Deadlock]) -> Value {
    let lock = |(kind, name): &(String, String)| json!({"kind": kind, "name": name});
    let deadlocks = deadlocks.iter().map(|deadlock| {
        let tasks = deadlock.tasks.iter().map(|task| {
            let waited_ms = u64::try_from(task.waited.as_millis()).unwrap_or(u64::MAX);
            let (holds, waits_for) = (lock(&task.holds), lock(&task.waits_for));
            json!({
                "process": task.process,
                "holds": holds,
                "waits_for": waits_for,
                "waited_ms": waited_ms,
            })
        });
        json!({"tasks": tasks.collect::<Vec<_>>()})
    });
    json!({"deadlocks": deadlocks.collect::<Vec<_>>()})
}

/// A row for each task; the tasks of one deadlock stand together.
fn as_text(deadlocks: &[Deadlock]) -> String {
    if deadlocks.is_empty() {
        return "no deadlock".to_owned();
    }
    let mut rows = table();
    rows.set_header(["deadlock", "process", "holds", "waits for", "since"]);
    for (number, deadlock) in deadlocks.iter().enumerate() {
        for task in &deadlock.tasks {
            // Any participant may have written it.
            let lock = |(kind, name): &(String, String)| {
                format!("{} ({})", name.escape_debug(), kind.escape_debug())
            };
            rows.add_row([
                (number + 1).to_string(),
                task.process.escape_debug().to_string(),
                lock(&task.holds),
                lock(&task.waits_for),
                format!("{:.1} s", task.waited.as_secs_f64()),
            ]);
        }
    }
    text(rows)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use distlock::DeadlockedTask;

    use super::*;

    #[test]
    fn what_other_processes_have_written_sends_no_control_character_to_the_terminal() {
        let foreign = || "a\u{1b}[2J\u{7}".to_owned();
        let lock = || (foreign(), foreign());
        let task = DeadlockedTask {
            process: foreign(),
            holds: lock(),
            waits_for: lock(),
            waited: Duration::from_secs(1),
        };
        let shown = as_text(&[Deadlock { tasks: vec![task] }]);
        let is_control = |sign: &char| sign.is_control() && *sign != '\n';
        assert_eq!(shown.chars().find(is_control), None, "{shown:?}");
        assert_eq!(shown.matches("a\\u{1b}[2J").count(), 5, "{shown}");
    }
}
