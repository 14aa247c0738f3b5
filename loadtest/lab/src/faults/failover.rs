//! A failover of Redis to a replica that lags.
//!
//! What the master sends to its replica is dropped on the network until the replica is promoted; a
//! replica that was only stopped would find it in its socket. Then the clients' address leads to
//! the new master, as a virtual address does, and the old one is dead.

use std::time::Duration;

use loadtest_measure::error::Result;
use testbed::{Direction, Redis};
use tokio::time::{Instant, sleep};

use super::{FaultContext, Link, POLL_INTERVAL, WITNESS_TIMEOUT, no_witness, wait_until, witness};
use crate::cluster::blocking;
use crate::deployment::Deployment;
use crate::lock::Lock;

/// Long enough that locks are taken that the replica does not receive.
const REPLICA_LAG: Duration = Duration::from_millis(300);

/// Witness: a lock that was held and that the replica did not receive, and its role. Where locks
/// live elsewhere, what it did not receive is a write of our own.
pub(super) async fn fail_over(deployment: &Deployment, lock: Lock) -> Result<String> {
    let Some((successor, proxy)) = deployment.follower() else {
        return Err(no_witness("there is no replica to fail over to".to_owned()));
    };
    proxy.set_swallowing(Direction::ToClient, true);
    sleep(REPLICA_LAG).await;
    let holds = lock.holds_in_shared_redis();
    if holds.is_none() {
        let master = deployment.main_redis().clone();
        blocking(move || master.command(&["SET", "failover:unheard", "1", "PX", "60000"])).await?;
    }
    // From its first gap on, the replica receives nothing more.
    wait_until("the replica misses something", || proxy.counts().swallowed_to_client > 0).await?;
    let unheard = match holds {
        Some(pattern) => unheard_lock(deployment, successor, pattern).await?,
        None => format!("{} bytes of its master", proxy.counts().swallowed_to_client),
    };
    let master = deployment.main_redis().clone();
    blocking(move || master.kill()).await?;
    let role = tokio::task::block_in_place(|| {
        successor.promote()?;
        successor.command(&["ROLE"])
    })
    .map_err(|error| no_witness(error.to_string()))?;
    let role = role.lines().next().unwrap_or_default().trim().to_owned();
    for replica in 0..deployment.replicas().len() {
        if let Some(proxy) = deployment.proxies(replica, Link::Redis).first() {
            proxy.lead_to(successor.addr());
            proxy.cut();
        }
    }
    witness(role == "master", format!("the replica is {role} now and never received {unheard}"))
}

/// A lock that the master has and the replica has not, nor ever will: its way is silent already.
async fn unheard_lock(deployment: &Deployment, successor: &Redis, pattern: &str) -> Result<String> {
    let (master, number) = (deployment.main_redis(), deployment.redis_database());
    let locks = |redis: &Redis| {
        let script = "redis.call('select', ARGV[1]) return redis.call('KEYS', ARGV[2])";
        let told = tokio::task::block_in_place(|| {
            redis.command(&["EVAL_RO", script, "0", &number.to_string(), pattern])
        });
        let told = told.map_err(|error| no_witness(error.to_string()))?;
        Ok::<_, loadtest_measure::error::Error>(told.lines().map(str::to_owned).collect::<Vec<_>>())
    };
    let deadline = Instant::now() + WITNESS_TIMEOUT;
    while Instant::now() < deadline {
        let held = locks(master)?;
        let heard = if held.is_empty() { Vec::new() } else { locks(successor)? };
        if let Some(lock) = held.into_iter().find(|lock| !heard.contains(lock)) {
            return Ok(format!("of {lock}, which was held"));
        }
        sleep(POLL_INTERVAL).await;
    }
    Err(no_witness(format!("the replica missed no lock within {WITNESS_TIMEOUT:?}")))
}

/// The old master comes back as a replica of the new one. Witness: the link between them is up.
pub(super) async fn follow_the_successor(context: &FaultContext<'_>) -> Result<String> {
    let deployment = context.deployment;
    let Some((successor, _)) = deployment.follower() else {
        return Err(no_witness("there is no replica that could have one of its own".to_owned()));
    };
    let (old, address) = (deployment.main_redis().clone(), successor.addr());
    blocking(move || {
        old.restart()?;
        // The successor takes the password that the old master has.
        old.command(&["CONFIG", "SET", "masterauth", &old.as_master().password])?;
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        old.command(&["REPLICAOF", &host, &port])
    })
    .await?;
    let old = deployment.main_redis();
    let is_up = || {
        let told = tokio::task::block_in_place(|| old.command(&["INFO", "replication"]));
        told.is_ok_and(|told| told.contains("master_link_status:up"))
    };
    wait_until("the old master follows the new one", is_up).await?;
    Ok("the old master follows it".to_owned())
}
