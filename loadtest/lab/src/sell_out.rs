//! Sells the remaining units after a fault: only then does it show whether a unit was sold twice,
//! or was lost.
//!
//! Buyers come in waves, each larger than the stock left in the database, until the stock is empty
//! and a buyer was told "sold out". Both are needed: a "sold out" while units are left is a refusal
//! like any other, and an empty stock that no buyer has met may still oversell. The last wave ends
//! when the sale is sold out: no more purchases begin, and those in flight have their own time-out.

use std::sync::Arc;
use std::time::Duration;

use loadtest_load::client::Target;
use loadtest_load::live::LiveFigures;
use loadtest_load::outcome::Outcome;
use loadtest_load::plan::Plan;
use loadtest_load::tokens::User;
use loadtest_measure::error::Result;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::round_history::RoundHistory;
use crate::sale::Sale;

/// How long it may take.
pub(super) const SOLD_OUT_WITHIN: Duration = Duration::from_secs(30);
/// Buyers beyond the units that are left.
const SURPLUS_BUYERS: usize = 60;
/// Buyers at a time: few enough that each gets the voucher's lock before its wait ends.
const CONCURRENT_BUYERS: usize = 24;

/// Sells what is left to these, the first of them first; whether all of it was sold in time.
pub(super) async fn sell(
    sale: &Sale<'_>,
    buyers: &[User],
    whole: &mut RoundHistory,
) -> Result<bool> {
    let deadline = Instant::now() + SOLD_OUT_WITHIN;
    let target = Target::parse(sale.deployment.url())?;
    let mut buyers_again = buyers.iter().cycle();
    let mut left = sale.left().await?;
    while Instant::now() < deadline {
        let wanted =
            usize::try_from(left).unwrap_or(0).saturating_add(SURPLUS_BUYERS).min(buyers.len());
        let wave: Vec<User> = buyers_again.by_ref().take(wanted).cloned().collect();
        let plan = sale.plan(&wave, target.clone(), sale.load.requests_per_user);
        let plan = Plan { connections: CONCURRENT_BUYERS, ..plan };
        let (live, stop) = (Arc::new(LiveFigures::new(&plan)), CancellationToken::new());
        tokio::select! {
            sent = whole.run(&plan, &live, &stop) => { sent?; }
            () = cancel_at(deadline, &stop) => {}
        }
        left = sale.left().await?;
        if is_sold_out(left, live.snapshot().count(Outcome::SoldOut)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether nothing is left, and a buyer was told so.
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
    fn a_sale_is_sold_out_when_nothing_is_left_and_a_sold_out_was_answered() {
        assert!(is_sold_out(0, 1));
        assert!(!is_sold_out(1, 5), "who was told so was told a lie");
        assert!(!is_sold_out(0, 0), "nobody has tried to buy one more");
    }
}
