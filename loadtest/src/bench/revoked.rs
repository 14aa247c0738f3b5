//! Revoked tokens of users who do not ask: what the check of each request costs beside.

use std::time::{Duration, Instant};

use loadtest_lab::deployment::Deployment;
use loadtest_load::api;
use loadtest_load::client::{Connection, Target};
use loadtest_measure::error::{Error, Result};
use sqlx::{Connection as _, MySqlConnection};

/// How long the replicas may take to read them, and one answer.
const READ_DEADLINE: Duration = Duration::from_secs(10);
/// Between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Users of that many revocations, with ids that no user has. Made 50 s ago: replicas read the last
/// minute at each poll, and older ones once a minute.
const REVOKE_SQL: &str = "\
    INSERT INTO token_revocations (user_id, not_before, made_at) \
    WITH digits AS (SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 \
      UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 \
      UNION ALL SELECT 8 UNION ALL SELECT 9), \
    numbers AS (SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d AS n \
      FROM digits a, digits b, digits c, digits e, digits f) \
    SELECT 4000000000 + n, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3) - INTERVAL 50 SECOND \
    FROM numbers WHERE n < ?";
const GAUGE: &str = "seckill_token_revocations ";

/// Revokes the tokens of `users` users, at most 100,000, and waits until each replica knows it.
pub(super) async fn revoke(deployment: &Deployment, users: u32) -> Result<()> {
    let failed = |error: sqlx::Error| Error::Setup(format!("tokens cannot be revoked: {error}"));
    let mut database =
        MySqlConnection::connect(&deployment.database_url()).await.map_err(failed)?;
    sqlx::query(REVOKE_SQL).bind(users).execute(&mut database).await.map_err(failed)?;
    for replica in deployment.replicas() {
        let mut connection = Connection::new(Target::parse(replica.base_url())?, READ_DEADLINE);
        let deadline = Instant::now() + READ_DEADLINE;
        loop {
            let page = api::metrics(&mut connection).await;
            let page = page.map_err(|error| Error::Setup(error.to_string()))?;
            let known = page.lines().find_map(|line| line.strip_prefix(GAUGE));
            if known == Some(users.to_string().as_str()) {
                break;
            }
            if Instant::now() > deadline {
                let known = known.unwrap_or("none");
                let why = format!("a replica knows {known} of {users} revocations");
                return Err(Error::Setup(why));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}
