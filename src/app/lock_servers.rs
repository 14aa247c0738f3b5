//! The locks of purchases, and the servers that only they need.

use std::time::Instant;

use anyhow::Context;
use distlock::{LockError, Locks, OwnerTag};

use super::{SESSION_SILENCE, Servers, millis};
use crate::config::Serve;
use crate::lock::{self, LockEndpoints, LockSpec};
use crate::sale::Guards;

/// The locks of purchases. Fails if their servers can never grant one; those that are away may come
/// back.
pub(super) async fn open(config: &Serve, servers: &Servers) -> anyhow::Result<Locks> {
    let endpoints = LockEndpoints {
        redis: Some(servers.redis.clone()),
        database_url: Some(&config.database.database_url),
        naive: config.laboratory.guards == Guards::Off,
        // A holder is silent for `work_ms` between two statements.
        silence: SESSION_SILENCE + millis(config.laboratory.work_ms),
        make_tables: false,
        more: &config.lock_servers,
    };
    let spec = LockSpec {
        kind: config.lock,
        lease: config.lease(),
        fenced: config.laboratory.fenced,
        injected_bug: config.laboratory.inject_bug,
    };
    let cannot = || format!("cannot make the lock {}", config.lock);
    let locks = lock::open(spec, endpoints).await.with_context(cannot)?;
    if !lock::has_servers_of_its_own(config.lock, &config.lock_servers) {
        until_answered(|| locks.check_servers()).await.with_context(cannot)?;
    }
    Ok(locks.with_owner_tag(OwnerTag::of_this_process("seckill")))
}

/// Asks until the servers answer. They answered when the service connected to them, so a failure
/// here is one of a moment: on a busy machine a new replica may find them silent.
async fn until_answered<F>(ask: impl Fn() -> F) -> Result<(), LockError>
where
    F: Future<Output = Result<(), LockError>>,
{
    let begun = Instant::now();
    loop {
        match ask().await {
            Err(error @ LockError::Backend(_)) if begun.elapsed() < lock::START_TIMEOUT => {
                tracing::debug!(%error, "asking the servers of the locks again");
                tokio::time::sleep(lock::START_PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// Checks the servers that only the locks need.
#[derive(Clone)]
pub(super) struct LockServersHealth {
    pub(super) locks: Locks,
    /// Whether the kind has such servers.
    pub(super) watched: bool,
}

impl LockServersHealth {
    pub(super) async fn ask(self) -> Result<(), String> {
        if !self.watched {
            return Ok(());
        }
        self.locks.check_servers().await.map_err(|error| format!("locks: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// How often it is asked, and the last answer.
    async fn asked(answers: &[fn() -> Result<(), LockError>]) -> (usize, Result<(), LockError>) {
        let asked = AtomicUsize::new(0);
        let ask = || std::future::ready(answers[asked.fetch_add(1, Ordering::Relaxed)]());
        let answer = until_answered(ask).await;
        (asked.into_inner(), answer)
    }

    #[tokio::test]
    async fn a_server_that_is_silent_for_a_moment_is_asked_again_at_the_start() {
        let silent = || Err(LockError::Backend("timed out".to_owned()));
        let (asked, answer) = asked(&[silent, silent, || Ok(())]).await;
        assert!(matches!((asked, &answer), (3, Ok(()))), "{answer:?}");
    }

    #[tokio::test]
    async fn a_server_that_denies_access_is_asked_once() {
        let denied = || Err(LockError::AccessDenied("no".to_owned()));
        let (asked, answer) = asked(&[denied, || Ok(())]).await;
        assert!(matches!((asked, &answer), (1, Err(LockError::AccessDenied(_)))), "{answer:?}");
    }
}
