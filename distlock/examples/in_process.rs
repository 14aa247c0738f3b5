//! One process: a lock without a server.
//!
//! `cargo run -p distlock --example in_process`

use std::time::Duration;

use distlock::{Backends, LockError, LockKind, LockName, LockOptions, Locks, locker};

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let locks = Locks::new(locker(LockKind::Local, &Backends::default())?);
    let lease = locks.guarantees().lease(LockOptions::WATCHDOG_LEASE);
    let options = LockOptions::new(Duration::from_secs(5), lease);
    let name = LockName::new("example:report.csv")?;

    let mut lines = Vec::new();
    let file = tokio::sync::Mutex::new(&mut lines);
    let write =
        async |line: u32| locks.run(&name, &options, async { file.lock().await.push(line) }).await;
    tokio::try_join!(write(1), write(2), write(3))?;
    println!("{} lines, one after the other", lines.len());
    Ok(())
}
