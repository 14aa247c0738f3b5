//! How long a call waits for its answer.
//!
//! A server that was frozen keeps its connections open. Once the pool leads to another one, no
//! answer of the old server is worth a wait, and a COMMIT there is one whose outcome is found out.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use sqlx::MySqlPool;
use sqlx::mysql::MySqlConnectOptions;
use tokio::time::timeout;

/// The longest time for one statement. Longer than `innodb_lock_wait_timeout` of our sessions
/// (3 s), so that the server's own answer comes first.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a waiting statement asks whether the pool has left its server.
const ASK_INTERVAL: Duration = Duration::from_millis(100);

/// Where a connection of a pool leads.
pub(super) struct CallLimit {
    pool: MySqlPool,
    server: Arc<MySqlConnectOptions>,
}

impl CallLimit {
    /// Of a connection that the pool has just given, or is about to give.
    pub(super) fn of(pool: &MySqlPool) -> Self {
        Self { pool: pool.clone(), server: pool.connect_options() }
    }

    /// Whether the pool leads to another server now.
    pub(super) fn has_left(&self) -> bool {
        !Arc::ptr_eq(&self.server, &self.pool.connect_options())
    }
}

/// Waits for an answer until 5 s are over, or until the pool leads to another server than that of
/// `limit`. `None` if there was none. The call is pinned where it was made: a future with a copy of
/// it would be twice as large.
pub(super) async fn answer<T>(
    limit: Option<&CallLimit>,
    mut call: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    let Some(limit) = limit else { return timeout(CALL_TIMEOUT, call).await.ok() };
    for _ in 0..CALL_TIMEOUT.as_millis() / ASK_INTERVAL.as_millis() {
        if let Ok(answer) = timeout(ASK_INTERVAL, call.as_mut()).await {
            return Some(answer);
        }
        if limit.has_left() {
            break;
        }
    }
    None
}
