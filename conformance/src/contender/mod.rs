//! What a contender does.

mod contest;
mod counts;
mod outside;
pub(crate) mod speech;
mod stock;
mod watch;

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conformance::FileTokenIssuer;
use conformance::clock::{at_ns, now_ns};
use conformance::counter::Counter;
use conformance::protocol::{
    AcquiredLock, Command, Failure, LockRequest, LossReport, Response, Setup, TokenSource,
    ValidityReport,
};
use distlock::mysql::{LockTransaction, MySqlTokens};
use distlock::{
    Guard, Lease, LockError, LockName, LockOptions, Locks, LostSignal, MySqlServer, Owner,
    RedisServer, RedissonLock, Token,
};
use sqlx::MySqlPool;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use self::counts::Counts;
use self::speech::say;
use self::stock::Stock;
use self::watch::Watch;

/// How many rows of each table a reaper looks at: more than a test makes.
const REAPED_ROWS: u32 = 256;

pub(crate) struct CommandHandler {
    locks: Locks,
    /// Where locks are looked at from outside.
    redis: Option<RedisServer>,
    /// Where stock is.
    database: Option<MySqlServer>,
    counts: Counts,
    holds: Mutex<HashMap<u64, HeldGuard>>,
    last_handle: AtomicU64,
}

struct HeldGuard {
    guard: Guard,
    /// The task that reports the loss.
    teller: AbortHandle,
}

impl CommandHandler {
    /// Connects.
    pub(crate) async fn start(setup: Setup) -> Result<Self, Failure> {
        // Before the locks are made, which keep their instruments.
        let counts = Counts::install()?;
        let kind = setup.kind.parse().map_err(|error| failure("bad_request", &error))?;
        let servers = setup.addresses.connect().await?;
        let mut locks = Locks::new(setup.variant.locker(kind, &servers)?);
        let database = setup.addresses.mysql_server()?;
        locks = match (setup.token_source, &database) {
            (None, _) => locks,
            (Some(TokenSource::Folder(folder)), _) => {
                locks.with_token_issuer(Arc::new(FileTokenIssuer(folder)))
            }
            (Some(TokenSource::Database), Some(database)) => {
                locks.with_token_issuer(Arc::new(MySqlTokens::new(database)))
            }
            (Some(TokenSource::Database), None) => return Err(no_database()),
        };
        if !setup.local_queue {
            locks = locks.without_local_queue();
        }
        if setup.warm_up {
            conformance::warm_up(&locks).await?;
        }
        Ok(Self {
            locks,
            redis: servers.redis,
            database,
            counts,
            holds: Mutex::default(),
            last_handle: AtomicU64::new(0),
        })
    }

    pub(crate) async fn obey(&self, command: Command) -> Response {
        self.try_to_obey(command).await.unwrap_or_else(Response::Failed)
    }

    async fn try_to_obey(&self, command: Command) -> Result<Response, Failure> {
        Ok(match command {
            Command::Lock(request) => Response::Held(self.hold(&request).await?),
            Command::Release { handle } => {
                let HeldGuard { guard, teller } = self.take(handle)?;
                teller.abort();
                Response::Released(guard.release().await?.into())
            }
            Command::Drop { handle } => {
                let HeldGuard { guard, teller } = self.take(handle)?;
                teller.abort();
                drop(guard);
                Response::Done
            }
            Command::IsLost { handle } => Response::Looked { lost: self.loss(handle)?.is_lost() },
            Command::Validity { handle } => {
                let until_ns = self.loss(handle)?.validity().deadline().map(at_ns);
                Response::Validity(ValidityReport { until_ns, looked_ns: now_ns() })
            }
            Command::Effect { handle, file } => {
                let done = !self.loss(handle)?.is_lost();
                if done {
                    open(&file)?.add_one()?;
                }
                Response::Effected { done }
            }
            Command::Watch { handle, file, pause_us } => {
                let (loss, counter) = (self.loss(handle)?, open(&file)?);
                let pause = Duration::from_micros(pause_us);
                let (begun, begins) = oneshot::channel();
                std::thread::spawn(move || {
                    let first = || {
                        // The client waits for it, unless the process is about to end.
                        let _ended = begun.send(());
                    };
                    watch::watch(Watch { handle, loss, counter, pause }, first);
                });
                // An error means that the lock was lost before the first effect.
                let _no_effect = begins.await;
                Response::Done
            }
            Command::Stock { handle, name, units, fenced } => {
                let token = if fenced { self.token(handle)? } else { None };
                let stock = Stock { pool: self.database()?, name: &name, token };
                Response::Stock { units: stock.touch(units).await? }
            }
            Command::SellInside { handle, name } => {
                let transaction = self.take_transaction(handle)?;
                Response::Stock { units: Some(stock::sell_inside(transaction, &name).await?) }
            }
            Command::Inspect { name } => outside::inspect(&self.redisson(name)?).await?,
            Command::ForceUnlock { name } => {
                Response::Freed { was_held: self.redisson(name)?.force_unlock().await? }
            }
            Command::Reap { unused_ms } => {
                let server = self.database.as_ref().ok_or_else(no_database)?;
                let unused = Duration::from_millis(unused_ms);
                Response::Reaped { rows: server.reap(unused, REAPED_ROWS).await? }
            }
            Command::Contend(contest) => {
                Response::Contended(contest::contend(&self.locks, contest).await?)
            }
            Command::Count => self.counts.say(),
            Command::Flush => {
                self.locks.flush().await;
                Response::Done
            }
        })
    }

    async fn hold(&self, request: &LockRequest) -> Result<AcquiredLock, Failure> {
        let asked_ns = now_ns();
        let guard = acquire(&self.locks, request).await?;
        let acquired_ns = now_ns();
        let handle = self.last_handle.fetch_add(1, Ordering::Relaxed) + 1;
        let held = AcquiredLock {
            handle,
            owner: guard.owner().to_string(),
            token: guard.token().map(|token| token.0),
            asked_ns,
            acquired_ns,
            valid_until_ns: guard.validity().deadline().map(at_ns),
        };
        let teller = tokio::spawn(tell(handle, guard.lost_signal())).abort_handle();
        self.holds().insert(handle, HeldGuard { guard, teller });
        Ok(held)
    }

    fn take(&self, handle: u64) -> Result<HeldGuard, Failure> {
        self.holds().remove(&handle).ok_or_else(no_such_handle)
    }

    fn loss(&self, handle: u64) -> Result<LostSignal, Failure> {
        let holds = self.holds();
        holds.get(&handle).map(|holding| holding.guard.lost_signal()).ok_or_else(no_such_handle)
    }

    fn token(&self, handle: u64) -> Result<Option<Token>, Failure> {
        let holds = self.holds();
        let token = holds.get(&handle).ok_or_else(no_such_handle)?.guard.token();
        token.map(Some).ok_or_else(|| failure("unsupported", &"the hold has no token"))
    }

    fn take_transaction(&self, handle: u64) -> Result<LockTransaction, Failure> {
        let mut holds = self.holds();
        let lent = holds.get_mut(&handle).ok_or_else(no_such_handle)?.guard.take_transaction();
        lent.ok_or_else(|| failure("unsupported", &"the hold is no transaction"))
    }

    fn redisson(&self, name: String) -> Result<RedissonLock, Failure> {
        let server = self.redis.as_ref().ok_or_else(|| failure("unsupported", &"no Redis"))?;
        Ok(RedissonLock::new(server, LockName::new(name)?))
    }

    fn database(&self) -> Result<&MySqlPool, Failure> {
        let server = self.database.as_ref().map(MySqlServer::pool);
        server.ok_or_else(no_database)
    }

    fn holds(&self) -> MutexGuard<'_, HashMap<u64, HeldGuard>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells of the loss of a hold.
async fn tell(handle: u64, loss: LostSignal) {
    let cause = loss.lost().await.into();
    let told_ns = now_ns();
    let valid_until_ns = loss.validity().deadline().map(at_ns);
    say(None, Response::Lost(LossReport { handle, cause, told_ns, valid_until_ns }));
}

/// Takes a lock as requested.
async fn acquire(locks: &Locks, request: &LockRequest) -> Result<Guard, LockError> {
    let length = Duration::from_millis(request.lease_ms);
    let lease = match request.renewed {
        Some(true) => Lease::Renewed(length),
        Some(false) => Lease::Fixed(length),
        None => locks.guarantees().lease(length),
    };
    let max_hold = request.max_hold_ms.map(Duration::from_millis);
    let options = LockOptions::new(Duration::from_millis(request.wait_ms), lease);
    let options = LockOptions { max_hold, ..options };
    let options = if request.fenced { options.fenced() } else { options };
    let name = LockName::new(request.name.as_str())?;
    match &request.as_owner {
        Some(owner) => locks.lock_as(Owner::from_text(owner.as_str()), &name, &options).await,
        None => locks.lock(&name, &options).await,
    }
}

fn open(file: &Path) -> io::Result<Counter> {
    Counter::open(file)
}

fn no_database() -> Failure {
    failure("unsupported", &"no database")
}

fn no_such_handle() -> Failure {
    failure("no_such_handle", &"the contender does not hold that")
}

fn failure(code: &str, message: &impl ToString) -> Failure {
    Failure { code: code.into(), message: message.to_string() }
}
