//! Checks what makes a replica unfit although its servers answer: other replicas, and the settings
//! and rights of Redis.

use std::time::Duration;

use crate::readiness::Readiness;
use crate::store::{self, RedisConnection, RedisRights, Replicas, StoreError};

/// How often a replica shows that it lives and runs these checks. A right that Redis takes away
/// shows in `/readyz` after this long.
const HEARTBEAT: Duration = Duration::from_secs(3);
/// How often an unfit replica runs them: all replicas may be unfit at once, and nothing sells then.
const RECHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How long Redis may take to connect, and to answer a question of theirs.
const REDIS_ANSWERS_WITHIN: Duration = Duration::from_millis(500);

/// The checks of a replica.
#[derive(Clone)]
pub struct FitnessChecks {
    /// The other replicas.
    pub replicas: Replicas,
    /// The service's Redis.
    pub redis: RedisConnection,
    /// The rights that the Redis user must have.
    pub rights: RedisRights,
    /// Whether replicas may lock differently.
    pub allow_mixed: bool,
    /// Whether Redis may evict keys.
    pub allow_eviction: bool,
}

impl FitnessChecks {
    /// Writes this replica's heartbeat; returns the reasons why it is unfit. Fails if the heartbeat
    /// cannot be written.
    pub async fn run(&self) -> Result<Vec<String>, StoreError> {
        let mut reasons: Vec<String> = self.of_replicas().await?.into_iter().collect();
        reasons.extend(self.of_redis().await);
        Ok(reasons)
    }

    /// Writes the heartbeat; returns what speaks against this replica beside the others.
    async fn of_replicas(&self) -> Result<Option<String>, StoreError> {
        let differs = self.replicas.heartbeat().await?.filter(|_| !self.allow_mixed);
        Ok(differs.map(|(name, settings)| format!("replica {name} locks differently ({settings})")))
    }

    async fn of_redis(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if !self.allow_eviction
            && let Err(StoreError::Unexpected(sentence)) = store::refuse_eviction(&self.redis).await
        {
            reasons.push(sentence);
        }
        match self.rights.missing(REDIS_ANSWERS_WITHIN).await {
            Ok(missing) => reasons.extend(missing),
            Err(error @ StoreError::AccessDenied { .. }) => reasons.push(error.to_string()),
            // The health watch reports a server that does not answer.
            Err(_) => {}
        }
        // Likewise.
        let refused = self.rights.refused_writes(REDIS_ANSWERS_WITHIN).await;
        reasons.extend(refused.ok().flatten());
        reasons
    }

    /// Runs the checks every 3 s, and more often while this replica is unfit, until it is dropped.
    pub async fn keep_running(self, readiness: Readiness) {
        let (mut interval, mut of_replicas) = (HEARTBEAT, None);
        loop {
            tokio::time::sleep(interval).await;
            // The health watch reports a server that does not answer. Until the heartbeat can be
            // written again, what the other replicas have last said counts.
            if let Ok(now) = self.of_replicas().await {
                of_replicas = now;
            }
            let mut reasons: Vec<_> = of_replicas.clone().into_iter().collect();
            reasons.extend(self.of_redis().await);
            interval = if reasons.is_empty() { HEARTBEAT } else { RECHECK_INTERVAL };
            readiness.set_unfit(reasons);
        }
    }
}
