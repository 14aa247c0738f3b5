//! Fencing tokens of every kind that has some rise strictly, whatever happens to its servers and
//! its holders. Own tokens are those of `mysql-table`, `zookeeper`, `etcd` and `nats`; all others
//! are issued in the database. Witnesses: each failure is seen to have happened before the next
//! token is asked for.

use std::time::{Duration, Instant};

use conformance::protocol::{AcquiredLock, LockRequest, Setup, TokenSource};
use conformance::{
    Contender, Home, Replica, Servers, WAIT_TIMEOUT, eventually, fresh_name, home, promise, setup,
};
use distlock::{Fencing, LockKind};
use testbed::{Redis, RedisOptions};

/// A lease, and the time-out of a session.
const LEASE: Duration = Duration::from_secs(1);
/// A lease that does not end in a test.
const LONG: Duration = Duration::from_mins(2);

#[test]
fn tokens_of_a_name_rise_through_every_failure_of_servers_and_holders() {
    let has_tokens =
        |kind: &LockKind| matches!(promise(*kind).fencing, Fencing::Yes | Fencing::Optional);
    let kinds: Vec<LockKind> = LockKind::ALL.into_iter().filter(has_tokens).collect();
    assert!(kinds.len() >= 5, "{kinds:?}");
    // Most of the time is spent waiting for leases to end.
    std::thread::scope(|all| {
        for kind in kinds {
            all.spawn(move || {
                let tokens = Place::of(kind).tokens();
                println!("{kind}: {tokens:?}");
                let rise = tokens.is_sorted_by(|(_, before), (_, after)| before < after);
                assert!(rise, "{kind}: a token is not above the one before: {tokens:?}");
            });
        }
    });
}

/// What happened before it, and the token.
type Tokens = Vec<(&'static str, u64)>;

/// Servers of a kind's own, and a lock on them.
struct Place {
    kind: LockKind,
    servers: Servers,
    setup: Setup,
    /// Of the kinds that live in one Redis.
    redis: Option<(Redis, Replica)>,
    want: LockRequest,
    tokens: Tokens,
}

impl Place {
    fn of(kind: LockKind) -> Self {
        let servers = Servers::start();
        let mut setup = setup(&servers, LockKind::MysqlTable);
        let redis = (home(kind) == Home::Redis).then(|| {
            let master = servers.bed().redis(RedisOptions::default()).expect("Redis is installed");
            setup.addresses.redis = Some(master.url().to_owned());
            let replica = Replica::of(&servers, &master);
            (master, replica)
        });
        let is_apart = matches!(home(kind), Home::ZooKeeper | Home::Etcd | Home::Nats);
        if is_apart || home(kind) == Home::IndependentRedis {
            let addresses = servers.addresses(kind);
            setup.addresses.zookeeper = addresses.zookeeper;
            setup.addresses.etcd = addresses.etcd;
            setup.addresses.nats = addresses.nats;
            setup.addresses.independent_redis = addresses.independent_redis;
        }
        setup.kind = kind.to_string();
        setup.token_source = Some(TokenSource::Database);
        let want = LockRequest::new(&fresh_name(), LEASE).fenced().waiting(WAIT_TIMEOUT);
        Self { kind, servers, setup, redis, want, tokens: Tokens::new() }
    }

    fn tokens(mut self) -> Tokens {
        for since in ["nothing", "a release"] {
            let (holder, held) = self.enter(since);
            holder.release(held.handle).expect("a release");
        }
        let (holder, _) = self.enter("a release to another process");
        holder.kill();
        let (frozen, held) = self.enter("the death of its holder");
        frozen.freeze();
        let (successor, others) = self.enter("the end of a frozen holder's lease");
        frozen.thaw();
        frozen.lost(held.handle, WAIT_TIMEOUT);
        successor.release(others.handle).expect("a release");
        match home(self.kind) {
            Home::Redis => {
                self.flush();
                self.fail_over();
            }
            Home::IndependentRedis => self.flush(),
            Home::Database | Home::ZooKeeper | Home::Etcd | Home::Nats => self.kill_the_server(),
            Home::Process => panic!("{} has no server", self.kind),
        }
        self.tokens
    }

    /// A new process takes the lock, and with it a token. An answer that comes later than its lease
    /// ends is asked for again: that token is not seen.
    fn enter(&mut self, since: &'static str) -> (Contender, AcquiredLock) {
        let contender = Contender::start_as(&self.servers, &self.setup);
        let deadline = Instant::now() + WAIT_TIMEOUT;
        let held = loop {
            match contender.lock(&self.want) {
                Ok(held) => break held,
                Err(failure) => {
                    let is_late = failure.code == "backend" && Instant::now() < deadline;
                    assert!(is_late, "{}: after {since}: {failure:?}", self.kind);
                }
            }
        };
        self.tokens.push((since, held.token.expect("a token")));
        (contender, held)
    }

    fn flush(&mut self) {
        let (flushed, held) = self.enter("a release");
        let independent = match &self.redis {
            Some(_) => &[],
            None => self.servers.independent_redis(),
        };
        for server in independent.iter().chain(self.redis.as_ref().map(|(master, _)| master)) {
            server.command(&["FLUSHALL"]).expect("an answer");
        }
        let (holder, others) = self.enter("FLUSHALL");
        flushed.lost(held.handle, WAIT_TIMEOUT);
        holder.release(others.handle).expect("a release");
    }

    fn fail_over(&mut self) {
        let (master, replica) = self.redis.take().expect("it lives there");
        // The replica may still be hearing of what was before.
        let has_nothing = || replica.redis().command(&["DBSIZE"]).expect("an answer").trim() == "0";
        eventually("the locks of before are forgotten", || {
            master.command(&["FLUSHALL"]).expect("an answer");
            has_nothing()
        });
        replica.cut_off();
        self.want = LockRequest::new(&self.want.name, LONG).fenced();
        let (forgotten, held) = self.enter("a release, unheard by the replica");
        replica.succeed(&master, &self.want.name);
        self.setup.addresses.redis = Some(replica.redis().url().to_owned());
        let (successor, others) = self.enter("a failover to a replica that lags");
        // Both hold it.
        assert!(!forgotten.is_lost(held.handle) && !successor.is_lost(others.handle));
    }

    fn kill_the_server(&mut self) {
        let (holder, _) = self.enter("a release");
        let server = match home(self.kind) {
            Home::Database => self.servers.database(),
            Home::Etcd => self.servers.etcd() as &testbed::Process,
            Home::Nats => self.servers.nats() as &testbed::Process,
            _ => self.servers.zookeeper() as &testbed::Process,
        };
        let pid = server.pid();
        server.kill().expect("it is killed");
        holder.kill();
        server.restart().expect("it comes back");
        assert_ne!(server.pid(), pid);
        let (successor, held) = self.enter("a crash of the server");
        successor.release(held.handle).expect("a release");
        let _last = self.enter("a release");
    }
}
