//! Stock that is added in the middle of a sale, when all of it had been sold.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use tokio::time::{Instant, sleep};

use super::{POLL, Scene, witness};
use crate::api;
use crate::error::{Error, Result};
use crate::history::{Grant, Recorder};
use crate::load::client::{Connection, Target};

/// How many units are added.
const UNITS: u32 = 60;
/// How long all units may take to be sold.
const SOLD_WITHIN: Duration = Duration::from_secs(15);
/// So long everybody is told meanwhile that nothing is left, and believes it.
const BELIEVED_FOR: Duration = Duration::from_millis(1500);
/// How long a call may take.
const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// Who adds stock to the voucher of a round, and what was added.
#[derive(Debug)]
pub struct Clerk {
    /// The deployment's address.
    url: String,
    voucher: u64,
    admin: HeaderValue,
    /// The clock of the round's history.
    clock: Recorder,
    grants: Mutex<Vec<Grant>>,
}

impl Clerk {
    /// An administrator of that voucher.
    pub fn new(url: String, voucher: u64, admin: HeaderValue, clock: Recorder) -> Self {
        Self { url, voucher, admin, clock, grants: Mutex::default() }
    }

    /// What was added, and when that was acknowledged.
    pub fn grants(&self) -> Vec<Grant> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn left(&self, connection: &mut Connection) -> Result<i64> {
        let voucher = api::voucher(connection, &self.voucher.to_string()).await;
        let left = voucher.map_err(|error| Error::Setup(error.to_string()))?.stock;
        left.ok_or_else(|| Error::Setup("the service does not tell what is left".to_owned()))
    }

    async fn add(&self, connection: &mut Connection) -> Result<()> {
        let added = api::add_stock(connection, &self.admin, (self.voucher, UNITS)).await;
        added.map_err(|error| Error::Setup(error.to_string()))?;
        let grant = Grant { t: self.clock.now(), v: self.voucher, units: UNITS.into() };
        self.grants.lock().unwrap_or_else(PoisonError::into_inner).push(grant);
        Ok(())
    }
}

/// Witness: how many units were added when nothing was left.
pub(super) async fn add(scene: &Scene<'_>) -> Result<String> {
    let clerk = scene.clerk;
    let mut connection = Connection::new(Target::parse(&clerk.url)?, CALL_DEADLINE);
    let deadline = Instant::now() + SOLD_WITHIN;
    let mut left = clerk.left(&mut connection).await?;
    while left > 0 && Instant::now() < deadline {
        sleep(POLL).await;
        left = clerk.left(&mut connection).await?;
    }
    sleep(BELIEVED_FOR).await;
    let still_left = clerk.left(&mut connection).await?;
    clerk.add(&mut connection).await?;
    let ms = BELIEVED_FOR.as_millis();
    let text = format!("{UNITS} units were added when {still_left} had been left for {ms} ms");
    witness(left <= 0 && still_left <= 0, text)
}
