//! Replicas that are killed, that stand still, that get hardly any processor time, or that are
//! restarted in turn.

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
/// How long a starved replica runs at a time, and how long it is stopped before that.
const STARVED_RUN: Duration = Duration::from_millis(5);
const STARVED_STOP: Duration = Duration::from_millis(95);
/// A busy machine stops and continues it late: within how many times the planned time it must have
/// been stopped for that time.
const MAX_STARVATION: u32 = 2;

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

/// Stopped and continued by turns, so that it hardly runs, for longer than its lease. Witness: how
/// often and how long it was stopped, by its state in /proc, and its processor time meanwhile.
pub(super) async fn starve(context: &FaultContext<'_>) -> Result<String> {
    let (victim, lasts) = (victim(context)?, context.schedule.lasts());
    let name = context.schedule.victim_name();
    blocking(move || {
        let starved = Starvation::inject(victim.pid(), lasts, || victim.freeze(), || victim.thaw());
        // Also after an error: it is not left frozen.
        victim.thaw()?;
        starved
    })
    .await?
    .witness(&name)
}

/// What was seen of a process that is stopped and continued by turns.
struct Starvation {
    planned: Duration,
    lasted: Duration,
    stops: u32,
    stopped: Duration,
    processor_time: Duration,
}

impl Starvation {
    /// Stops and continues it by turns until it has been stopped for that long.
    fn inject<E>(
        pid: u32,
        planned: Duration,
        freeze: impl Fn() -> std::result::Result<(), E>,
        thaw: impl Fn() -> std::result::Result<(), E>,
    ) -> std::result::Result<Self, E> {
        let (began, used) = (Instant::now(), processor_time(pid));
        let (mut stops, mut stopped) = (0, Duration::ZERO);
        while stopped < planned && began.elapsed() < MAX_STARVATION * planned {
            freeze()?;
            let since = Instant::now();
            std::thread::sleep(STARVED_STOP);
            if state_of(pid) == 'T' {
                stops += 1;
                stopped += since.elapsed();
            }
            thaw()?;
            std::thread::sleep(STARVED_RUN);
        }
        let processor_time = processor_time(pid).saturating_sub(used);
        Ok(Self { planned, lasted: began.elapsed(), stops, stopped, processor_time })
    }

    fn witness(&self, name: &str) -> Result<String> {
        let [lasted, stopped, used] =
            [self.lasted, self.stopped, self.processor_time].map(|time| time.as_secs_f64() * 1e3);
        let text = format!(
            "{name} was stopped {} times, {stopped:.0} of {lasted:.0} ms, and had {used:.1} ms of \
             processor time",
            self.stops
        );
        let ran = self.stops > 1 && !self.processor_time.is_zero();
        witness(ran && self.stopped >= self.planned, text)
    }
}

/// The processor time of all threads of a process. The kernel's usual figure is in hundredths of a
/// second, which is too coarse.
fn processor_time(pid: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let used = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
    });
    used.sum()
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

    #[test]
    fn a_process_that_hardly_runs_is_a_witness_and_one_that_is_let_run_is_not() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .expect("started");
        let pid = child.id();
        let signal = |name: &str| {
            std::process::Command::new("kill").args([name, &pid.to_string()]).status().map(drop)
        };
        let planned = Duration::from_secs(1);
        let starve = |stop: &str| {
            let seen = Starvation::inject(pid, planned, || signal(stop), || signal("-CONT"));
            seen.expect("signals are sent")
        };
        let (starved, free) = (starve("-STOP"), starve("-CONT"));
        child.kill().expect("killed");
        child.wait().expect("ended");
        let free = free.witness("it");
        assert!(free.is_err(), "{free:?}");
        assert!(starved.stops > 1, "{}", starved.stops);
        let [used, stopped] = [7, 1020].map(Duration::from_millis);
        let seen = Starvation { stops: 3, stopped, processor_time: used, ..starved };
        let said = seen.witness("it").expect("it hardly ran");
        let expected = "it was stopped 3 times, 1020 of ";
        assert!(said.starts_with(expected) && said.ends_with(" had 7.0 ms of processor time"));
        assert!(Starvation { stopped: planned / 2, ..seen }.witness("it").is_err());
    }
}
