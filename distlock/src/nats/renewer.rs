//! The heartbeat: each entry is written again, which gives it the whole TTL.

use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};
use tokio::time::{Instant, timeout};

use super::bucket::{MAX_TRIES, NatsBucket, NatsError, RESPONSE_TIMEOUT};
use super::key::{EntryText, entry_text, key_of};
use crate::{Renewal, Renewer, Request, Validity};

/// Of the time between two renewals, three fit into the TTL.
const RENEWALS_PER_TTL: u32 = 3;

/// Renews the holds of one bucket.
pub(crate) struct NatsRenewer {
    pub(crate) bucket: Arc<NatsBucket>,
}

impl Renewer for NatsRenewer {
    fn renew<'a>(&'a self, holds: &'a [Request]) -> BoxFuture<'a, Vec<Renewal>> {
        Box::pin(async move {
            let shortest = holds.iter().map(|hold| hold.lease).min().unwrap_or(RESPONSE_TIMEOUT);
            let limit = RESPONSE_TIMEOUT.min(shortest / RENEWALS_PER_TTL);
            join_all(holds.iter().map(
                async |hold| match timeout(limit, self.renew_one(hold)).await {
                    Ok(Ok(renewal)) => renewal,
                    Ok(Err(_)) | Err(_) => Renewal::Unknown,
                },
            ))
            .await
        })
    }
}

impl NatsRenewer {
    async fn renew_one(&self, hold: &Request) -> Result<Renewal, NatsError> {
        let key = key_of(hold.name.as_str());
        for _ in 0..MAX_TRIES {
            let bucket = self.bucket.open().await?;
            let entry = match bucket.read(&key).await {
                Err(NatsError::NoBucket) => {
                    self.bucket.forget(&bucket).await;
                    return Ok(Renewal::Lost);
                }
                read => read?,
            };
            let text = entry.value.as_deref().map(EntryText::read);
            let Some(text) = text.filter(|text| text.is_of(hold)) else {
                return Ok(Renewal::Lost);
            };
            let value = entry_text(hold, text.token.or(Some(entry.revision)));
            let sent = Instant::now();
            match bucket.write(&key, entry.revision, Some(&value)).await {
                Ok(_) => return Ok(Renewal::Renewed(Validity::of_lease(sent, bucket.ttl()))),
                // A renewal of its own may have come before it.
                Err(NatsError::Conflict) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(Renewal::Unknown)
    }
}
