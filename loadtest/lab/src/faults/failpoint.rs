//! A replica that is killed, that panics or that stands still at a named point in a purchase or in
//! the life of its lock. Only a `seckill` that was built with the feature `failpoints` has these
//! points; `PUT /failpoints` arms one of them in the middle of the load.
//!
//! Only points that every purchase passes are drawn. `make failpoints` fails a replica at each of
//! the other points too, with one lock. A cell adds the other kinds of locks, a crowd whose history
//! is judged, and a random moment.

use loadtest_load::api;
use loadtest_load::api::ApiError;
use loadtest_load::client::{Connection, Target};
use loadtest_measure::error::Result;
use tokio::time::sleep;

use super::replicas::victim;
use super::{FaultContext, no_witness, wait_until, witness};
use crate::cluster::blocking;
use crate::lock::Lock;
use crate::predict::Family;

/// Points that every purchase passes.
const SALE_POINTS: [&str; 7] = [
    "sale-admitted",
    "sale-locked",
    "sale-begun",
    "sale-order-inserted",
    "sale-before-commit",
    "sale-committed",
    "sale-before-answer",
];
/// Points that every purchase under a lock of its own passes.
const LOCK_POINTS: [&str; 4] = [
    "lock-before-acquire",
    "lock-acquire-answered",
    "lock-before-release",
    "lock-release-answered",
];

/// What a replica says that has stood still, between the point and the milliseconds.
const STOOD_STILL: &str = ": stood still for ";

/// What happens at the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailpointAction {
    Kill,
    Panic,
    /// One thread of the replica sleeps.
    StandStill,
}

/// The point and what happens there, as the number draws them.
fn draw(lock: Lock, number: u64) -> (&'static str, FailpointAction) {
    let has_points = !matches!(lock.family(), Family::None | Family::Local | Family::Transaction);
    let of_lock = if has_points { &LOCK_POINTS[..] } else { &[] };
    let points: Vec<_> = SALE_POINTS.iter().chain(of_lock).copied().collect();
    let number = usize::try_from(number % 1_000_003).unwrap_or(0);
    let deeds = [FailpointAction::Kill, FailpointAction::Panic, FailpointAction::StandStill];
    (points[number / deeds.len() % points.len()], deeds[number % deeds.len()])
}

/// Witness: a process that said where it ends, and has ended; a panic that names the point; or for
/// how long the replica said that it stood still there.
pub(super) async fn fail(context: &FaultContext<'_>) -> Result<String> {
    let (point, deed) = draw(context.lock, context.schedule.variation);
    let (replica, lasts) = (victim(context)?, context.schedule.lasts());
    let target = Target::parse(replica.base_url())?;
    let mut connection = Connection::new(target, super::WITNESS_TIMEOUT);
    let actions = match deed {
        FailpointAction::Kill => "1*return(kill)".to_owned(),
        FailpointAction::Panic => "1*panic".to_owned(),
        FailpointAction::StandStill => format!("1*sleep({})", lasts.as_millis()),
    };
    let armed = format!("{point}={actions}");
    match api::arm_failpoints(&mut connection, armed).await {
        // A replica may end before it has answered; whether it did, its witness says.
        Ok(()) | Err(ApiError::Unreachable { .. }) => {}
        Err(error) => return Err(no_witness(error.to_string())),
    }
    let said = format!("failpoint {point}");
    let (name, path) = (context.schedule.victim_name(), replica.log_path().to_owned());
    let log = || std::fs::read_to_string(&path).unwrap_or_default();
    let has_said = |what: &str| log().contains(&format!("{said}{what}"));
    match deed {
        FailpointAction::Kill => {
            wait_until(&format!("{name} ends at {point}"), || !replica.is_running()).await?;
            let (ended, pid) = (has_said(": the process ends here"), replica.pid());
            sleep(lasts).await;
            let again = replica.clone();
            blocking(move || again.restart()).await?;
            let text = format!("{name}, process {pid}, ended at {point} and is {}", replica.pid());
            witness(ended && replica.pid() != pid, text)
        }
        FailpointAction::Panic => {
            wait_until(&format!("{name} panics at {point}"), || has_said(" panic")).await?;
            sleep(lasts).await;
            witness(replica.is_running(), format!("{name} panicked at {point} and went on"))
        }
        FailpointAction::StandStill => {
            sleep(lasts).await;
            let (stood, asked) = (|| stood_ms(&log(), &said), lasts.as_millis());
            let what = format!("{name} stands still at {point} for {asked} ms");
            wait_until(&what, || stood().is_some_and(|ms| ms >= asked)).await?;
            let ms = stood().unwrap_or(0);
            witness(ms >= asked, format!("{name} stood still for {ms} ms at {point}"))
        }
    }
}

/// The longest time for which a replica said that it stood still there.
fn stood_ms(log: &str, said: &str) -> Option<u128> {
    let told = log.lines().filter_map(|line| line.strip_prefix(said)?.strip_prefix(STOOD_STILL));
    told.filter_map(|rest| rest.strip_suffix(" ms")?.parse().ok()).max()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_stall_of_a_replica_is_read_from_its_log_lines_of_the_failpoint() {
        let log = "failpoint a: stood still for 120 ms\nfailpoint a: stood still for 1500 ms\n\
                   failpoint b: stood still for 9000 ms\nfailpoint a: the process ends here\n";
        assert_eq!(stood_ms(log, "failpoint a"), Some(1500));
        assert_eq!(stood_ms(log, "failpoint c"), None);
    }

    #[test]
    fn each_point_that_a_lock_passes_is_drawn_with_each_deed() {
        for (lock, points) in [(Lock::Local, 7), (Lock::MysqlRow, 7), (Lock::Zookeeper, 11)] {
            let drawn: BTreeSet<_> = (0..100)
                .map(|number| draw(lock, number))
                .map(|(point, deed)| (point, format!("{deed:?}")))
                .collect();
            assert_eq!(drawn.len(), points * 3, "{lock:?}");
        }
    }
}
