//! Locks with one deliberate bug each, made of the servers.
//!
//! A [`Plant`] is chosen where the locks are made: by this [`locker`] instead of
//! [`locker`](crate::locker()). Without one, no code of a planted lock runs.

use std::sync::Arc;

pub use crate::redis::injected_bug::{Plant, RedisTokens};
use crate::redis::injected_bug::{hasty_redlock, on_one_server};
use crate::{Backends, LockError, Locker};

/// The mechanism of [`Plant::kind`] with the bug.
pub fn locker(plant: Plant, servers: &Backends) -> Result<Arc<dyn Locker>, LockError> {
    match plant {
        Plant::RedlockWithoutElapsedTime => hasty_redlock(&servers.independent_redis),
        plant => Ok(on_one_server(plant, servers.redis()?)),
    }
}
