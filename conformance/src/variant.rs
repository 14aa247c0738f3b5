//! Mechanisms that the registry does not make: the flaws of those that it makes do not show, or are
//! repaired, only in these.

use std::sync::Arc;
use std::time::Duration;

use distlock::{
    Acquisition, Backends, Guarantees, LockError, LockKind, LockName, Locker, Multi, MySqlServer,
    Owner, OwnerCheckLock, RedisServer, Redlock, Replication, Request, SetnxExpire, locker, mysql,
};
use serde::{Deserialize, Serialize};

/// What is unusual about the mechanism of a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// Nothing: the registry makes it.
    #[default]
    Usual,
    /// `setnx-expire` without EXPIRE.
    WithoutExpire,
    /// `owner-check` whose owners are numbers that each process counts by itself.
    ProcessNumbers,
    /// `redlock` in which a server that came up empty stays out for so long.
    RestartDelay {
        /// The longest lease there is.
        ms: u64,
    },
    /// `redisson` whose locks must be confirmed by a number of replicas.
    Confirmed {
        /// Of the replicas there are.
        by: u32,
    },
    /// `mysql-row` without a transaction.
    WithoutTransaction,
    /// `mysql-row` whose transaction inserts the row that it has found missing.
    InsertsInside,
    /// `mysql-row` whose transaction reads something before it locks.
    ReadsFirst,
    /// `mysql-named` whose sessions keep the `wait_timeout` that they have.
    WithoutTimeOut,
    /// `mysql-named` that is not refused on Galera.
    OfAnyServer,
    /// `multi` of the same name as a row, a node and a key.
    OfThreeKinds,
    /// `multi` of the `redisson` locks of one server whose names stand in its own, with commas.
    OfNames,
}

/// The members of [`Variant::OfThreeKinds`].
const THREE_KINDS: [LockKind; 3] = [LockKind::MysqlTable, LockKind::Zookeeper, LockKind::Redisson];

impl Variant {
    /// Makes the mechanism; that of [`Variant::Usual`] is the kind's, the others have theirs.
    pub fn locker(self, kind: LockKind, servers: &Backends) -> Result<Arc<dyn Locker>, LockError> {
        Ok(match self {
            Self::Usual => locker(kind, servers)?,
            Self::WithoutExpire => Arc::new(SetnxExpire::without_expire(redis(servers)?)),
            Self::ProcessNumbers => Arc::new(OwnerCheckLock::with_process_numbers(redis(servers)?)),
            Self::RestartDelay { ms } => {
                let redlock = Redlock::new(&servers.independent_redis)?;
                Arc::new(redlock.with_restart_delay(Duration::from_millis(ms)))
            }
            Self::Confirmed { by } => {
                let redis = redis(servers)?.clone().with_replication(Replication::AtLeast(by));
                locker(kind, &Backends { redis: Some(redis), ..servers.clone() })?
            }
            Self::WithoutTransaction => mysql::row::without_transaction(database(servers)?),
            Self::InsertsInside => mysql::row::inserting_inside(database(servers)?),
            Self::ReadsFirst => mysql::row::reading_first(database(servers)?),
            Self::WithoutTimeOut => mysql::named::without_time_out(database(servers)?),
            Self::OfAnyServer => mysql::named::of_any_server(database(servers)?),
            Self::OfThreeKinds => {
                let members = THREE_KINDS.into_iter().map(|member| locker(member, servers));
                Arc::new(Multi::same_name(members.collect::<Result<_, _>>()?)?)
            }
            Self::OfNames => Arc::new(OfNames::new(locker(LockKind::Redisson, servers)?)?),
        })
    }

    /// The kinds on whose servers the mechanism lives.
    pub fn lives_as(self, kind: LockKind) -> Vec<LockKind> {
        match self {
            Self::OfThreeKinds => THREE_KINDS.into(),
            Self::OfNames => vec![LockKind::Redisson],
            _ => vec![kind],
        }
    }
}

fn redis(servers: &Backends) -> Result<&RedisServer, LockError> {
    servers.redis.as_ref().ok_or(LockError::Unsupported("a Redis server"))
}

fn database(servers: &Backends) -> Result<&MySqlServer, LockError> {
    servers.mysql.as_ref().ok_or(LockError::Unsupported("a MySQL server"))
}

/// The mechanism of [`Variant::OfNames`].
struct OfNames {
    member: Arc<dyn Locker>,
    /// Of a single member: it speaks for all of them.
    one: Multi,
}

impl OfNames {
    fn new(member: Arc<dyn Locker>) -> Result<Self, LockError> {
        let one = Multi::same_name(vec![Arc::clone(&member)])?;
        Ok(Self { member, one })
    }
}

impl Locker for OfNames {
    fn name(&self) -> &'static str {
        self.one.name()
    }

    fn guarantees(&self) -> Guarantees {
        self.one.guarantees()
    }

    fn fresh_owner(&self) -> Owner {
        self.one.fresh_owner()
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        let name = |name| LockName::new(name).expect("no part of the name is empty");
        let names = request.name.as_str().split(',').map(name);
        let members = names.map(|name| (Arc::clone(&self.member), name)).collect();
        Multi::of(members).expect("a name has a part").begin(request)
    }
}
