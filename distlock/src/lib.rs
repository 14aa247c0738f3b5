//! Distributed locks behind one interface.
//!
//! Three words carry the library:
//! - [`Locker`], one per mechanism: `acquire` answers `Held` or `Busy`;
//! - [`Hold`], one per held lock: it knows until when it may be believed, and how to be released;
//! - [`Guard`], what callers get from [`Locks::lock`]: owns a hold, tells of its loss, releases it.
//!
//! A mechanism is one file and one line in the registry. Waiting, the queue inside the process,
//! cancellation, loss and release are written once, in [`Locks`] and [`Guard`], above all of them.
//!
//! Reading order: `kind` (the names), `guarantees` (what each promises), `locker` (the interface),
//! `lease` (how long a hold may be believed), `owner` and `name` (what a server is told), `keyed`
//! (the queue inside a process), `stage` (a turn in it that ends with belief), `wait` (when to look
//! again), `background` (work that outlives its caller), `locks` and `guard` (what callers use),
//! `registry` (kind to mechanism), then the mechanisms: `none`, `local`, `redis`.
//!
//! ```
//! use distlock::{Backends, LockKind, LockName, LockOptions, Locks, locker};
//! use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::LockError> {
//! let locks = Locks::new(locker(LockKind::Local, &Backends::default())?);
//! let options = LockOptions { wait: Duration::from_millis(200), lease: Duration::from_secs(10) };
//! let guard = locks.lock(&LockName::new("lock:order:17")?, &options).await?;
//! assert!(!guard.is_lost());
//! guard.release().await?;
//! # Ok(()) }
//! ```

mod background;
mod error;
mod guarantees;
mod guard;
mod keyed;
mod kind;
mod lease;
mod local;
mod locker;
mod locks;
mod name;
mod none;
mod owner;
#[cfg(feature = "redis")]
mod redis;
mod registry;
mod stage;
mod wait;

#[cfg(feature = "redis")]
pub use crate::redis::RedisConnection;
pub use error::LockError;
pub use guarantees::{Fencing, Guarantees, HoldKind, Idempotence, OwnerCheck, WakeKind};
pub use guard::{Guard, Loss};
pub use kind::{LockKind, UnknownLockKind};
pub use lease::Belief;
pub use locker::{Attempt, Hold, Locker, Release, Request};
pub use locks::{LockOptions, Locks};
pub use name::LockName;
pub use owner::Owner;
pub use registry::{Backends, guarantees, locker};
pub use wait::{Wake, Woken};
