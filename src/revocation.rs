//! Reads revoked tokens into the memory of a replica.
//!
//! Every [`RevocationRules::poll`] it reads the revocations of the last minute, and once a minute
//! all that a token can still meet. If no read succeeds for [`RevocationRules::stale_after`],
//! tokens are refused with 503. A revoked token must not outlive its revocation because the replica
//! cannot read, and without the database there are no orders either.

use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{counter, gauge};
use sqlx::MySqlPool;
use tokio::sync::Mutex;
use tokio::time::{MissedTickBehavior, interval};

use crate::domain::UserId;
use crate::store::{Revocation, RevocationTable, StoreError};
use crate::token::{RevocationMap, Revocations};

/// How far back each read looks. A full read finds a revocation that took longer to commit.
const RECENT_S: u32 = 60;
/// How often all revocations are read.
const FULL_READ_INTERVAL: Duration = Duration::from_mins(1);

/// How revocations are read.
#[derive(Debug, Clone, Copy)]
pub struct RevocationRules {
    /// How often.
    pub poll: Duration,
    /// How long reads may fail before tokens are refused.
    pub stale_after: Duration,
    /// The longest life of a token, and so of a revocation.
    pub max_age_s: u32,
    /// The most revocations in memory; the latest are kept. Tokens older than the latest one that
    /// is left out are refused.
    pub most: u32,
}

/// Reads revocations into memory. Cheap to clone.
#[derive(Clone)]
pub struct RevocationReader {
    table: RevocationTable,
    known: Arc<Revocations>,
    rules: RevocationRules,
    /// Reads take turns: an older one must not replace what a newer one found.
    turn: Arc<Mutex<()>>,
}

impl RevocationReader {
    /// Reads all revocations of that database for those tokens.
    pub async fn start(
        pool: MySqlPool,
        known: Arc<Revocations>,
        rules: RevocationRules,
    ) -> Result<Self, StoreError> {
        let table = RevocationTable::new(pool);
        let reader = Self { table, known, rules, turn: Arc::default() };
        reader.read_all().await?;
        Ok(reader)
    }

    async fn read_all(&self) -> Result<(), StoreError> {
        let _turn = self.turn.lock().await;
        self.read(RevocationMap::default(), self.rules.max_age_s).await
    }

    /// Revokes the tokens that were issued to that user so far. This replica refuses them when this
    /// returns, the others after their next read. If they cannot be read here, so does this one:
    /// the revocation itself is made.
    pub async fn revoke(&self, user: UserId) -> Result<(), StoreError> {
        self.table.revoke(Some(user)).await?;
        if let Err(error) = self.read_recent().await {
            tracing::warn!(%error, "revocation made but not read; the next read finds it");
        }
        Ok(())
    }

    async fn read_recent(&self) -> Result<(), StoreError> {
        let _turn = self.turn.lock().await;
        self.read(self.known.map(), RECENT_S).await
    }

    async fn remove_ended(&self) {
        if let Err(error) = self.table.remove_older_than(self.rules.max_age_s).await {
            tracing::debug!(%error, "ended revocations stay until the next full read");
        }
    }

    /// Adds the revocations of the last `seconds` to the map.
    async fn read(&self, mut map: RevocationMap, seconds: u32) -> Result<(), StoreError> {
        let most = self.rules.most as usize;
        // Revocations in the table are read all the same.
        if let Err(error) = self.table.revoke_deleted().await {
            tracing::warn!(%error, "deleted users are not revoked yet; the next read tries again");
        }
        let limit = self.rules.most.saturating_add(1);
        let mut rows = self.table.within(seconds, limit).await?;
        add_all(&mut map, &rows);
        if map.of_user.len() > most {
            // The latest of all first: tokens of users that are left out are refused by their age.
            rows = self.table.within(self.rules.max_age_s, limit).await?;
            map = RevocationMap::default();
            add_all(&mut map, &rows[..rows.len().min(most)]);
            if let Some(left_out) = rows.get(most) {
                map.add(None, left_out.made_ms);
                if left_out.made_ms > self.known.map().all {
                    let made_ms = left_out.made_ms;
                    tracing::error!(
                        most,
                        made_ms,
                        "too many revocations; older tokens are refused"
                    );
                }
            }
        }
        let entries = u32::try_from(map.of_user.len()).unwrap_or(u32::MAX);
        gauge!("seckill_token_revocations").set(entries);
        self.known.replace(map);
        Ok(())
    }

    /// Reads at every poll; runs until it is dropped.
    pub async fn run(self) {
        let mut ticks = interval(self.rules.poll);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut read, mut read_all) = (Instant::now(), Instant::now());
        let mut is_stale = false;
        loop {
            ticks.tick().await;
            let began = Instant::now();
            let is_full = is_stale || began - read_all >= FULL_READ_INTERVAL;
            let outcome = if is_full { self.read_all().await } else { self.read_recent().await };
            match outcome {
                Ok(()) => {
                    if std::mem::take(&mut is_stale) {
                        tracing::warn!("revocations are read again; tokens are accepted");
                    }
                    read = began;
                    if is_full {
                        read_all = began;
                        self.remove_ended().await;
                    }
                }
                Err(error) => {
                    counter!("seckill_token_revocation_reads_failed_total").increment(1);
                    if !is_stale && read.elapsed() >= self.rules.stale_after {
                        is_stale = true;
                        self.known.set_stale();
                        tracing::error!(%error, "revocations cannot be read; tokens are refused");
                    }
                }
            }
        }
    }
}

fn add_all(map: &mut RevocationMap, rows: &[Revocation]) {
    for row in rows {
        map.add(row.user, row.not_before_ms);
    }
}
