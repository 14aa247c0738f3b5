// The list of lock kinds: where each mechanism is, and its row. A new kind is one file and one row
// (docs/adding-a-lock.md). `kind.rs` makes the enum, the table of guarantees and the registry of
// the rows; the laboratory includes this file, and takes its list from the same rows
// (docs/decisions/0044). So this file has nothing but mechanisms of a feature and the rows. The
// names in capitals are flaws that kinds share (`flaws.rs`).

#[cfg(feature = "redis")]
#[path = "redis"]
pub(crate) mod redis {
    pub(crate) mod fair;
    pub(crate) mod getset_timestamp;
    pub(crate) mod lua_release;
    pub(crate) mod owner_check;
    pub(crate) mod read_write;
    pub(crate) mod redisson;
    pub(crate) mod redlock;
    pub(crate) mod reentrant;
    pub(crate) mod set_nx;
    pub(crate) mod setnx_expire;
}

#[cfg(feature = "mysql")]
#[path = "mysql"]
pub(crate) mod mysql {
    pub mod named;
    pub mod row;
    pub(crate) mod table_lock;
}

#[cfg(feature = "zookeeper")]
#[path = "zookeeper"]
pub(crate) mod zookeeper {
    pub(crate) mod lock;
}

#[cfg(feature = "etcd")]
#[path = "etcd"]
pub(crate) mod etcd {
    pub(crate) mod lock;
}

#[cfg(feature = "nats")]
#[path = "nats"]
pub(crate) mod nats {
    pub(crate) mod lock;
}

// In the order in which the literature introduces them.
kinds! {
    /// No lock at all.
    None = "none" {
        backend: Process, keys: None,
        hold: Nothing, renewal: NotApplicable, wake: Never,
        owner_checked: NotApplicable, idempotent: NotApplicable, reentrant: NotApplicable,
        fair: NotApplicable, fencing: NotApplicable,
        flaws: ["excludes no contender"],
        locker: |_servers| crate::none::NoLock,
    }

    /// A fair mutex per name inside this process, as `synchronized` is in a JVM.
    Local = "local" {
        backend: Process, keys: None,
        hold: Process, renewal: NotApplicable, wake: Message,
        owner_checked: Yes, idempotent: Yes, reentrant: No,
        fair: Yes, fencing: No,
        flaws: ["replicas do not see each other"],
        locker: |_servers| crate::local::Local::new(),
    }

    /// Redis `SETNX`, then `EXPIRE`, then `DEL`.
    SetnxExpire = "setnx-expire" {
        backend: Redis, keys: SetNx,
        hold: Lease, renewal: No, wake: Poll,
        owner_checked: No, idempotent: No, reentrant: No,
        fair: No, fencing: No,
        flaws: [
            "a holder that dies between SETNX and EXPIRE blocks all contenders forever",
            "DEL removes another owner's lock",
            LONG_WORK,
            FAILOVER,
            SERVER_CLOCK,
        ],
        locker: |servers| self::redis::setnx_expire::SetnxExpire::new(servers.redis()?),
    }

    /// Redis `SET key owner NX PX lease`, released by a bare `DEL`.
    SetNx = "set-nx" {
        backend: Redis, keys: Set,
        hold: Lease, renewal: No, wake: Poll,
        owner_checked: No, idempotent: No, reentrant: No,
        fair: No, fencing: No,
        flaws: [
            LONG_WORK,
            "its late DEL frees the successor's lock, and a third enters",
            FAILOVER,
            SERVER_CLOCK,
        ],
        locker: |servers| self::redis::set_nx::SetNx::new(servers.redis()?),
    }

    /// As `set-nx`, released by `GET`, a comparison in the client, `DEL`.
    OwnerCheck = "owner-check" {
        backend: Redis, keys: Set,
        hold: Lease, renewal: No, wake: Poll,
        owner_checked: Racy, idempotent: No, reentrant: No,
        fair: No, fencing: No,
        flaws: [
            "a pause between GET and DEL frees the successor's lock",
            "an owner that is a number of the process collides between replicas",
            LONG_WORK,
            FAILOVER,
            SERVER_CLOCK,
        ],
        locker: |servers| self::redis::owner_check::OwnerCheckLock::new(servers.redis()?),
    }

    /// As `set-nx`, released by one script that compares the owner.
    LuaRelease = "lua-release" {
        backend: Redis, keys: Set,
        hold: Lease, renewal: No, wake: Poll,
        owner_checked: Atomic, idempotent: Yes, reentrant: No,
        fair: No, fencing: No,
        flaws: [
            LONG_WORK,
            "the same owner cannot enter again",
            FAILOVER,
            SERVER_CLOCK,
        ],
        locker: |servers| self::redis::lua_release::LuaRelease::new(servers.redis()?),
    }

    /// Redis `SETNX` of the time at which it ends by the client's clock, taken over by `GETSET`.
    GetsetTimestamp = "getset-timestamp" {
        backend: Redis, keys: Timestamp,
        hold: Lease, renewal: No, wake: Poll,
        owner_checked: No, idempotent: No, reentrant: No,
        fair: No, fencing: No,
        flaws: [
            "trusts the clocks of the clients",
            "a loser overwrites the winner's deadline",
            LONG_WORK,
            FAILOVER,
        ],
        locker: |servers| self::redis::getset_timestamp::GetsetTimestamp::new(servers.redis()?),
    }

    /// A Redis hash of owner and hold count, changed by scripts.
    Reentrant = "reentrant" {
        backend: Redis, keys: Hash,
        hold: Lease, renewal: No, wake: Poll,
        owner_checked: Atomic, idempotent: No, reentrant: Yes,
        fair: No, fencing: No,
        flaws: [
            LONG_WORK,
            "an answer that is lost on re-entry counts twice",
            FAILOVER,
            SERVER_CLOCK,
        ],
        locker: |servers| self::redis::reentrant::Reentrant::new(servers.redis()?),
    }

    /// Redisson's `RLock`: the hash, a message at release, a watchdog. Speaks its wire format.
    Redisson = "redisson" {
        backend: Redis, keys: Hash,
        hold: Lease, renewal: Yes, wake: Message,
        owner_checked: Atomic, idempotent: Yes, reentrant: Yes,
        fair: No, fencing: Optional,
        flaws: [FAILOVER, SERVER_CLOCK, PAUSED, STALE_READER],
        locker: |servers| self::redis::redisson::Redisson::on(servers.redis()?),
    }

    /// A queue in Redis: first come, first served.
    Fair = "fair" {
        backend: Redis, keys: Fair,
        hold: Lease, renewal: Yes, wake: Message,
        owner_checked: Atomic, idempotent: Yes, reentrant: Yes,
        fair: Yes, fencing: Optional,
        flaws: [FAILOVER, SERVER_CLOCK, PAUSED, STALE_READER],
        locker: |servers| self::redis::fair::Fair::new(servers.redis()?),
    }

    /// Redis: readers share, a writer excludes. As a plain lock it is the writer's side.
    ReadWrite = "read-write" {
        backend: Redis, keys: ReadWrite,
        hold: Lease, renewal: Yes, wake: Message,
        owner_checked: Atomic, idempotent: Yes, reentrant: Yes,
        fair: No, fencing: Optional,
        flaws: [FAILOVER, SERVER_CLOCK, PAUSED, STALE_READER],
        locker: |servers| self::redis::read_write::WriteLock::new(servers.redis()?),
    }

    /// All of several locks.
    Multi = "multi" {
        backend: IndependentRedis, keys: None,
        hold: WeakestMember, renewal: Yes, wake: Poll,
        owner_checked: Atomic, idempotent: Yes, reentrant: No,
        fair: No, fencing: No,
        flaws: ["one member that is away blocks all contenders", PAUSED, STALE_READER],
        locker: |servers| servers.multi()?,
    }

    /// A majority of independent Redis servers (Redlock).
    Redlock = "redlock" formerly "red" {
        backend: IndependentRedis, keys: None,
        hold: Lease, renewal: Yes, wake: Poll,
        owner_checked: Atomic, idempotent: Yes, reentrant: No,
        fair: No, fencing: No,
        flaws: [
            "a node that restarts empty too early has two majorities",
            "a clock that jumps on a majority ends the lock early",
            "a holder that is paused past the validity has no fence",
            "a restart of all nodes without durable storage forgets the lock",
            "a restart of all nodes with AOF everysec forgets the lock",
        ],
        locker: |servers| servers.redlock()?,
    }

    /// A row per lock with owner, expiry and token.
    MysqlTable = "mysql-table" {
        backend: MySql, keys: None,
        hold: Lease, renewal: Yes, wake: Poll,
        owner_checked: Atomic, idempotent: Yes, reentrant: Yes,
        fair: No, fencing: Yes,
        flaws: [
            SERVER_CLOCK,
            "a failover to a replica that lags forgets the lock, and gives its token out again",
            PAUSED,
            STALE_READER,
        ],
        locker: |servers| self::mysql::table_lock::TableLock::new(servers.mysql()?),
    }

    /// `SELECT ... FOR UPDATE` in the transaction of the business write.
    MysqlRow = "mysql-row" {
        backend: MySql, keys: None,
        hold: Transaction, renewal: NotApplicable, wake: Server,
        owner_checked: Atomic, idempotent: Yes, reentrant: No,
        fair: No, fencing: NotNeeded,
        flaws: [
            "under autocommit all contenders enter",
            "two transactions that insert a missing row deadlock",
            "a plain read before the lock fixes an old snapshot",
            "each waiter holds a connection",
            "Galera grants it on each node, and refuses all commits but the first",
        ],
        locker: |servers| self::mysql::row::RowLock::new(servers.mysql()?),
    }

    /// `GET_LOCK` on a pinned connection.
    MysqlNamed = "mysql-named" {
        backend: MySql, keys: None,
        hold: Session, renewal: Heartbeat, wake: Server,
        owner_checked: Atomic, idempotent: Yes, reentrant: No,
        fair: No, fencing: No,
        flaws: [
            "each holder and waiter has a connection of its own",
            "a session that the server ends frees the lock before its holder knows",
            "a session that is cut off keeps its lock for as long as the server waits for it",
            "Galera grants it on each node",
            "a holder that is paused past its session works on, and there is no fence",
        ],
        locker: |servers| self::mysql::named::NamedLock::new(servers.mysql()?),
    }

    /// Ephemeral sequential nodes, as Curator's `InterProcessMutex`.
    Zookeeper = "zookeeper" {
        backend: ZooKeeper, keys: None,
        hold: Session, renewal: Heartbeat, wake: Watch,
        owner_checked: Atomic, idempotent: Yes, reentrant: Yes,
        fair: Yes, fencing: Yes,
        flaws: [
            "a holder that is paused past its session works on unless its token is checked",
            STALE_READER,
        ],
        locker: |servers| self::zookeeper::lock::ZookeeperLock::new(servers.zookeeper()?),
    }

    /// A lease and a key per contender, as `Mutex` of etcd's package `concurrency`.
    Etcd = "etcd" {
        backend: Etcd, keys: None,
        hold: Session, renewal: Heartbeat, wake: Watch,
        owner_checked: Atomic, idempotent: Yes, reentrant: No,
        fair: Yes, fencing: Yes,
        flaws: [PAUSED, STALE_READER],
        locker: |servers| self::etcd::lock::EtcdLock::new(servers.etcd()?),
    }

    /// A key of a NATS bucket, whose maximum age is the TTL.
    Nats = "nats" {
        backend: Nats, keys: None,
        hold: Session, renewal: Heartbeat, wake: Message,
        owner_checked: Atomic, idempotent: Yes, reentrant: No,
        fair: No, fencing: Yes,
        flaws: [
            "entries age by the clock of their server, which may be set forward",
            "a server that loses power forgets locks that it has not flushed to disk",
            PAUSED,
            STALE_READER,
        ],
        locker: |servers| self::nats::lock::NatsLock::new(servers.nats()?),
    }
}
