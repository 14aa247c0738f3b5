//! `seckill lock show` and `lock wait-for`: one lock, read once or until it is free.

use std::io::{self, Write};
use std::time::Duration;

use distlock::{LockSnapshot, LockState, Locks};
use tokio::time::{Instant, sleep};

use super::connect::connect_inspector;
use super::failure::{BAD_USAGE, Failure, SERVER_FAILED, TIMED_OUT, UNUSABLE, ended};
use super::snapshot_view as view;
use crate::config::{LockShow, LockWaitFor, NamedLockArgs};

/// Between two looks at a lock that is not free.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Prints what is known of a lock. Returns the exit code, and the line for stderr if there is one.
pub async fn show(config: &LockShow) -> (u8, Option<String>) {
    ended(print(config).await)
}

async fn print(config: &LockShow) -> Result<u8, Failure> {
    let locks = open_one(&config.lock).await?;
    let lock = inspect(&locks, &config.lock).await?;
    let text = if config.json {
        format!("{:#}", view::as_json(&lock, &[lock.kind]))
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
    loop {
        let lock = inspect(&locks, &config.lock).await?;
        let name = &config.lock.name;
        match &lock.state {
            LockState::Free => return Ok(0),
            LockState::Damaged(reason) => {
                return Err(Failure::new(UNUSABLE, format!("{name}: {reason}")));
            }
            LockState::Held(_) | LockState::Partial(_) | LockState::Unknown(_) => {}
        }
        let left = deadline
            .map_or(LOOK_INTERVAL, |deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Err(Failure::new(TIMED_OUT, format!("{name}: {}", why_not_free(&lock))));
        }
        sleep(left.min(LOOK_INTERVAL)).await;
    }
}

fn why_not_free(lock: &LockSnapshot) -> String {
    match (&lock.state, lock.state.holders()) {
        (LockState::Unknown(reason), _) => format!("it is not known to be free: {reason}"),
        (_, [holder, ..]) => format!("still held by {}", view::holder(holder)),
        (_, []) => "still held".to_owned(),
    }
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
