//! A replica that is frozen while it holds the lock, after its last look at it and before its write
//! counts: its COMMIT is on the way and is held there.
//!
//! In order: a purchase of the victim has written its stock, and its COMMIT has left the replica;
//! the replica is frozen; its lock lapses; another replica takes it, reads the stock as it was, and
//! writes; only then the COMMIT arrives, and the replica goes on. Where no lock lapses, or a fence
//! keeps the next holder from reading, nobody writes meanwhile, and the COMMIT arrives after a
//! bounded time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testbed::{Action, Command, Rule, Times};
use tokio::time::{Instant, sleep};

use super::replicas::{state_of, victim};
use super::{Link, POLL, Scene, unseen, until, witness};
use crate::error::Result;
use crate::judge::audit::STOCK_WRITE;
use crate::lab::cluster::blocking;

/// Longest time for others to take the lock and write: three leases of a second, and less than the
/// database lets anybody wait for a row.
const OTHERS_WRITE_WITHIN: Duration = Duration::from_millis(3200);
/// Between the write of another and the COMMIT: that write waits for the row.
const SETTLES: Duration = Duration::from_millis(30);

/// Witness: the victim's state in /proc with its COMMIT held, and what others wrote meanwhile;
/// `lapses` says whether they must have.
pub async fn freeze_the_holder(scene: &Scene<'_>, lapses: bool) -> Result<String> {
    let (deployment, schedule) = (scene.deployment, scene.schedule);
    let replica = victim(scene)?;
    let Some(way) = deployment.ways(schedule.victim, Link::Database).first() else {
        return Err(unseen("there is no way on which a COMMIT could be held".to_owned()));
    };
    // Of the commits on this way, that of an order is the one after a write of the stock.
    let has_written = Arc::new(AtomicBool::new(false));
    let (seen, due) = (has_written.clone(), has_written);
    let _written = way.watch(stock_write().when(move |_| {
        seen.store(true, Ordering::SeqCst);
        true
    }));
    let commit = Command::commit().when(move |_| due.swap(false, Ordering::SeqCst));
    let held = way.arm(commit, Action::HoldRequest, Times::Next(1));
    until("a COMMIT is held", || held.fired() > 0).await?;
    let frozen = replica.clone();
    blocking(move || frozen.freeze()).await?;
    let others: Vec<Rule> = (0..deployment.replicas().len())
        .filter(|other| *other != schedule.victim)
        .flat_map(|other| deployment.ways(other, Link::Database))
        .map(|way| way.watch(stock_write()))
        .collect();
    let wrote = || others.iter().map(Rule::matched).sum::<u64>();
    let began = Instant::now();
    while wrote() == 0 && began.elapsed() < OTHERS_WRITE_WITHIN {
        sleep(POLL).await;
    }
    sleep(SETTLES).await;
    let (state, meanwhile, lasted) = (state_of(replica.pid()), wrote(), began.elapsed());
    // The COMMIT arrives and is answered while the replica still stands, so that no time-out of
    // its own comes first.
    let before = way.counts().bytes_to_client;
    held.release();
    let answered = until("the COMMIT is answered", || way.counts().bytes_to_client > before).await;
    blocking(move || replica.thaw()).await?;
    answered?;
    let others = match meanwhile {
        0 => "nobody else wrote".to_owned(),
        1 => "another wrote once".to_owned(),
        times => format!("others wrote {times} times"),
    };
    let text = format!(
        "{} was in state {state} for {} ms with its COMMIT on the way; {others} meanwhile",
        schedule.victim_name(),
        lasted.as_millis()
    );
    witness(state == 'T' && (meanwhile > 0 || !lapses), text)
}

/// The unguarded sale writes back the stock that it has read.
pub(super) fn stock_write() -> Command {
    let [start, part] = STOCK_WRITE;
    Command::sql(start).containing(part)
}
