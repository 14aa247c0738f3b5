//! Inside a process: the mutex for each key that people write, beside `local`.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use distlock::BoxFuture;
use loadtest_measure::error::Result;
use tokio::task::coop::consume_budget;
use tokio::time::timeout;

use crate::cell::{Cell, Slice, broken, together};

/// As many as `local` has.
const SHARDS: usize = 64;

/// The users of a mutex are counted by its `Arc`.
type Shard = Mutex<HashMap<Arc<str>, Arc<tokio::sync::Mutex<()>>>>;

/// A map of mutexes in shards. An unused key is removed: a program that locks by user or by order
/// cannot keep all keys.
#[derive(Clone)]
struct Mutexes(Arc<(RandomState, Vec<Shard>)>);

impl Mutexes {
    fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        Self(Arc::new((RandomState::new(), shards)))
    }

    fn shard(&self, key: &str) -> &Shard {
        let (hasher, shards) = &*self.0;
        let hash = hasher.hash_one(key) % SHARDS as u64;
        &shards[usize::try_from(hash).unwrap_or(0)]
    }

    fn find(&self, key: &Arc<str>) -> Arc<tokio::sync::Mutex<()>> {
        let mut shard = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(shard.entry(Arc::clone(key)).or_default())
    }

    /// Takes the key and releases it; a bounded wait needs a timer.
    async fn pass(&self, key: &Arc<str>, wait: Option<Duration>) -> Result<()> {
        let mutex = self.find(key);
        let locked = mutex.clone().lock_owned();
        let guard = match wait {
            None => locked.await,
            Some(wait) => timeout(wait, locked).await.map_err(broken("a wait"))?,
        };
        drop(guard);
        let mut shard = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        // The map's reference and this one: no other task has it or wants it.
        if Arc::strong_count(&mutex) == 2 {
            shard.remove(key);
        }
        Ok(())
    }
}

/// Tasks that each take such a mutex and let it go, again and again.
pub(crate) struct MutexMap {
    mutexes: Mutexes,
    keys: Vec<Arc<str>>,
    wait: Option<Duration>,
}

impl MutexMap {
    /// A task for each of these keys, which may be the same; waits for ever, or so long.
    pub(crate) fn of(keys: Vec<String>, wait: Option<Duration>) -> Self {
        let keys = keys.into_iter().map(Arc::from).collect();
        Self { mutexes: Mutexes::new(), keys, wait }
    }
}

impl Cell for MutexMap {
    fn slice(&mut self, length: Duration) -> BoxFuture<'_, Result<Slice>> {
        Box::pin(async move {
            let processes = [("us of client", std::process::id())];
            together(self.keys.len(), length, &processes, |task, over| {
                let (mutexes, key) = (self.mutexes.clone(), Arc::clone(&self.keys[task]));
                let wait = self.wait;
                async move {
                    let mut count = 0;
                    while !over.is_over() {
                        mutexes.pass(&key, wait).await?;
                        count += 1;
                        consume_budget().await;
                    }
                    Ok(count)
                }
            })
            .await
        })
    }
}
