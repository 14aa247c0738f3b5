//! The session of a `mysql-named` hold, and its heartbeat.

use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::Row;
use sqlx::mysql::MySqlRow;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::pinned::{ConnectionIdentity, PinnedConnection};
use super::session::StatementError;
use crate::{Renewal, Renewer, Request, Validity};

/// Asks whether the lock is the session's.
pub(crate) fn beat(hashed: &str) -> String {
    format!("SELECT COALESCE(IS_USED_LOCK({hashed}) = CONNECTION_ID(), 0)")
}

pub(crate) fn is_still_held(rows: &[MySqlRow]) -> Result<bool, StatementError> {
    match rows.first() {
        Some(row) => Ok(row.try_get::<i64, _>(0)? == 1),
        None => Ok(false),
    }
}

/// The session that holds the lock, shared by the hold and its heartbeat.
pub(crate) struct HeldSession {
    /// `None` once it is broken or ended.
    pub(crate) pinned: Mutex<Option<PinnedConnection>>,
    pub(crate) identity: Option<ConnectionIdentity>,
    pub(crate) hashed: String,
    /// The hold is ending: a heartbeat without an answer is given up.
    pub(crate) ending: CancellationToken,
}

impl Renewer for HeldSession {
    fn renew<'a>(&'a self, holds: &'a [Request]) -> BoxFuture<'a, Vec<Renewal>> {
        Box::pin(async move {
            let Some(request) = holds.first() else { return Vec::new() };
            let mut slot = self.pinned.lock().await;
            let renewal = match slot.as_mut() {
                Some(pinned) => self.beat(pinned, request.lease).await,
                None => Renewal::Lost,
            };
            if renewal == Renewal::Lost {
                // What is in doubt is closed by this.
                *slot = None;
            }
            vec![renewal]
        })
    }

    fn batch(&self) -> usize {
        1
    }
}

impl HeldSession {
    pub(crate) fn new(pinned: PinnedConnection, hashed: String) -> Self {
        Self {
            identity: pinned.identity().cloned(),
            pinned: Mutex::new(Some(pinned)),
            hashed,
            ending: CancellationToken::new(),
        }
    }

    async fn beat(&self, pinned: &mut PinnedConnection, lease: Duration) -> Renewal {
        let sql = beat(&self.hashed);
        let sent = Instant::now();
        let answer = tokio::select! {
            answer = pinned.raw_within(&sql, lease) => answer,
            () = self.ending.cancelled() => Err(StatementError::Silent),
        };
        match answer.and_then(|rows| is_still_held(&rows)) {
            Ok(true) => Renewal::Renewed(Validity::of_lease(sent, lease)),
            Err(StatementError::Answer { .. }) => Renewal::Unknown,
            // No answer for the whole lease: the validity has ended.
            Ok(false) | Err(_) => Renewal::Lost,
        }
    }
}
