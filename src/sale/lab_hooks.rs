//! Hooks of the laboratory in a purchase: hold times, extra work, injected bugs.
//!
//! The purchase calls them at fixed points. Without `--lab` each is a comparison, or nothing.
//! Failpoints are separate ([`crate::failpoint`]): a program without them has none of their code.

use std::time::{Duration, Instant};

use distlock::{Guard, HoldKind, LossCause, LostSignal};
use tokio::time::sleep;

use super::hold_times::HoldLoss;
use super::{InjectedBug, LockHoldTimes, LockOrder, SaleConfig};
use crate::failpoint::{self, reach};

/// Settings of the hooks.
pub(super) struct LabHooks {
    injected_bug: Option<InjectedBug>,
    work: Duration,
    /// The same in the section of the order.
    section_work: Duration,
    /// Whether the lock has hold times: not if it holds nothing, nor if it ends amid COMMIT.
    records_holds: bool,
}

impl LabHooks {
    /// Hooks for purchases whose lock is held that way.
    pub(super) fn new(config: &SaleConfig, hold: HoldKind) -> Self {
        Self {
            injected_bug: config.injected_bug,
            work: config.work,
            section_work: match config.lock_order {
                LockOrder::ReadFirst => Duration::ZERO,
                _ => config.work,
            },
            records_holds: !matches!(hold, HoldKind::Nothing | HoldKind::Transaction),
        }
    }

    /// Whether this replica has that bug.
    pub(super) fn has_bug(&self, bug: InjectedBug) -> bool {
        self.injected_bug == Some(bug)
    }

    /// The lock was granted.
    pub(super) fn on_locked(&self, times: Option<&LockHoldTimes>) {
        if let Some(times) = times.filter(|_| self.records_holds) {
            times.grant(Instant::now());
        }
        reach(failpoint::LOCKED);
    }

    /// The order is inserted, and its unit is not taken yet.
    pub(super) async fn on_order_inserted(&self) {
        reach(failpoint::ORDER_INSERTED);
        self.simulate_section_work().await;
    }

    /// Extra time under the lock.
    pub(super) async fn simulate_work(&self) {
        pause(self.work).await;
    }

    /// Extra time inside the section of the order.
    pub(super) async fn simulate_section_work(&self) {
        pause(self.section_work).await;
    }
}

/// Even a sleep of zero may take a millisecond.
async fn pause(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

/// How the hold is lost, if it is.
fn loss_of(signal: &LostSignal) -> Option<HoldLoss> {
    let end = signal.validity().deadline().map(tokio::time::Instant::into_std);
    match signal.cause()? {
        LossCause::Expired => Some(end.map_or(HoldLoss::Denied, HoldLoss::EndOfValidity)),
        LossCause::Taken => Some(HoldLoss::Denied),
    }
}

/// The lock is about to be released; only the first call of a hold counts.
pub(super) fn on_release(times: Option<&LockHoldTimes>, guard: &Guard) {
    if let Some(times) = times {
        times.release(Instant::now(), || loss_of(&guard.lost_signal()));
    }
}
