//! Taking money: what the service wants of a payment provider, and how its word is checked.
//!
//! A provider is asked to charge an order, once or often: the same order is the same payment. That
//! it has the money it says in a callback, whose signature proves who speaks and whose time that it
//! is not an old one played again (`signature`). Callbacks reach the service by HTTP, or as the
//! answer to a charge; either way they are checked alike, and a repeated one changes nothing.

mod mock;
mod signature;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio::time::timeout;

use crate::domain::OrderId;
use crate::token::WeakSecret;
use mock::Mock;
use signature::Signer;

/// The longest time for an answer of the provider.
const CALL: Duration = Duration::from_secs(10);

/// The bill of an order.
#[derive(Debug, Clone, Copy)]
pub struct Bill {
    /// For which order: the provider's idempotency key as well.
    pub order: OrderId,
    /// How much, in cents.
    pub amount_cents: u64,
}

/// What a provider says of a payment.
#[derive(Debug, Clone)]
pub struct Callback {
    /// The bytes that are signed.
    pub body: Vec<u8>,
    /// The header `Payment-Signature`.
    pub signature: String,
}

/// The body of a callback.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Notice {
    /// The provider's name of the payment.
    pub payment_id: String,
    /// Of which order.
    pub order_id: String,
    /// How much, in cents.
    pub amount_cents: u64,
    /// Its outcome.
    pub status: PaymentStatus,
}

/// The outcome of a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaymentStatus {
    /// The provider has the money.
    Succeeded,
    /// It does not get it.
    Declined,
}

/// A call to the provider without a valid answer. Its effect is unknown; it may be repeated.
#[derive(Debug, thiserror::Error)]
#[error("the payment provider gave no answer that counts: {0}")]
pub struct ProviderError(pub String);

/// The payment provider.
pub trait Provider: Send + Sync {
    /// Takes the money for an order. Charged again, it is the same payment.
    fn charge(&self, bill: Bill) -> BoxFuture<'_, Result<Callback, ProviderError>>;

    /// Gives back what was taken for an order, once, however often it is asked.
    fn refund(&self, bill: Bill) -> BoxFuture<'_, Result<(), ProviderError>>;
}

/// A provider, and the secret that it signs with. Cheap to clone.
#[derive(Clone)]
pub struct Payments {
    provider: Arc<dyn Provider>,
    signer: Signer,
}

/// A callback that proves nothing: a wrong signature, an old one, or an unreadable body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unproven;

impl Payments {
    /// Payments by the mock, which signs with that secret; a weak one is refused.
    pub fn mocked(secret: &SecretString) -> Result<Self, WeakSecret> {
        let signer = Signer::new(secret)?;
        Ok(Self { provider: Arc::new(Mock::new(signer.clone())), signer })
    }

    /// Takes the money. Returns what the provider has proved about this bill.
    pub async fn charge(&self, bill: Bill) -> Result<Notice, ProviderError> {
        let callback = within(self.provider.charge(bill)).await?;
        let notice = self.check(&callback.body, callback.signature.as_bytes());
        let notice = notice.map_err(|Unproven| no("it is not signed as agreed"))?;
        if notice.order_id != bill.order.to_string() {
            return Err(no("it is about another order"));
        }
        if notice.amount_cents != bill.amount_cents {
            return Err(no("it is about another amount"));
        }
        Ok(notice)
    }

    /// Gives the money back.
    pub async fn refund(&self, bill: Bill) -> Result<(), ProviderError> {
        within(self.provider.refund(bill)).await
    }

    /// What a callback says, if it proves that the provider says so, and now.
    pub fn check(&self, body: &[u8], signature: &[u8]) -> Result<Notice, Unproven> {
        let now = OffsetDateTime::now_utc().unix_timestamp();
        self.signer.verify(body, signature, now)?;
        serde_json::from_slice(body).map_err(|_| Unproven)
    }
}

fn no(what: &str) -> ProviderError {
    ProviderError(what.to_owned())
}

async fn within<T>(
    call: impl Future<Output = Result<T, ProviderError>>,
) -> Result<T, ProviderError> {
    timeout(CALL, call).await.unwrap_or_else(|_| Err(no("it came too late")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has the money for another bill than the one that it is sent.
    struct ConfusedProvider {
        mock: Mock,
        charges: Bill,
    }

    impl Provider for ConfusedProvider {
        fn charge(&self, _: Bill) -> BoxFuture<'_, Result<Callback, ProviderError>> {
            Box::pin(async move { self.mock.charge(self.charges).await })
        }

        fn refund(&self, bill: Bill) -> BoxFuture<'_, Result<(), ProviderError>> {
            Box::pin(async move { self.mock.refund(bill).await })
        }
    }

    #[tokio::test]
    async fn an_answer_about_another_order_or_amount_pays_nothing() {
        let secret = "0123456789abcdef0123456789abcdef".to_owned().into();
        let signer = Signer::new(&secret).unwrap();
        let bill = |order, amount_cents| Bill { order: OrderId(order), amount_cents };
        let asked = bill(7, 8000);
        for (charges, counts) in [(asked, true), (bill(8, 8000), false), (bill(7, 7999), false)] {
            let mock = Mock::new(signer.clone());
            let provider = Arc::new(ConfusedProvider { mock, charges });
            let payments = Payments { provider, signer: signer.clone() };
            let charged = payments.charge(asked).await;
            assert_eq!(charged.is_ok(), counts, "{charges:?}: {charged:?}");
        }
    }
}
