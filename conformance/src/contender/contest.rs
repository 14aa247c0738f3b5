//! Tasks that want the same lock.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::counts::when_busy;
use conformance::clock::{at_ns, now_ns};
use conformance::counter::Counter;
use conformance::protocol::{Contest, ContestResult, Failure, SectionRecord};
use distlock::{Guard, Locks, LostSignal};
use tokio::task::{JoinSet, spawn_blocking, yield_now};

pub(crate) async fn contend(locks: &Locks, contest: Contest) -> Result<ContestResult, Failure> {
    let counter = Arc::new(Counter::open(&contest.counter)?);
    let contest = Arc::new(contest);
    let mut tasks = JoinSet::new();
    for task in 0..contest.tasks {
        let (locks, contest, counter) = (locks.clone(), Arc::clone(&contest), Arc::clone(&counter));
        tasks.spawn(async move {
            let mut brought = ContestResult::default();
            for _ in 0..contest.rounds {
                if contest.until_ns.is_some_and(|until_ns| now_ns() >= until_ns) {
                    break;
                }
                match enter_section(task, &locks, &contest, &counter).await {
                    Ok(record) => brought.records.push(record),
                    Err(failure) => *brought.failures.entry(failure.code).or_default() += 1,
                }
            }
            brought
        });
    }
    let mut all = ContestResult::default();
    for brought in tasks.join_all().await {
        all.records.extend(brought.records);
        for (code, count) in brought.failures {
            *all.failures.entry(code).or_default() += count;
        }
    }
    Ok(all)
}

/// One round. A failed release does not change the record.
async fn enter_section(
    task: u32,
    locks: &Locks,
    contest: &Contest,
    counter: &Counter,
) -> Result<SectionRecord, Failure> {
    let asked_ns = now_ns();
    let (guard, busy_ns) = when_busy(super::acquire(locks, &contest.request)).await;
    let guard = guard?;
    let acquired_ns = now_ns();
    let wrote = work(&guard.lost_signal(), contest, counter).await?;
    let valid_until_ns = valid_until_ns(&guard);
    let token = guard.token().map_or(0, |token| token.0);
    let released = guard.release().await;
    let released_ns = now_ns();
    if let Err(error) = released {
        eprintln!("contender: a release failed: {error}");
    }
    Ok(SectionRecord {
        task,
        asked_ns,
        busy_ns,
        acquired_ns,
        valid_until_ns,
        released_ns,
        wrote,
        token,
    })
}

async fn work(loss: &LostSignal, contest: &Contest, counter: &Counter) -> Result<bool, Failure> {
    let seen = counter.read()?;
    match contest.hold_us {
        0 => yield_now().await,
        hold_us => hold(Duration::from_micros(hold_us)).await?,
    }
    let may = contest.ignore_loss || !loss.is_lost();
    if may {
        counter.write(seen + 1)?;
    }
    Ok(may)
}

/// To the microsecond, which the runtime's timer does not do.
async fn hold(time: Duration) -> Result<(), Failure> {
    let held = spawn_blocking(move || thread::sleep(time)).await;
    held.map_err(|error| super::failure("panicked", &error))
}

/// Now, or when validity ended.
fn valid_until_ns(guard: &Guard) -> u64 {
    let now = now_ns();
    guard.validity().deadline().map_or(now, |deadline| at_ns(deadline).min(now))
}
