//! Renews holds of `mysql-table`, many in one statement.
//!
//! A renewal never shortens a lease: of several holds of one owner the longest lease counts. If
//! fewer rows were found than were asked for, a second statement finds which holds have ended.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::{AssertSqlSafe, Row};
use tokio::time::Instant;

use super::session::{MySqlSession, Retries, Statement, StatementError};
use super::{MySqlServer, microseconds};
use crate::kinds::mysql::table_lock::hold_id;
use crate::{Renewal, Renewer, Request, Validity};

/// One hold, in a list of them.
const HOLD_CONDITION: &str = "(name = ? AND owner = ? AND LOCATE(?, holds) > 0)";

pub(crate) struct TableRenewer {
    server: MySqlServer,
}

impl TableRenewer {
    pub(crate) fn new(server: MySqlServer) -> Self {
        Self { server }
    }

    /// Renews holds of one lease: one statement, and another one if some have ended.
    async fn renew_once(
        &self,
        lease: Duration,
        holds: &[&Request],
    ) -> Result<Vec<bool>, StatementError> {
        // Lists of few different lengths, so that few statements are prepared.
        let length = holds.len().next_power_of_two();
        let filler = holds.iter().cycle().take(length);
        let conditions = vec![HOLD_CONDITION; length].join(" OR ");
        let bind = |mut query: Statement<'static>| {
            for hold in filler.clone() {
                query = query.bind(hold.name.as_str().as_bytes().to_vec());
                query = query.bind(hold.owner.as_str().as_bytes().to_vec());
                query = query.bind(hold_id(hold).into_bytes());
            }
            query
        };
        let update = format!(
            "UPDATE lock_holders SET \
             expires_at = GREATEST(expires_at, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) \
             WHERE expires_at > UTC_TIMESTAMP(6) AND ({conditions})"
        );
        let mut session = MySqlSession::open(self.server.pool()).await?;
        let update = sqlx::query(AssertSqlSafe(update)).bind(microseconds(lease));
        let matched = session.execute(bind(update)).await?.rows_affected();
        let names: HashSet<_> = holds.iter().map(|hold| hold.name.as_str()).collect();
        if matched == names.len() as u64 && names.len() == holds.len() {
            return Ok(vec![true; holds.len()]);
        }
        let select = format!(
            "SELECT name, holds FROM lock_holders \
             WHERE expires_at > UTC_TIMESTAMP(6) AND ({conditions})"
        );
        let rows = session.fetch_all(bind(sqlx::query(AssertSqlSafe(select)))).await?;
        let mut held = HashMap::new();
        for row in rows {
            held.insert(row.try_get::<Vec<u8>, _>(0)?, row.try_get::<Vec<u8>, _>(1)?);
        }
        Ok(holds.iter().map(|hold| is_among(&held, hold)).collect())
    }
}

fn is_among(held: &HashMap<Vec<u8>, Vec<u8>>, request: &Request) -> bool {
    let id = hold_id(request);
    held.get(request.name.as_str().as_bytes())
        .is_some_and(|holds| holds.windows(id.len()).any(|part| part == id.as_bytes()))
}

impl Renewer for TableRenewer {
    fn renew<'a>(&'a self, holds: &'a [Request]) -> BoxFuture<'a, Vec<Renewal>> {
        Box::pin(async move {
            let mut answers = vec![Renewal::Unknown; holds.len()];
            let mut leases: HashMap<Duration, Vec<usize>> = HashMap::new();
            for (at, hold) in holds.iter().enumerate() {
                leases.entry(hold.lease).or_default().push(at);
            }
            for (lease, places) in leases {
                let group: Vec<_> = places.iter().map(|&at| &holds[at]).collect();
                let mut retries = Retries::new(self.server.pool());
                loop {
                    let sent = Instant::now();
                    match self.renew_once(lease, &group).await {
                        Ok(held) => {
                            let validity = Renewal::Renewed(Validity::of_lease(sent, lease));
                            for (at, held) in places.into_iter().zip(held) {
                                answers[at] = if held { validity } else { Renewal::Lost };
                            }
                            break;
                        }
                        Err(failure) => {
                            if let Err(failure) = retries.after(failure).await {
                                tracing::debug!(?failure, "renewal failed; watchdog retries");
                                break;
                            }
                        }
                    }
                }
            }
            answers
        })
    }

    fn batch(&self) -> usize {
        64
    }
}
