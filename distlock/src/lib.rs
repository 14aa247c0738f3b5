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
//! Reading order: `kind` (the names), `guarantees` and `table` (what each promises), `locker` (the
//! interface of a mechanism), `lease` (how long a hold may be believed), `owner` and `name` (what a
//! server is told), `fence` (tokens), `keyed` (the queue inside a process), `streak` (when it lets
//! other processes go first), `wait` (when to look again), `background` (work that outlives its
//! caller), `attempt` (an acquisition on its way), `pace` (how fast a server answers), `tenure`
//! (what is known of a hold), `watchdog` (keeps holds alive), `stage` (a turn that ends with
//! belief), `meter` (what is measured), `options`, `locks` and `guard` (what callers use),
//! `registry` (kind to mechanism), then the mechanisms: `none`, `local`, `multi`, `redis`, `mysql`,
//! `zookeeper`.
//! `synchronizer` names what is no lock: semaphores and a latch, types of their own in `redis`.
//!
//! ```
//! use distlock::{Backends, Lease, LockKind, LockName, LockOptions, Locks, locker};
//! use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::LockError> {
//! let locks = Locks::new(locker(LockKind::Local, &Backends::default())?);
//! let lease = Lease::Fixed(Duration::from_secs(10));
//! let options = LockOptions::new(Duration::from_millis(200), lease);
//! let guard = locks.lock(&LockName::new("lock:order:17")?, &options).await?;
//! assert!(!guard.is_lost());
//! guard.release().await?;
//! # Ok(()) }
//! ```

mod attempt;
mod background;
mod error;
mod fence;
mod guarantees;
mod guard;
mod keyed;
mod kind;
mod lease;
mod local;
mod locker;
mod locks;
mod meter;
mod multi;
#[cfg(feature = "mysql")]
pub mod mysql;
mod name;
mod none;
mod options;
mod owner;
mod pace;
#[cfg(feature = "redis")]
mod redis;
mod registry;
mod stage;
mod streak;
mod synchronizer;
mod table;
mod tenure;
mod wait;
mod watchdog;
#[cfg(feature = "zookeeper")]
mod zookeeper;

#[cfg(feature = "mysql")]
pub use crate::mysql::MySqlServer;
#[cfg(feature = "redis")]
pub use crate::redis::{
    CountdownLatch, ExpirableSemaphore, GetsetTimestamp, OwnerCheckLock, Permit, Permits,
    ReadWrite, Red, RedisServer, Redisson, RedissonLock, RedissonOptions, Replication, Semaphore,
    SetnxExpire,
};
#[cfg(feature = "zookeeper")]
pub use crate::zookeeper::ZooKeeperServer;
pub use error::LockError;
pub use fence::{Mint, Token};
pub use guarantees::{Answer, Fencing, Guarantees, HoldKind, OwnerCheck, RenewalKind, WakeKind};
pub use guard::{Guard, Loss};
pub use kind::{Backend, LockKind, UnknownLockKind};
pub use lease::{Belief, Lease};
pub use locker::{Acquisition, Hold, Locker, Release, Renewal, Renewer, Request, Upkeep};
pub use locks::Locks;
pub use multi::Multi;
pub use name::LockName;
pub use options::LockOptions;
pub use owner::Owner;
pub use registry::{Backends, locker};
pub use synchronizer::{Synchronizer, UnknownSynchronizer};
pub use table::guarantees;
pub use tenure::LossCause;
pub use wait::{Signal, Wake, Woken};
