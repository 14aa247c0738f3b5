//! The one mock of this project: a payment provider, because a real one cannot be had without a
//! contract. It takes no money. It keeps nothing, so that all replicas are the same
//! provider and one that restarts has forgotten nothing: the order is the payment.

use futures_util::future::BoxFuture;
use time::OffsetDateTime;

use super::signature::Signer;
use super::{Bill, Callback, Notice, PaymentStatus, Provider, ProviderError};

/// Amounts with these last three digits are declined, so that it can be seen what happens then.
const DECLINED: u64 = 402;

pub(super) struct Mock {
    signer: Signer,
}

impl Mock {
    pub(super) fn new(signer: Signer) -> Self {
        Self { signer }
    }
}

impl Provider for Mock {
    fn charge(&self, bill: Bill) -> BoxFuture<'_, Result<Callback, ProviderError>> {
        Box::pin(async move {
            let declined = bill.amount_cents % 1000 == DECLINED;
            let notice = Notice {
                payment_id: format!("mock-{}", bill.order),
                order_id: bill.order.to_string(),
                amount_cents: bill.amount_cents,
                status: if declined { PaymentStatus::Declined } else { PaymentStatus::Succeeded },
            };
            let body = serde_json::to_vec(&notice).map_err(|e| ProviderError(e.to_string()))?;
            let now = OffsetDateTime::now_utc().unix_timestamp();
            let signature = self.signer.sign(&body, now);
            Ok(Callback { body, signature })
        })
    }

    fn refund(&self, bill: Bill) -> BoxFuture<'_, Result<(), ProviderError>> {
        Box::pin(async move {
            tracing::info!(order = %bill.order, bill.amount_cents, "a payment is given back");
            Ok(())
        })
    }
}
