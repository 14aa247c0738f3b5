//! Distributed locks behind one interface.
//!
//! [`Locks`] are the locks of one mechanism, which [`locker`] makes from its [`LockKind`] and the
//! servers it lives on. There are three usual ways to hold one:
//!
//! ```
//! use distlock::{Backends, LockError, LockKind, LockName, LockOptions, Locks, locker};
//! use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
//! // With Redis: `Backends { redis: Some(RedisServer::open(url).await?), ..Backends::default() }`
//! // and, say, `LockKind::Redisson`.
//! let locks = Locks::new(locker(LockKind::Local, &Backends::default())?);
//! let name = LockName::new("lock:order:17")?;
//! // How long to wait, and how long the server keeps the lock of a holder that has died.
//! let lease = locks.guarantees().lease(Duration::from_secs(30));
//! let options = LockOptions::new(Duration::from_millis(200), lease);
//!
//! // One: a scope. The work is told if the lock is lost; what it did then comes back as an error.
//! let steps = locks.scope(&name, &options, async |loss| {
//!     let mut steps = 0;
//!     while steps < 3 && !loss.is_lost() {
//!         steps += 1;
//!     }
//!     steps
//! });
//! assert_eq!(steps.await?, 3);
//!
//! // Two: a guard. Look at it before each effect; release it, or drop it.
//! let guard = locks.lock(&name, &options).await?;
//! assert!(!guard.is_lost());
//!
//! // Three: try. Whoever comes first does the work, everybody else goes on at once.
//! assert!(locks.try_lock(&name, lease).await?.is_none(), "the guard has it");
//! guard.release().await?;
//!
//! // Releases of dropped guards go on in the background: before a process ends, wait for them.
//! locks.flush().await;
//! # Ok(()) }
//! ```
//!
//! Times are [`Duration`](std::time::Duration)s; each field says its limits. A lock that is held by
//! somebody else is no error until the wait is over: [`LockError::TimedOut`]. After
//! [`LockError::Backend`] nobody knows what the server did; what it may have granted is given back
//! in the background. Nothing here can stop a holder that hangs: what must never be written by two
//! of them needs a fencing [`Token`], or a lock that is the writing transaction itself.
//!
//! Features: `redis` (on by default), `mysql` (MySQL and MariaDB) and `zookeeper` bring the kinds
//! that live there. [`guarantees`] is the table of what each kind promises and gets wrong. What is
//! no lock has types of its own, with the feature `redis`: `Semaphore`, `ExpirableSemaphore` and
//! `CountdownLatch`.
//!
//! Inside, three words carry the library:
//! - [`Locker`], one per mechanism, begins an [`Acquisition`], whose attempts bring a hold or say
//!   that somebody else has it, and when to look again ([`Wake`]);
//! - [`Hold`], one per held lock: it knows until when it may be believed, and how to be released;
//! - [`Guard`], what callers get from [`Locks::lock`]: owns a hold, tells of its loss, releases it.
//!
//! A mechanism is one file and one line in the registry. Waiting, the queue inside the process,
//! cancellation, loss and release are written once, in [`Locks`] and [`Guard`], above all of them;
//! `local`, whose turn in the process is the whole lock, needs little of that.
//!
//! Reading order: `kind` (the names), `guarantees` and `table` (what each promises), `locker` (the
//! interface of a mechanism), `lease` (how long a hold may be believed), `owner` and `name` (what a
//! server is told), `fence` (tokens), `ownership` (one of them for all holds of an owner), `keyed`
//! (the queue inside a process), `streak` (when it lets other processes go first), `wait` (when to
//! look again), `background` (work that outlives its caller), `attempt` (an acquisition on its
//! way), `pace` (how fast a server answers), `tenure` (what is known of a hold), `pulse` (keeps the
//! news of a loss from being late after a freeze), `watchdog` (keeps holds alive), `stage` (a turn
//! that ends with belief), `meter` (what is measured), `options`, `locks` and `guard` (what callers
//! use), `failpoint` (where the laboratory makes processes fail), `registry` (kind to mechanism),
//! then the mechanisms: `none`, `local`, `multi` (and `multi_hold`), `redis`, `mysql`, `zookeeper`.
//! `plant` (with the feature `plants`) has locks with a deliberate bug each, for a laboratory.
//! `synchronizer` names what is no lock: semaphores and a latch, types of their own in `redis`.

mod attempt;
mod background;
mod error;
pub mod failpoint;
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
mod multi_hold;
#[cfg(feature = "mysql")]
pub mod mysql;
mod name;
mod none;
mod options;
mod owner;
mod ownership;
mod pace;
mod pulse;
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
#[cfg(feature = "plants")]
pub use crate::redis::plant::{self, Plant};
#[cfg(feature = "redis")]
pub use crate::redis::{
    CountdownLatch, ExpirableSemaphore, GetsetTimestamp, OwnerCheckLock, Permit, Permits,
    ReadWrite, Red, RedisAddress, RedisConnection, RedisServer, Redisson, RedissonLock,
    RedissonOptions, Replication, Semaphore, SetnxExpire,
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
