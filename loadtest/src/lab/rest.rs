//! What is left after a fault is sold: only then does it show whether a unit was sold twice, or was
//! lost.
//!
//! Buyers come in waves, each larger than what the database says is left, until it says that
//! nothing is and somebody was told so. Both are needed: a "sold out" while units are left is a
//! refusal like any other, and an empty stock that nobody met may still oversell. The last wave
//! ends with the whole: then no purchase begins any more, and those in flight have their own
//! time-out.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::error::Result;
use crate::lab::sale::Sale;
use crate::lab::whole::Whole;
use crate::load::client::Target;
use crate::load::live::Live;
use crate::load::outcome::Outcome;
use crate::load::plan::Plan;
use crate::load::tokens::User;

/// How long it may take.
pub(super) const SOLD_OUT_WITHIN: Duration = Duration::from_secs(30);
/// Buyers beyond the units that are left.
const BEYOND: usize = 60;
/// So few ask at a time that each has the lock of the voucher before it gives up.
const AT_A_TIME: usize = 24;

/// Sells what is left to these, the first of them first; whether all of it was sold in time.
pub(super) async fn sell(sale: &Sale<'_>, buyers: &[User], whole: &mut Whole) -> Result<bool> {
    let deadline = Instant::now() + SOLD_OUT_WITHIN;
    let target = Target::parse(sale.deployment.url())?;
    let mut buyers_again = buyers.iter().cycle();
    let mut left = sale.left().await?;
    while Instant::now() < deadline {
        let wanted = usize::try_from(left).unwrap_or(0).saturating_add(BEYOND).min(buyers.len());
        let wave: Vec<User> = buyers_again.by_ref().take(wanted).cloned().collect();
        let plan = sale.plan(&wave, target.clone(), sale.load.requests_per_user);
        let plan = Plan { connections: AT_A_TIME, ..plan };
        let (live, stop) = (Arc::new(Live::new(&plan)), CancellationToken::new());
        tokio::select! {
            sent = whole.run(&plan, &live, &stop) => { sent?; }
            () = cancel_at(deadline, &stop) => {}
        }
        left = sale.left().await?;
        if is_sold_out(left, live.glance().count(Outcome::SoldOut)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether nothing is left, and somebody was told so.
fn is_sold_out(left: i64, told: u64) -> bool {
    left <= 0 && told > 0
}

/// Cancels it then, and never ends.
async fn cancel_at(deadline: Instant, stop: &CancellationToken) {
    sleep_until(deadline).await;
    stop.cancel();
    std::future::pending::<()>().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_sold_out_when_nothing_is_left_and_somebody_was_told_so() {
        assert!(is_sold_out(0, 1));
        assert!(!is_sold_out(1, 5), "who was told so was told a lie");
        assert!(!is_sold_out(0, 0), "nobody has tried to buy one more");
    }
}
