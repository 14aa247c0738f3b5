//! The servers of a test program, each started when a kind first needs it.

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use distlock::mysql::ensure_schema;
use distlock::{
    Backend, Backends, Guarantees, LockError, LockKind, LockName, LockOptions, Locks, WakeKind,
    guarantees, locker,
};
use testbed::{
    Bed, Database, Etcd, EtcdOptions, Flavor, Nats, NatsOptions, Redis, RedisOptions, ZooKeeper,
    ZooKeeperOptions,
};
use tokio::runtime::Builder;
use uuid::Uuid;

use crate::addresses::Addresses;

/// Servers of `redlock` and `multi`.
const INDEPENDENT: usize = 5;

/// How long the first connections may take.
const WARM_UP: Duration = Duration::from_secs(10);
const WARM_UP_LEASE: Duration = Duration::from_secs(2);

/// The database of the `mysql` kinds.
const DATABASE: &str = "locks";

/// What is timed is the lock: a disk that others keep busy makes each write wait.
pub const ZOOKEEPER_SYNC: &str = "forceSync=no";

/// What a kind lives on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// The process itself, or nothing.
    Process,
    /// One Redis.
    Redis,
    /// Several Redis servers that do not know of each other.
    IndependentRedis,
    /// `MariaDB` or `MySQL`.
    Database,
    /// `ZooKeeper`.
    ZooKeeper,
    /// etcd.
    Etcd,
    /// NATS.
    Nats,
}

/// What the kind lives on.
pub fn home(kind: LockKind) -> Home {
    match kind.backend() {
        Backend::Process => Home::Process,
        Backend::Redis => Home::Redis,
        Backend::IndependentRedis => Home::IndependentRedis,
        Backend::MySql => Home::Database,
        Backend::ZooKeeper => Home::ZooKeeper,
        Backend::Etcd => Home::Etcd,
        Backend::Nats => Home::Nats,
    }
}

/// What the kind promises: what its mechanism says, made for servers that need not be there, since
/// a composite knows its members. The table of guarantees speaks for a kind that cannot be made so.
pub fn promise(kind: LockKind) -> Guarantees {
    let made = async {
        let nowhere = Addresses::nowhere().connect().await?;
        Ok::<_, LockError>(locker(kind, &nowhere)?.guarantees())
    };
    in_a_runtime(made).unwrap_or_else(|_| guarantees(kind))
}

/// In a thread of its own, as the caller may be in a runtime already.
fn in_a_runtime<T: Send>(work: impl Future<Output = T> + Send) -> T {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let done = thread::scope(|scope| scope.spawn(|| runtime.block_on(work)).join());
    done.unwrap_or_else(|panic| resume_unwind(panic))
}

/// After how many busy answers a waiter stands in the queue of a kind that has one. A waiter that
/// is woken by messages enters the queue only once it has subscribed: the head of the queue always
/// listens.
pub fn busy_until_queued(promise: &Guarantees) -> u64 {
    let subscribes = promise.is_on_a_server() && promise.wake == WakeKind::Message;
    if subscribes { 2 } else { 1 }
}

/// Takes and releases an unused lock, so that no later command pays for the connections. A machine
/// that is busy with starting processes gets a second chance, and more.
pub async fn warm_up(locks: &Locks) -> Result<(), LockError> {
    let options = LockOptions::new(Duration::ZERO, locks.guarantees().lease(WARM_UP_LEASE));
    let deadline = Instant::now() + WARM_UP;
    loop {
        let name = LockName::new(format!("lock:warm-up:{}", Uuid::new_v4()))?;
        let outcome = match locks.lock(&name, &options).await {
            Ok(guard) => guard.release().await.map(drop),
            Err(error) => Err(error),
        };
        match outcome {
            Err(LockError::Backend(_)) if Instant::now() < deadline => {}
            outcome => return outcome,
        }
    }
}

/// Makes the tables of the locks in a fresh database server; where they are.
pub fn with_tables(database: &Database) -> String {
    tables_in(database, DATABASE)
}

fn tables_in(database: &Database, name: &str) -> String {
    database.create_database(name).expect("no other database has that name");
    let url = database.url(name);
    let addresses = Addresses { mysql: Some(url.clone()), ..Addresses::nowhere() };
    let made = in_a_runtime(async {
        let server = addresses.connect().await?.mysql;
        ensure_schema(server.expect("its address was given").pool()).await
    });
    made.expect("a fresh database takes tables");
    url
}

/// Private servers, shared by all users of the same value. Everything here panics, with the reason,
/// if a server does not start.
pub struct Servers {
    bed: Bed,
    redis: OnceLock<Redis>,
    independent_redis: OnceLock<Vec<Redis>>,
    database: OnceLock<Database>,
    zookeeper: OnceLock<ZooKeeper>,
    etcd: OnceLock<Etcd>,
    nats: OnceLock<Nats>,
}

/// Those that were needed so far, one of each.
pub struct StartedServers<'a> {
    /// The one Redis, or one of the five.
    pub redis: Option<&'a Redis>,
    /// The database server.
    pub database: Option<&'a Database>,
    /// The `ZooKeeper`.
    pub zookeeper: Option<&'a ZooKeeper>,
    /// The etcd.
    pub etcd: Option<&'a Etcd>,
    /// The NATS server.
    pub nats: Option<&'a Nats>,
}

impl Servers {
    /// Servers of its own, for a test that injects faults.
    pub fn start() -> Self {
        Self {
            bed: Bed::start().expect("a folder for private servers"),
            redis: OnceLock::new(),
            independent_redis: OnceLock::new(),
            database: OnceLock::new(),
            zookeeper: OnceLock::new(),
            etcd: OnceLock::new(),
            nats: OnceLock::new(),
        }
    }

    /// The servers of this program. What takes them down when the program ends is the bed's.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Servers> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// The folder and what else runs in it.
    pub fn bed(&self) -> &Bed {
        &self.bed
    }

    /// The one Redis.
    pub fn redis(&self) -> &Redis {
        self.redis.get_or_init(|| self.a_redis())
    }

    /// Five Redis servers that do not know of each other.
    pub fn independent_redis(&self) -> &[Redis] {
        self.independent_redis.get_or_init(|| (0..INDEPENDENT).map(|_| self.a_redis()).collect())
    }

    /// The database server, with the tables of the locks.
    pub fn database(&self) -> &Database {
        self.database.get_or_init(|| {
            let database = self.bed.database(Flavor::Any).expect("a database server");
            with_tables(&database);
            database
        })
    }

    /// Tables of the locks of this contender alone, on that server; where they are.
    pub fn fresh_tables(&self) -> String {
        tables_in(self.database(), &format!("locks_{}", Uuid::new_v4().simple()))
    }

    /// The `ZooKeeper`.
    pub fn zookeeper(&self) -> &ZooKeeper {
        // It looks for dead sessions at every tick.
        let options = ZooKeeperOptions {
            tick_time_ms: 50,
            min_session_timeout_ms: 100,
            extra: vec![ZOOKEEPER_SYNC.into()],
            ..ZooKeeperOptions::default()
        };
        let start = || self.bed.zookeeper(options);
        self.zookeeper.get_or_init(|| start().expect("a ZooKeeper"))
    }

    /// The etcd.
    pub fn etcd(&self) -> &Etcd {
        self.etcd.get_or_init(|| self.bed.etcd(EtcdOptions::default()).expect("an etcd"))
    }

    /// The NATS server.
    pub fn nats(&self) -> &Nats {
        self.nats.get_or_init(|| self.bed.nats(&NatsOptions::default()).expect("a NATS server"))
    }

    /// What has been started.
    pub fn started(&self) -> StartedServers<'_> {
        let one_of_five = || self.independent_redis.get().and_then(|all| all.first());
        StartedServers {
            redis: self.redis.get().or_else(one_of_five),
            database: self.database.get(),
            zookeeper: self.zookeeper.get(),
            etcd: self.etcd.get(),
            nats: self.nats.get(),
        }
    }

    /// Where a process finds what the kind lives on; starts it if need be.
    pub fn addresses(&self, kind: LockKind) -> Addresses {
        let mut addresses = Addresses::default();
        self.add_addresses(kind, &mut addresses);
        addresses
    }

    /// Where a process finds what all of these kinds live on; starts it if need be.
    pub fn addresses_of(&self, kinds: &[LockKind]) -> Addresses {
        let mut addresses = Addresses::default();
        for kind in kinds {
            self.add_addresses(*kind, &mut addresses);
        }
        addresses
    }

    fn add_addresses(&self, kind: LockKind, addresses: &mut Addresses) {
        match home(kind) {
            Home::Redis => addresses.redis = Some(self.redis().url().to_owned()),
            Home::IndependentRedis => {
                let servers = self.independent_redis().iter();
                addresses.independent_redis = servers.map(|redis| redis.url().to_owned()).collect();
            }
            Home::Database => addresses.mysql = Some(self.database().url(DATABASE)),
            Home::ZooKeeper => {
                addresses.zookeeper = Some(self.zookeeper().connect_string().to_owned());
            }
            Home::Etcd => addresses.etcd = Some(self.etcd().endpoint().to_owned()),
            Home::Nats => addresses.nats = Some(self.nats().url().to_owned()),
            Home::Process => {}
        }
    }

    /// The kind's backends, with connections of their own: another process, as far as a server can
    /// see. Blocks while servers start.
    pub async fn backends(&self, kind: LockKind) -> Backends {
        self.addresses(kind).connect().await.expect("addresses of servers that run")
    }

    /// Locks with connections of their own, in this process.
    pub async fn locks(&self, kind: LockKind) -> Locks {
        let locker = locker(kind, &self.backends(kind).await);
        let locks = Locks::new(locker.unwrap_or_else(|error| panic!("{kind}: {error}")));
        warm_up(&locks).await.unwrap_or_else(|error| panic!("{kind}: {error}"));
        locks
    }

    /// The folder of the token source that all processes of these servers share.
    pub fn token_folder(&self) -> PathBuf {
        self.bed.dir().join("tokens")
    }

    /// A path in the bed's folder that is not used yet.
    pub fn fresh_path(&self, what: &str) -> PathBuf {
        self.bed.dir().join(format!("{what}-{}", Uuid::new_v4()))
    }

    fn a_redis(&self) -> Redis {
        self.bed.redis(RedisOptions::default()).expect("Redis is installed")
    }
}
