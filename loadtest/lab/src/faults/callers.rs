//! Callers who ask for what they must not get: units of a sale that is closed, and the routes of
//! admins without being one.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use loadtest_judge::audit::DatabaseReader;
use loadtest_judge::setting::Guards;
use loadtest_judge::verdict::Rule;
use loadtest_load::api::{self, NewVoucher};
use loadtest_load::client::{Connection, Target};
use loadtest_load::moment::rfc3339;
use loadtest_measure::error::{Error, Result};
use time::OffsetDateTime;
use tokio::time::{Instant, sleep};

use super::{FaultContext, POLL_INTERVAL, witness};

/// How long a call may take.
const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// How far a closed sale is from now: no two clocks differ by as much.
const FAR: time::Duration = time::Duration::hours(1);
/// Units of a closed sale.
const CLOSED_UNITS: u64 = 50;
/// Buyers who ask each replica for a closed sale.
const BUYERS_PER_REPLICA: usize = 5;
/// How long the order of a ticket may take to be written.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Units that a stranger wants to add.
const STRANGE_UNITS: u32 = 30;

/// What faults see of rules themselves.
#[derive(Debug, Default)]
pub struct SeenRules(Mutex<Vec<(Rule, bool, String)>>);

impl SeenRules {
    fn add(&self, rule: Rule, kept: bool, detail: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((rule, kept, detail));
    }

    /// Each rule, whether it was kept, and the figures.
    pub fn take(&self) -> Vec<(Rule, bool, String)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Setup(error.to_string())
}

/// Witness: how many asked, and how many were refused.
pub(super) async fn ask_outside_of_window(context: &FaultContext<'_>) -> Result<String> {
    let now = OffsetDateTime::now_utc();
    let windows = [("over", [now - FAR * 2, now - FAR]), ("to come", [now + FAR, now + FAR * 2])];
    let mut seen = Vec::new();
    let (mut asked, mut orders) = (0, 0);
    for (name, [from, until]) in windows {
        let admin = context.stock_admin;
        let mut connection = Connection::new(Target::parse(admin.url())?, CALL_DEADLINE);
        let (starts_at, ends_at) = (rfc3339(from), rfc3339(until));
        let new = NewVoucher { starts_at, ends_at, ..NewVoucher::of_now(CLOSED_UNITS) };
        let voucher = api::put_on_sale(&mut connection, admin.authorization(), &new).await;
        let voucher = voucher.map_err(failed)?;
        let statuses = ask(context, voucher).await?;
        let refused = statuses.iter().filter(|status| **status >= 400).count();
        let written = orders_of(context, voucher, statuses.len() - refused).await?;
        asked += statuses.len();
        orders += written;
        seen.push(format!(
            "{} asked for a sale that is {name}: {refused} refused, {written} orders",
            statuses.len()
        ));
    }
    let seen = seen.join("; ");
    context.seen.add(Rule::SoldWithinWindow, orders == 0, seen.clone());
    witness(asked > 0, seen)
}

/// The statuses of the answers to buyers of each replica.
async fn ask(context: &FaultContext<'_>, voucher: u64) -> Result<Vec<u16>> {
    let mut statuses = Vec::new();
    let mut buyers = context.buyers.iter();
    for replica in context.deployment.replicas() {
        let mut connection = Connection::new(Target::parse(replica.base_url())?, CALL_DEADLINE);
        for buyer in buyers.by_ref().take(BUYERS_PER_REPLICA) {
            let status = api::ask_for_unit(&mut connection, &buyer.authorization, voucher).await;
            statuses.push(status.map_err(failed)?);
        }
    }
    Ok(statuses)
}

/// Orders of that voucher, once as many are written as were accepted or the time is over.
async fn orders_of(context: &FaultContext<'_>, voucher: u64, accepted: usize) -> Result<usize> {
    let mut reader = DatabaseReader::connect(&context.deployment.database_url()).await?;
    let deadline = Instant::now() + WRITE_TIMEOUT;
    loop {
        let is_last = Instant::now() >= deadline;
        let orders = reader.read(&voucher.to_string(), Guards::On).await?.rows.len();
        if orders >= accepted || is_last {
            return Ok(orders);
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Witness: how each of them was answered.
pub(super) async fn add_stock_as_strangers(context: &FaultContext<'_>) -> Result<String> {
    let admin = context.stock_admin;
    let mut connection = Connection::new(Target::parse(admin.url())?, CALL_DEADLINE);
    let buyer = context.buyers.first().map(|buyer| &buyer.authorization);
    let mut answers = Vec::new();
    for (caller, authorization) in [("without a token", None), ("a buyer", buyer)] {
        let units = (admin.voucher(), STRANGE_UNITS);
        let status = api::add_stock_as(&mut connection, authorization, units).await;
        answers.push(format!("{caller}: {}", status.map_err(failed)?));
    }
    let answers = answers.join(", ");
    witness(buyer.is_some(), format!("asked to add {STRANGE_UNITS} units, {answers}"))
}
