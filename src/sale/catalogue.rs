//! What a purchase must know of a voucher, and what time it is.
//!
//! The clock of the sale is the database's: one for all replicas. A replica reads voucher and
//! clock together, keeps both for at most a second, and counts on from there by its own monotonic
//! clock. So the window opens everywhere within a round trip of the same moment, however wrong a
//! replica's wall clock is, and a change by an admin counts everywhere within a second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moka::future::Cache;
use time::OffsetDateTime;

use super::Refusal;
use crate::domain::{Status, VoucherId, Window};
use crate::store::{StoreError, Vouchers};

/// How long a voucher is believed.
const LIFE: Duration = Duration::from_secs(1);
/// How many vouchers are kept.
const MOST: u64 = 1024;

/// The terms on which a voucher is sold.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) title: String,
    pub(super) price_cents: u64,
    pub(super) window: Window,
    pub(super) status: Status,
    server_time: OffsetDateTime,
    read_at: Instant,
}

impl Terms {
    /// The same at that price, which may be an earlier one.
    pub(super) fn at_price(self: Arc<Self>, price_cents: u64) -> Arc<Self> {
        if self.price_cents == price_cents {
            return self;
        }
        Arc::new(Self { price_cents, ..(*self).clone() })
    }

    /// The database's time, in whole milliseconds.
    pub(super) fn now(&self) -> OffsetDateTime {
        let elapsed = self.read_at.elapsed();
        self.server_time + Duration::from_millis(elapsed.as_millis().try_into().unwrap_or(0))
    }
}

#[derive(Clone)]
pub(super) struct Catalogue {
    vouchers: Vouchers,
    terms: Cache<VoucherId, Option<Arc<Terms>>>,
}

impl Catalogue {
    pub(super) fn new(vouchers: Vouchers) -> Self {
        let terms = Cache::builder().max_capacity(MOST).time_to_live(LIFE).build();
        Self { vouchers, terms }
    }

    /// The terms; of many that ask at once, one reads. `None` if there is no such voucher.
    pub(super) async fn terms(&self, voucher: VoucherId) -> Result<Option<Arc<Terms>>, Refusal> {
        self.terms.try_get_with(voucher, self.read(voucher)).await.map_err(|error| match &*error {
            StoreError::Busy => Refusal::Overloaded,
            StoreError::NoAnswer { server } | StoreError::Unavailable { server, .. } => {
                Refusal::Unavailable(server)
            }
            error => {
                tracing::error!(%error, "a voucher could not be read");
                Refusal::Defect
            }
        })
    }

    async fn read(&self, voucher: VoucherId) -> Result<Option<Arc<Terms>>, StoreError> {
        let found = self.vouchers.find(voucher).await?;
        let read_at = Instant::now();
        Ok(found.map(|(voucher, server_time)| {
            Arc::new(Terms {
                title: voucher.title,
                price_cents: voucher.price_cents,
                window: voucher.window,
                status: voucher.status,
                server_time,
                read_at,
            })
        }))
    }
}
