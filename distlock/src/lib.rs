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
//! // One: a scope. The work sees whether the lock is lost; then the call returns an error.
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
//! // Three: try. The first caller does the work, all others continue at once.
//! assert!(locks.try_lock(&name, lease).await?.is_none(), "the guard has it");
//! guard.release().await?;
//!
//! // Releases of dropped guards run in the background: before a process ends, wait for them.
//! locks.flush().await;
//! # Ok(()) }
//! ```
//!
//! Times are [`Duration`](std::time::Duration)s; each field documents its limits. A lock that
//! another owner holds is no error until the wait is over: [`LockError::TimedOut`]. After
//! [`LockError::Backend`] the outcome on the server is unknown; a lock that it granted is released
//! in the background. This crate cannot stop a holder that hangs. Data that two holders must never
//! write needs a fencing [`Token`], or a lock that is the writing transaction itself.
//!
//! Features: `redis` (on by default), `mysql` (MySQL and MariaDB), `zookeeper`, `etcd` and `nats`
//! bring the kinds that live there. `macros` (on by default) is the attribute `locked`, and `tower`
//! is `LockLayer`. [`guarantees`] is the table of what each kind promises and gets wrong. What is
//! no lock has types of its own, with the feature `redis`: `Semaphore`, `ExpirableSemaphore` and
//! `CountdownLatch`.
//!
//! Inside, three words carry the library:
//! - [`Locker`], one per mechanism, begins an [`Acquisition`]. Each attempt of it returns a hold,
//!   or `None` with the time of the next attempt ([`WakeStrategy`]);
//! - [`Hold`], one per held lock: it knows its validity time and how it is released;
//! - [`Guard`], what callers get from [`Locks::lock`]: owns a hold, signals its loss, releases it.
//!
//! A mechanism is one file and one row in `kinds`. Waiting, the queue inside the process,
//! cancellation, loss and release are written once, in [`Locks`] and [`Guard`]. The kind `local`
//! uses little of that: its key in the process is the whole lock.
//!
//! Reading order:
//! - `kinds` (a row for each kind), `kind` (what is made of the rows), `guarantees` and `flaws`
//!   (the columns), `registry` (the servers), `auto_traits` (what callers may rely on);
//! - `locker` (interface of a mechanism), `lock_transaction` (what `mysql-row` lends), `lease`
//!   (leases and validity), `owner`, `name`, `fence` (fencing tokens), `ownership` (one token for
//!   all holds of an owner);
//! - `keyed` (queue inside the process), `process_quantum` (when the process yields to others),
//!   `wait` (when a waiter tries again);
//! - `background` (tasks that outlive their caller), `attempt` (attempts of one acquisition),
//!   `round_trip` (how fast a server answers);
//! - `hold_state` (validity and loss of a hold), `runtime_ticker` (prompt news of a loss after a
//!   freeze), `watchdog` (renewals), `local_queue_slot` (the place in the queue that ends with
//!   validity);
//! - `lock_metrics`, `lock_spans`, `stuck` (keys that no holder frees), `options`, `locks` and
//!   `guard` (what callers use), `lost_signal`;
//! - `inspector` and `composite_inspector` (locks seen from outside), `deadlock_detector` (tasks
//!   that wait for each other), `failpoint` (where the laboratory makes processes fail);
//! - `tower` (a request under a lock);
//! - the mechanisms: `none`, `local`, `multi` with `multi_acquisition` and `multi_hold`, `redis`,
//!   `mysql`, `zookeeper`, `etcd`, `nats`;
//!   `injected_bug` (feature `injected-bugs`) has locks with one deliberate bug each;
//! - `synchronizer`: names of the types that are no locks, semaphores and a latch, in `redis`.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_debug_implementations, clippy::must_use_candidate)]

mod attempt;
mod auto_traits;
mod background;
mod composite_inspector;
mod deadlock_detector;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
pub mod failpoint;
mod fence;
mod flaws;
mod guarantees;
mod guard;
mod hold_state;
mod holder_reports;
mod inspector;
mod keyed;
#[macro_use]
mod kind;
#[cfg(feature = "injected-bugs")]
pub mod injected_bug;
mod kinds;
mod lease;
mod local;
mod local_queue_slot;
mod lock_metrics;
mod lock_snapshot;
mod lock_spans;
#[cfg(feature = "mysql")]
mod lock_transaction;
mod locker;
mod locks;
mod loss_report;
mod lost_signal;
mod multi;
mod multi_acquisition;
mod multi_hold;
#[cfg(feature = "mysql")]
pub mod mysql;
mod name;
mod name_rate_limit;
#[cfg(feature = "nats")]
mod nats;
mod none;
mod options;
mod owner;
mod owner_tag;
mod ownership;
#[cfg(any(feature = "etcd", feature = "nats"))]
mod percent_encoding;
mod process_quantum;
mod read_side;
#[cfg(feature = "redis")]
mod redis;
mod registry;
mod round_trip;
mod runtime_ticker;
mod stuck;
mod synchronizer;
#[cfg(feature = "tower")]
mod tower;
mod wait;
mod watchdog;
#[cfg(feature = "zookeeper")]
mod zookeeper;

/// The README's code, tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(feature = "etcd")]
pub use crate::etcd::EtcdServer;
#[cfg(feature = "injected-bugs")]
pub use crate::injected_bug::InjectedBug;
#[cfg(feature = "redis")]
pub use crate::kinds::redis::{
    getset_timestamp::GetsetTimestamp,
    owner_check::OwnerCheckLock,
    read_write::ReadWrite,
    redisson::{Redisson, RedissonOptions},
    redlock::Redlock,
    setnx_expire::SetnxExpire,
};
#[cfg(feature = "mysql")]
pub use crate::mysql::MySqlServer;
#[cfg(feature = "nats")]
pub use crate::nats::NatsServer;
#[cfg(feature = "redis")]
pub use crate::redis::{
    CountdownLatch, ExpirableSemaphore, Permit, Permits, RedisAddress, RedisConnection,
    RedisServer, RedisWaitExchange, RedissonLock, Replication, Semaphore,
};
#[cfg(feature = "tower")]
pub use crate::tower::{LockLayer, LockService};
#[cfg(feature = "zookeeper")]
pub use crate::zookeeper::ZooKeeperServer;
pub use deadlock_detector::{Deadlock, DeadlockDetector, DeadlockedTask, WaitExchange, WaitRecord};
/// Runs an asynchronous function under a lock, whose name has values of its parameters.
///
/// ```
/// use distlock::{Backends, LockError, LockKind, Locks, locked, locker};
///
/// struct Shop {
///     locks: Locks,
/// }
///
/// impl Shop {
///     #[locked(name = "order:{user_id}", wait = "200ms", lease = "30s")]
///     async fn buy(&self, user_id: u64, voucher_id: u64) -> Result<String, LockError> {
///         Ok(format!("user {user_id} has voucher {voucher_id}"))
///     }
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// let shop = Shop { locks: Locks::new(locker(LockKind::Local, &Backends::default())?) };
/// assert_eq!(shop.buy(17, 4).await?, "user 17 has voucher 4");
/// # Ok(()) }
/// ```
///
/// - `name` is needed: `{user_id}` is a parameter, `{request.user_id}` a field of one, and `{{` and
///   `}}` are braces. A parameter becomes part of the name by its [`Display`](std::fmt::Display).
/// - `locks` is an expression with the [`Locks`], as `self.locks` or `&state.locks`. Without it, it
///   is the parameter `locks`, else `self.locks`.
/// - `wait` is how long to wait for the holder, with a unit: `ms`, `s`, `m` or `h`. Ten seconds
///   without it.
/// - `lease` is how long the server keeps the lock of a holder that has died. It is renewed where
///   the kind renews. 30 s without it.
///
/// The function returns a [`Result`], whose error is made `From<LockError>`: by it the caller gets
/// what [`Locks::lock`] fails with. If the lock is lost, the body ends at an await as the work of
/// [`Guard::run`] does, and the error is [`LockError::Lost`]. What the body did until then remains.
///
/// The attribute asks for no fencing token: [`Locks::lock`] brings one.
#[cfg(feature = "macros")]
pub use distlock_macros::locked;
pub use error::LockError;
pub use fence::{Token, TokenIssuer};
/// A future that may go to another thread: what methods of [`Locker`] and the like return.
pub use futures_util::future::BoxFuture;
pub use guarantees::{Fencing, Guarantees, HoldKind, OwnerCheck, RenewalKind, Support, WakeKind};
pub use guard::Guard;
pub use hold_state::LossCause;
pub use inspector::{ListCursor, LockInspector, LockPage};
pub use kind::{Backend, RedisKeys, UnknownLockKind};
pub use kinds::{LockKind, guarantees, locker};
pub use lease::{Lease, Validity};
pub use lock_snapshot::{
    LockHolder, LockSnapshot, LockState, LockWaiter, LockWaiters, RemainingLease,
};
pub use locker::{Acquisition, Hold, Locker, Release, Renewal, RenewalTarget, Renewer, Request};
pub use locks::Locks;
pub use lost_signal::LostSignal;
pub use multi::Multi;
pub use name::LockName;
pub use options::LockOptions;
pub use owner::Owner;
pub use owner_tag::OwnerTag;
pub use registry::Backends;
pub use synchronizer::{Synchronizer, UnknownSynchronizer};
pub use wait::{WakeEvent, WakeSignal, WakeStrategy};
