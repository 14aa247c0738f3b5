//! At most two workers on an external service. The permit of a dead one comes back by itself.
//!
//! `cargo run -p distlock --example workers -- redis://127.0.0.1:6379`

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use distlock::{ExpirableSemaphore, Lease, LockError, LockName, RedisServer};

const WAIT: Duration = Duration::from_secs(10);
/// Renewed while the worker lives.
const LEASE: Lease = Lease::Renewed(Duration::from_secs(5));

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".into());
    let server = RedisServer::open(&url).await?;
    let permits = ExpirableSemaphore::new(&server, LockName::new("example:workers")?);
    permits.try_set_permits(2).await?;

    let (working, most) = (AtomicU32::new(0), AtomicU32::new(0));
    let work = async || {
        let permit = permits.acquire(WAIT, LEASE).await?;
        most.fetch_max(working.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(200)).await;
        working.fetch_sub(1, Ordering::SeqCst);
        permit.release().await.map(|_| ())
    };
    tokio::try_join!(work(), work(), work(), work())?;
    println!("four workers, at most {} at a time", most.into_inner());
    permits.delete().await?;
    permits.flush().await;
    Ok(())
}
