//! Replicas that are killed, that stand still, or that are restarted in turn.

use std::sync::Arc;
use std::time::Duration;

use loadtest_load::api;
use loadtest_load::client::{Connection, Target};
use loadtest_measure::error::{Error, Result};
use testbed::Replica;
use tokio::time::{Instant, sleep};

use super::{FaultContext, POLL_INTERVAL, WITNESS_TIMEOUT, no_witness, replica_name, witness};
use crate::cluster::blocking;

/// How long a replica may take to drain and end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);
/// How long one look through the proxy may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Killed, and started again after a pause. Witness: another process.
pub(super) async fn kill(context: &FaultContext<'_>) -> Result<String> {
    let victim = victim(context)?;
    let (name, before) = (context.schedule.victim_name(), victim.pid());
    let killed = victim.clone();
    blocking(move || killed.kill()).await?;
    sleep(context.schedule.lasts()).await;
    let started = victim.clone();
    blocking(move || started.restart()).await?;
    let after = victim.pid();
    witness(before != after, format!("{name} was process {before} and is {after}"))
}

/// Stopped in its tracks past its lease. Witness: its state in /proc.
pub(super) async fn freeze(context: &FaultContext<'_>) -> Result<String> {
    let victim = victim(context)?;
    let frozen = victim.clone();
    blocking(move || frozen.freeze()).await?;
    let name = context.schedule.victim_name();
    let seen = stands_still(&name, victim.pid(), context.schedule.lasts()).await;
    blocking(move || victim.thaw()).await?;
    seen
}

/// Waits while a process stands still that was frozen. Witness: its state in /proc at the begin and
/// at the end, and the time between as it was measured.
pub(super) async fn stands_still(name: &str, pid: u32, lasts: Duration) -> Result<String> {
    let (began, before) = (Instant::now(), state_of(pid));
    sleep(lasts).await;
    let (after, lasted) = (state_of(pid), began.elapsed());
    let states =
        if before == after { before.to_string() } else { format!("{before}, then {after}") };
    let text = format!("{name} was in state {states} for {} ms", lasted.as_millis());
    witness(before == 'T' && after == 'T', text)
}

/// Each asked to end, and started again before the next. Witness: other processes, and exits with
/// code 0.
pub(super) async fn restart_all(context: &FaultContext<'_>) -> Result<String> {
    let mut restarted = Vec::new();
    for (index, replica) in context.deployment.replicas().iter().enumerate() {
        let name = replica_name(index);
        let (before, replica) = (replica.pid(), replica.clone());
        let stopping = replica.clone();
        let status = blocking(move || stopping.stop(EXIT_TIMEOUT)).await;
        let status = status.map_err(|error| Error::Died(format!("{name} ({error})")))?;
        if !status.success() {
            return Err(Error::Died(format!("{name} ({status})")));
        }
        let starting = replica.clone();
        let started = blocking(move || starting.restart()).await;
        started.map_err(|error| Error::Died(format!("{name} ({error})")))?;
        until_in_rotation(context, &name).await?;
        restarted.push((name, [before, replica.pid()]));
    }
    are_others(&restarted)
}

/// Witness: each is another process than before.
fn are_others(restarted: &[(String, [u32; 2])]) -> Result<String> {
    let same = restarted.iter().filter(|(_, [before, after])| before == after).count();
    let said: Vec<_> = restarted
        .iter()
        .map(|(name, [before, after])| format!("{name} was process {before} and is {after}"))
        .collect();
    let text = format!("all ended with code 0; {}", said.join(", "));
    witness(!said.is_empty() && same == 0, text)
}

/// Waits until the proxy has seen that the replica is back, and sends it requests.
async fn until_in_rotation(context: &FaultContext<'_>, name: &str) -> Result<()> {
    let target = Target::parse(context.deployment.url())?;
    let mut connection = Connection::new(target, PROBE_TIMEOUT);
    let deadline = Instant::now() + WITNESS_TIMEOUT;
    while Instant::now() < deadline {
        if api::replica_name(&mut connection).await.as_deref() == Some(name) {
            return Ok(());
        }
        sleep(POLL_INTERVAL).await;
    }
    Err(no_witness(format!("{name} was not asked within {WITNESS_TIMEOUT:?} of its restart")))
}

/// The replica that the schedule names.
pub(super) fn victim(context: &FaultContext<'_>) -> Result<Arc<Replica>> {
    let victim = context.deployment.replicas().get(context.schedule.victim);
    victim.cloned().ok_or_else(|| no_witness("there is no such replica".to_owned()))
}

/// The state of a process as the kernel reports it: `T` is stopped.
pub(super) fn state_of(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before it may contain anything, also parentheses.
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('?')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_were_restarted_if_each_of_them_is_another_process() {
        let name = str::to_owned;
        let others = are_others(&[(name("r1"), [7, 9]), (name("r2"), [8, 10])]);
        assert!(
            others
                .expect("others")
                .ends_with("r1 was process 7 and is 9, r2 was process 8 and is 10")
        );
        assert!(are_others(&[(name("r1"), [7, 9]), (name("r2"), [8, 8])]).is_err());
        assert!(are_others(&[]).is_err());
    }

    #[tokio::test]
    async fn a_frozen_replica_is_a_witness_and_a_running_one_is_not() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("started");
        let (pid, short) = (child.id(), Duration::from_millis(20));
        // Without a pause of the runtime: a task that waits beside it continues when that has
        // happened.
        let turns = |signal: &str, is_still: bool| {
            let status =
                std::process::Command::new("kill").args([signal, &pid.to_string()]).status();
            assert!(status.expect("kill runs").success());
            let deadline = Instant::now() + WITNESS_TIMEOUT;
            while (state_of(pid) == 'T') != is_still && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let awake = stands_still("it", pid, short).await;
        let (late, ()) =
            tokio::join!(stands_still("it", pid, short), async { turns("-STOP", true) });
        let began = Instant::now();
        let still = stands_still("it", pid, short).await;
        let most = began.elapsed().as_millis();
        let (short_of_it, ()) =
            tokio::join!(stands_still("it", pid, short), async { turns("-CONT", false) });
        child.kill().expect("killed");
        child.wait().expect("ended");
        for other in [awake, late, short_of_it] {
            assert!(other.is_err(), "{other:?}");
        }
        let still = still.expect("it stood still");
        let told =
            still.strip_prefix("it was in state T for ").and_then(|it| it.strip_suffix(" ms"));
        let told: u128 = told.and_then(|ms| ms.parse().ok()).expect(&still);
        assert!((20..=most).contains(&told), "{still}, of {most} ms");
    }
}
