//! Leader: two candidates, of which one leads. When its lock is lost, so is its work.
//!
//! `cargo run -p distlock --features zookeeper --example leader -- 127.0.0.1:2181`

#![allow(clippy::needless_update, reason = "another backend is another field")]

use std::time::Duration;

use distlock::{
    Backends, LockError, LockKind, LockName, LockOptions, Locks, ZooKeeperServer, locker,
};

/// After this time without a word of its leader the server lets another one lead.
const SESSION: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:2181".into());
    tokio::try_join!(candidate(&address, "one"), candidate(&address, "two"))?;
    println!("both have led, one after the other");
    Ok(())
}

/// A process of its own, as far as the server can see.
async fn candidate(address: &str, name: &str) -> Result<(), LockError> {
    let server = ZooKeeperServer::connect(address, SESSION).await?;
    let backends = Backends { zookeeper: Some(server), ..Backends::default() };
    let locks = Locks::new(locker(LockKind::Zookeeper, &backends)?);
    let lease = locks.guarantees().lease(SESSION);
    let options = LockOptions::new(Duration::from_mins(1), lease);
    let guard = locks.lock(&LockName::new("example:leader")?, &options).await?;
    // What is written outside goes with the token: a leader that was paused is refused by it.
    println!("{name} leads with token {:?}", guard.token());
    guard.run(tokio::time::sleep(Duration::from_millis(300))).await?;
    guard.release().await?;
    locks.flush().await;
    Ok(())
}
