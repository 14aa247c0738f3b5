//! A replica that is killed, that panics or that stands still at a named point in a purchase or in
//! the life of its lock. Only a `seckill` that was built with the feature `failpoints` has these
//! points; `PUT /failpoints` arms one of them in the middle of the load.
//!
//! Only points are drawn that every purchase passes. `make failpoints` fails a replica at each of
//! all the others as well, of one lock; what a cell adds are the other kinds of locks, a crowd
//! whose history is judged, and a moment that nobody chose.

use tokio::time::sleep;

use super::replicas::victim;
use super::{Scene, unseen, until, witness};
use crate::api::{self, ApiError};
use crate::error::Result;
use crate::lab::cluster::blocking;
use crate::lab::lock::Lock;
use crate::lab::metrics;
use crate::lab::predict::Family;
use crate::load::client::{Connection, Target};

/// Points that every purchase passes.
const SALE: [&str; 8] = [
    "sale-admitted",
    "sale-locked",
    "sale-begun",
    "sale-order-inserted",
    "sale-unit-taken",
    "sale-before-commit",
    "sale-committed",
    "sale-before-answer",
];
/// Points that every purchase under a lock of its own passes.
const LOCK: [&str; 4] = [
    "lock-before-acquire",
    "lock-acquire-answered",
    "lock-before-release",
    "lock-release-answered",
];

/// What happens at the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Kill,
    Panic,
    /// One thread of the replica sleeps.
    StandStill,
}

/// The point and what happens there, as the number draws them.
fn draw(lock: Lock, number: u64) -> (&'static str, Deed) {
    let has_points = !matches!(lock.family(), Family::None | Family::Local | Family::Transaction);
    let of_lock = if has_points { &LOCK[..] } else { &[] };
    let points: Vec<_> = SALE.iter().chain(of_lock).copied().collect();
    let number = usize::try_from(number % 1_000_003).unwrap_or(0);
    let deeds = [Deed::Kill, Deed::Panic, Deed::StandStill];
    (points[number / deeds.len() % points.len()], deeds[number % deeds.len()])
}

/// Witness: a process that said where it ends, and has ended; a panic that names the point; or how
/// often the point was reached since.
pub(super) async fn fail(scene: &Scene<'_>) -> Result<String> {
    let (point, deed) = draw(scene.lock, scene.schedule.variation);
    let (replica, lasts) = (victim(scene)?, scene.schedule.lasts());
    let target = Target::parse(replica.base_url())?;
    let mut connection = Connection::new(target, super::SEEN_WITHIN);
    let actions = match deed {
        Deed::Kill => "1*return(kill)".to_owned(),
        Deed::Panic => "1*panic".to_owned(),
        Deed::StandStill => format!("1*sleep({})", lasts.as_millis()),
    };
    let before = reached(&mut connection, point).await?;
    let armed = format!("{point}={actions}");
    match api::arm_failpoints(&mut connection, armed).await {
        // A replica may end before it has answered; whether it did, its witness says.
        Ok(()) | Err(ApiError::Unreachable { .. }) => {}
        Err(error) => return Err(unseen(error.to_string())),
    }
    let said = format!("failpoint {point}");
    let (name, log) = (replica.name().to_owned(), replica.log_path().to_owned());
    let has_said = || std::fs::read_to_string(&log).is_ok_and(|text| text.contains(&said));
    match deed {
        Deed::Kill => {
            until(&format!("{name} ends at {point}"), || !replica.is_running()).await?;
            let (ended, pid) = (has_said(), replica.pid());
            sleep(lasts).await;
            let again = replica.clone();
            blocking(move || again.restart()).await?;
            let text = format!("{name}, process {pid}, ended at {point} and is {}", replica.pid());
            witness(ended && replica.pid() != pid, text)
        }
        Deed::Panic => {
            until(&format!("{name} panics at {point}"), has_said).await?;
            sleep(lasts).await;
            witness(replica.is_running(), format!("{name} panicked at {point} and went on"))
        }
        Deed::StandStill => {
            sleep(lasts).await;
            let times = reached(&mut connection, point).await?.saturating_sub(before);
            let ms = lasts.as_millis();
            let text = format!("{name} slept {ms} ms at {point}, which it reached {times} times");
            witness(times > 0, text)
        }
    }
}

/// How often the replica has reached that point.
async fn reached(connection: &mut Connection, point: &str) -> Result<u64> {
    let page = api::metrics(connection).await.map_err(|error| unseen(error.to_string()))?;
    Ok(metrics::reached(&page, point))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_point_that_a_lock_passes_is_drawn_with_each_deed() {
        for (lock, points) in [(Lock::Local, 8), (Lock::MysqlRow, 8), (Lock::Zookeeper, 12)] {
            let drawn: BTreeSet<_> = (0..100)
                .map(|number| draw(lock, number))
                .map(|(point, deed)| (point, format!("{deed:?}")))
                .collect();
            assert_eq!(drawn.len(), points * 3, "{lock:?}");
        }
    }
}
