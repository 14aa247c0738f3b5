//! Locks with one deliberate bug each, made of the servers.
//!
//! An [`InjectedBug`] is chosen where the locks are made: by this [`locker`] instead of
//! [`locker`](crate::locker()). Without one, no code of a lock with a bug runs.

use std::sync::Arc;

pub use crate::redis::injected_bug::{InjectedBug, RedisTokens};
use crate::redis::injected_bug::{hasty_redlock, on_one_server};
use crate::{Backends, LockError, Locker};

/// The mechanism of [`InjectedBug::kind`] with the bug.
pub fn locker(bug: InjectedBug, servers: &Backends) -> Result<Arc<dyn Locker>, LockError> {
    match bug {
        InjectedBug::RedlockWithoutElapsedTime => hasty_redlock(&servers.independent_redis),
        bug => Ok(on_one_server(bug, servers.redis()?)),
    }
}
