//! Replicas that are killed, that stand still, or that are restarted in turn.

use std::sync::Arc;
use std::time::Duration;

use testbed::Replica;
use tokio::time::{Instant, sleep};

use super::{POLL, SEEN_WITHIN, Scene, replica_name, unseen, witness};
use crate::api;
use crate::error::Result;
use crate::lab::cluster::blocking;
use crate::load::client::{Connection, Target};

/// How long a replica may take to drain and end.
const ENDS_WITHIN: Duration = Duration::from_secs(20);
/// How long one look through the proxy may take.
const LOOK: Duration = Duration::from_secs(2);

/// Killed, and started again after a while. Witness: another process.
pub(super) async fn kill(scene: &Scene<'_>) -> Result<String> {
    let victim = victim(scene)?;
    let (name, before) = (scene.schedule.victim_name(), victim.pid());
    let killed = victim.clone();
    blocking(move || killed.kill()).await?;
    sleep(scene.schedule.lasts()).await;
    let started = victim.clone();
    blocking(move || started.restart()).await?;
    let after = victim.pid();
    witness(before != after, format!("{name} was process {before} and is {after}"))
}

/// Stopped in its tracks past its lease. Witness: its state in /proc.
pub(super) async fn freeze(scene: &Scene<'_>) -> Result<String> {
    let victim = victim(scene)?;
    let frozen = victim.clone();
    blocking(move || frozen.freeze()).await?;
    sleep(scene.schedule.lasts()).await;
    let state = state_of(victim.pid());
    let thawed = victim.clone();
    blocking(move || thawed.thaw()).await?;
    let (name, ms) = (scene.schedule.victim_name(), scene.schedule.lasts_ms);
    witness(state == 'T', format!("{name} was in state {state} for {ms} ms"))
}

/// Each asked to end, and started again before the next. Witness: other processes, and exits with
/// code 0.
pub(super) async fn restart_all(scene: &Scene<'_>) -> Result<String> {
    let mut said = Vec::new();
    for (index, replica) in scene.deployment.replicas().iter().enumerate() {
        let name = replica_name(index);
        let (before, replica) = (replica.pid(), replica.clone());
        let stopping = replica.clone();
        let status = blocking(move || stopping.stop(ENDS_WITHIN)).await?;
        if !status.success() {
            return Err(unseen(format!("{name} ended with {status}")));
        }
        let starting = replica.clone();
        blocking(move || starting.restart()).await?;
        until_in_rotation(scene, &name).await?;
        said.push(format!("{name}: {before} -> {}", replica.pid()));
    }
    witness(
        !said.is_empty(),
        format!("all ended with code 0 and are other processes: {}", said.join(", ")),
    )
}

/// Waits until the proxy has seen that the replica is back, and sends it requests.
async fn until_in_rotation(scene: &Scene<'_>, name: &str) -> Result<()> {
    let target = Target::parse(scene.deployment.url())?;
    let mut connection = Connection::new(target, LOOK);
    let deadline = Instant::now() + SEEN_WITHIN;
    while Instant::now() < deadline {
        if api::who_answers(&mut connection).await.as_deref() == Some(name) {
            return Ok(());
        }
        sleep(POLL).await;
    }
    Err(unseen(format!("{name} was not asked within {SEEN_WITHIN:?} of its restart")))
}

/// Whom the schedule names.
pub(super) fn victim(scene: &Scene<'_>) -> Result<Arc<Replica>> {
    let victim = scene.deployment.replicas().get(scene.schedule.victim);
    victim.cloned().ok_or_else(|| unseen("there is no such replica".to_owned()))
}

/// The state of a process as the kernel tells it: `T` is stopped.
pub(super) fn state_of(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before it may contain anything, also parentheses.
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('?')
}
