//! The sale: purchases of the direct and the queued mode, payment, cancellation, housekeeping.
//!
//! Reading order:
//!
//! - `purchase`: a purchase of the direct mode, top to bottom;
//! - `critical_section`: what it does under its lock;
//! - `single` and `batch_writer`: how its order is written;
//! - `queued`: the queued mode;
//! - `order_settlement` and `charge`: payment and cancellation;
//! - `dianping`: the purchase on the tables of hm-dianping.
//!
//! Nothing here knows HTTP or SQL.

mod attempt;
mod availability;
mod batch_writer;
mod charge;
mod config;
mod critical_section;
pub mod dianping;
mod early_rejection;
mod hold_times;
mod housekeeping;
mod in_flight_requests;
mod injected_bug;
mod lab_hooks;
mod lock_entry;
mod naive;
mod order_settlement;
mod outcome;
mod purchase;
mod queued;
mod request;
mod retry;
mod single;
mod sold_out_cache;
mod stepwise;
mod voucher_cache;

use std::sync::Arc;

use distlock::{LockKind, Locks};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::domain::VoucherId;
use crate::payment::Payments;
use crate::store::{Health, OrderIds, Orders, Vouchers};
use batch_writer::BatchWriter;
pub use config::{BatchLimits, Guards, LockOrder, OnLost, PurchaseMode, SaleConfig, Scope, Writer};
use critical_section::CriticalSection;
pub use critical_section::transaction_of;
pub use hold_times::{FenceReport, HoldReport, LockHoldTimes};
pub use housekeeping::Housekeeping;
use in_flight_requests::InFlightRequests;
pub use injected_bug::InjectedBug;
use order_settlement::OrderSettlement;
pub use outcome::{Outcome, Refusal, SettlementOutcome};
pub use queued::{AdmissionOutcome, Queue, QueueParts, TicketProgress, TicketSigner};
pub use request::PurchaseRequest;
use sold_out_cache::SoldOutCache;
use voucher_cache::{SoldOutPolicy, VoucherCache};

/// Servers and settings that purchases need.
pub struct Parts {
    /// The database's pool.
    pub pool: sqlx::MySqlPool,
    /// The orders.
    pub orders: Orders,
    /// The vouchers.
    pub vouchers: Vouchers,
    /// Numbers for orders.
    pub ids: OrderIds,
    /// The locks.
    pub locks: Locks,
    /// Their kind. A fence's name contains it: the tokens of two kinds are two sequences.
    pub lock_kind: LockKind,
    /// The name of the server that has the locks.
    pub lock_server: &'static str,
    /// Whether the servers answer.
    pub health: Health,
    /// The payment provider, if there is one.
    pub payments: Option<Payments>,
    /// What the queued mode needs; without it the mode is direct.
    pub queue: Option<QueueParts>,
}

/// The sale. Cheap to clone.
#[derive(Clone)]
pub struct Sale {
    config: Arc<SaleConfig>,
    health: Health,
    voucher_cache: VoucherCache,
    /// Answers "sold out" from memory, if that is on.
    sold_out_cache: Option<SoldOutCache>,
    /// Places for purchases that are not answered yet.
    admission: Arc<Semaphore>,
    /// Slots for answered purchases that still hold their lock, as many as places.
    release_slots: Arc<Semaphore>,
    section: Arc<CriticalSection>,
    queue: Option<Queue>,
    settlement: Arc<OrderSettlement>,
    /// Places for payments, cancellations and callbacks that have not ended.
    settlement_slots: Arc<Semaphore>,
    in_flight: InFlightRequests,
    tasks: TaskTracker,
}

impl Sale {
    /// A sale with these settings.
    pub fn new(config: SaleConfig, mut parts: Parts) -> Self {
        let config = Arc::new(config);
        let sold_out_cache =
            config.uses_sold_out_cache().then(|| SoldOutCache::new(parts.orders.clone()));
        let never_expires = config.injected_bug == Some(InjectedBug::SoldOutForEver);
        let policy = sold_out_cache.clone().map(|cache| SoldOutPolicy { cache, never_expires });
        let mode = if parts.queue.is_some() { PurchaseMode::Queued } else { PurchaseMode::Direct };
        let voucher_cache = VoucherCache::new(parts.vouchers.clone(), mode, policy);
        let batch_writer = BatchWriter::new(&config, &parts);
        let queue = parts.queue.take().map(|queue| {
            Queue::new(&config, &parts, voucher_cache.clone(), batch_writer.clone(), queue)
        });
        Self {
            health: parts.health.clone(),
            voucher_cache,
            sold_out_cache,
            admission: Arc::new(Semaphore::new(config.max_orders)),
            release_slots: Arc::new(Semaphore::new(config.max_orders)),
            settlement: Arc::new(OrderSettlement {
                orders: parts.orders.clone(),
                pool: parts.pool.clone(),
                payments: parts.payments.clone(),
            }),
            settlement_slots: Arc::new(Semaphore::new(config.max_orders)),
            in_flight: InFlightRequests::default(),
            section: Arc::new(CriticalSection::new(Arc::clone(&config), parts, batch_writer)),
            queue,
            tasks: TaskTracker::new(),
            config,
        }
    }

    /// The queue, in the queued mode.
    pub fn queue(&self) -> Option<&Queue> {
        self.queue.as_ref()
    }

    /// Drops a changed voucher from the cache. Other replicas see the change within a second.
    pub fn invalidate(&self, voucher: VoucherId) {
        self.voucher_cache.invalidate(voucher);
    }

    /// Runs work in a task that a client's hang-up does not abort and that the end of the process
    /// waits for. `None` if it panicked.
    pub async fn run_to_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        self.tasks.spawn(work.in_current_span()).await.ok()
    }

    /// Waits until no purchase is in flight, at the end of the process.
    pub async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        if let Some(queue) = &self.queue {
            queue.finish().await;
        }
        self.section.locks().flush().await;
    }
}
