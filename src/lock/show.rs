//! `seckill lock show` and `lock wait-for`: one lock, read once or until it is free.

use std::io::{self, Write};
use std::time::Duration;

use distlock::{LockName, LockSnapshot, LockState, Locks};
use tokio::time::{Instant, sleep};

use super::connect::connect_inspector;
use super::failure::{BAD_USAGE, Failure, SERVER_FAILED, TIMED_OUT, UNUSABLE, ended};
use super::snapshot_view as view;
use crate::config::{LockShow, LockWaitFor, NamedLockArgs};

/// Between two looks at a lock that is not free.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Between two lines of the log about it.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// How long the server may fail between two looks.
const MAX_OUTAGE: Duration = Duration::from_secs(30);

/// A lock of another kind may have the same name.
const FREE_AS_THIS_KIND: &str =
    "note:    free as this kind; `seckill lock ls --prefix NAME` reads all kinds";

/// Prints what is known of a lock. Returns the exit code, and the line for stderr if there is one.
pub async fn show(config: &LockShow) -> (u8, Option<String>) {
    ended(print(config).await)
}

async fn print(config: &LockShow) -> Result<u8, Failure> {
    let locks = open_one(&config.lock).await?;
    let lock = inspect(&locks, &config.lock).await?;
    let text = if config.json {
        format!("{:#}", view::as_json(&lock, &[lock.kind]))
    } else if lock.state == LockState::Free {
        format!("{}\n{FREE_AS_THIS_KIND}", view::as_text(&lock))
    } else {
        view::as_text(&lock)
    };
    writeln!(io::stdout(), "{text}")
        .map_err(|error| Failure::new(SERVER_FAILED, format!("cannot write to stdout: {error}")))?;
    Ok(0)
}

/// Waits until a lock is free. Returns the exit code, and the line for stderr if there is one.
pub async fn wait_for(config: &LockWaitFor) -> (u8, Option<String>) {
    ended(wait_until_free(config).await)
}

async fn wait_until_free(config: &LockWaitFor) -> Result<u8, Failure> {
    let deadline = config.timeout.map(|timeout| Instant::now() + timeout);
    let locks = open_one(&config.lock).await?;
    let (began, mut outage, mut next_report) = (Instant::now(), Outage::default(), REPORT_INTERVAL);
    loop {
        let failure = match inspect(&locks, &config.lock).await {
            Ok(lock) if lock.state == LockState::Free => return Ok(0),
            Ok(lock) => why_not_free(&config.lock.name, &lock),
            Err(failure) => failure,
        };
        let left = deadline
            .map_or(POLL_INTERVAL, |deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_zero() || outage.ends_wait(failure.code, Instant::now()) {
            return Err(failure);
        }
        if began.elapsed() >= next_report {
            next_report = began.elapsed() + REPORT_INTERVAL;
            tracing::info!(kind = %config.lock.kind, "waits for {}", failure.sentence);
        }
        sleep(left.min(POLL_INTERVAL)).await;
    }
}

/// Since when the server fails.
#[derive(Default)]
struct Outage(Option<Instant>);

impl Outage {
    /// Whether a look that ended with that code is the last one.
    fn ends_wait(&mut self, code: u8, now: Instant) -> bool {
        match code {
            TIMED_OUT => self.0 = None,
            SERVER_FAILED => {
                let since = *self.0.get_or_insert(now);
                return now.saturating_duration_since(since) >= MAX_OUTAGE;
            }
            _ => return true,
        }
        false
    }
}

fn why_not_free(name: &LockName, lock: &LockSnapshot) -> Failure {
    let (code, why) = match (&lock.state, lock.state.holders()) {
        (LockState::Damaged(reason), _) => (UNUSABLE, reason.clone()),
        (LockState::Unknown { reason, is_final }, _) => {
            let code = if *is_final { UNUSABLE } else { TIMED_OUT };
            (code, format!("it is not known to be free: {reason}"))
        }
        (_, [holder, ..]) => (TIMED_OUT, format!("still held by {}", view::holder(holder))),
        (_, []) => (TIMED_OUT, "still held".to_owned()),
    };
    Failure::new(code, format!("{name}: {why}"))
}

/// Opens the locks of that kind.
pub(super) async fn open_one(lock: &NamedLockArgs) -> Result<Locks, Failure> {
    lock.check().map_err(|sentence| Failure::new(BAD_USAGE, sentence))?;
    connect_inspector(lock.kind, &lock.addresses).await
}

/// Reads that lock.
pub(super) async fn inspect(locks: &Locks, lock: &NamedLockArgs) -> Result<LockSnapshot, Failure> {
    let read = locks.inspect(&lock.name).await;
    read.map_err(|error| Failure::about(&lock.name, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_outlives_outages_of_less_than_half_a_minute() {
        let (mut outage, began) = (Outage::default(), Instant::now());
        let mut ends = |code, at_s| outage.ends_wait(code, began + Duration::from_secs(at_s));
        assert!(!ends(SERVER_FAILED, 0) && !ends(SERVER_FAILED, 29));
        assert!(!ends(TIMED_OUT, 30), "it is held, and the server is back");
        assert!(!ends(SERVER_FAILED, 31) && !ends(SERVER_FAILED, 60));
        assert!(ends(SERVER_FAILED, 61));
        for code in [UNUSABLE, BAD_USAGE] {
            assert!(Outage::default().ends_wait(code, began), "{code}: trying again does not help");
        }
    }
}
