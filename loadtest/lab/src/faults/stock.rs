//! Stock that is added in the middle of a sale, after all of it was sold.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use loadtest_load::api;
use loadtest_load::client::{Connection, Target};
use loadtest_load::history::{Grant, Recorder};
use loadtest_measure::error::{Error, Result};
use tokio::time::{Instant, sleep};

use super::{FaultContext, POLL_INTERVAL, witness};

/// How many units are added.
const ADDED_UNITS: u32 = 60;
/// How long all units may take to be sold.
const SELL_OUT_TIMEOUT: Duration = Duration::from_secs(15);
/// How long the stock stays empty before units are added, so that every replica has cached it.
const SOLD_OUT_DURATION: Duration = Duration::from_millis(1500);
/// How long a call may take.
const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// Adds stock to a round's voucher, and records the grants.
#[derive(Debug)]
pub struct StockAdmin {
    /// The deployment's address.
    url: String,
    voucher: u64,
    admin: HeaderValue,
    /// The clock of the round's history.
    clock: Recorder,
    grants: Mutex<Vec<Grant>>,
}

impl StockAdmin {
    /// An administrator of that voucher.
    pub fn new(url: String, voucher: u64, admin: HeaderValue, clock: Recorder) -> Self {
        Self { url, voucher, admin, clock, grants: Mutex::default() }
    }

    /// The deployment's address.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The round's voucher.
    pub(super) fn voucher(&self) -> u64 {
        self.voucher
    }

    /// The administrator's token.
    pub(super) fn authorization(&self) -> &HeaderValue {
        &self.admin
    }

    /// What was added, and when that was acknowledged.
    pub fn grants(&self) -> Vec<Grant> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn left(&self, connection: &mut Connection) -> Result<i64> {
        let voucher = api::voucher(connection, &self.voucher.to_string()).await;
        let left = voucher.map_err(|error| Error::Setup(error.to_string()))?.stock;
        left.ok_or_else(|| Error::Setup("the service does not report what is left".to_owned()))
    }

    async fn add(&self, connection: &mut Connection) -> Result<()> {
        let added = api::add_stock(connection, &self.admin, (self.voucher, ADDED_UNITS)).await;
        added.map_err(|error| Error::Setup(error.to_string()))?;
        let grant = Grant { t: self.clock.now(), v: self.voucher, units: ADDED_UNITS.into() };
        self.grants.lock().unwrap_or_else(PoisonError::into_inner).push(grant);
        Ok(())
    }
}

/// Witness: how many units were added when nothing was left.
pub(super) async fn add(context: &FaultContext<'_>) -> Result<String> {
    let stock_admin = context.stock_admin;
    let mut connection = Connection::new(Target::parse(&stock_admin.url)?, CALL_DEADLINE);
    let deadline = Instant::now() + SELL_OUT_TIMEOUT;
    let mut left = stock_admin.left(&mut connection).await?;
    while left > 0 && Instant::now() < deadline {
        sleep(POLL_INTERVAL).await;
        left = stock_admin.left(&mut connection).await?;
    }
    sleep(SOLD_OUT_DURATION).await;
    let still_left = stock_admin.left(&mut connection).await?;
    stock_admin.add(&mut connection).await?;
    let ms = SOLD_OUT_DURATION.as_millis();
    let text =
        format!("{ADDED_UNITS} units were added when {still_left} had been left for {ms} ms");
    witness(left <= 0 && still_left <= 0, text)
}
