//! What a check gets: a kind, its guarantees, its servers, and processes that use it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use conformance::protocol::{LockRequest, Setup};
use conformance::variant::Variant;
use conformance::{
    Addresses, Contender, FileTokenIssuer, Home, Peer, Servers, home, setup_of, warm_up,
};
use distlock::{
    Backends, Guarantees, HoldKind, LockError, LockKind, LockName, LockOptions, Locker, Locks,
    RenewalKind,
};
use std::sync::Arc;
use testbed::Proxy;
use tokio::runtime::{Builder, Runtime};

use crate::clients;

/// A lease that does not end in a check: what is left behind is in the way for good.
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// A lease that ends in a check, and not before its holder has been waited for.
pub(crate) const SHORT: Duration = Duration::from_secs(3);
/// A session that ends in a check. A holder that stands still for a moment keeps its locks.
const SHORT_TTL: Duration = Duration::from_millis(3500);
/// A session that is kept, where its holder has to keep its locks.
const LASTING_TTL: Duration = Duration::from_secs(5);
/// What a wait may take beyond its time on a machine that stands still for seconds, far from LONG.
pub(crate) const SLACK: Duration = Duration::from_secs(8);
/// How long a check of this process may take.
const LIMIT: Duration = Duration::from_mins(1);

/// A kind, and what it promises.
#[derive(Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) kind: LockKind,
    pub(crate) variant: Variant,
    pub(crate) promise: Guarantees,
    /// The client whose processes are asked, if they are not this library's.
    pub(crate) client: Option<Peer>,
}

impl Subject {
    pub(crate) fn is_asked(&self, check: &Check) -> Applicability {
        match (self.client, (check.asked)(self)) {
            (Some(_), Applicability::Yes) => clients::is_asked(check.name),
            (_, asked) => asked,
        }
    }
}

/// One check.
#[derive(Clone, Copy)]
pub(crate) struct Check {
    /// A sentence.
    pub(crate) name: &'static str,
    /// Whether it is asked of that kind.
    pub(crate) asked: fn(&Subject) -> Applicability,
    /// Panics if the kind does not keep what it promises.
    pub(crate) run: fn(&Arena),
}

/// Whether a check is asked of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Applicability {
    /// It is.
    Yes,
    /// It is not, because the kind promises nothing of that sort.
    No(&'static str),
}

impl Applicability {
    /// Asked if the condition holds.
    pub(crate) fn of_those_that(condition: bool, else_because: &'static str) -> Self {
        if condition { Self::Yes } else { Self::No(else_because) }
    }
}

/// Of every kind.
pub(crate) fn of_all(_: &Subject) -> Applicability {
    Applicability::Yes
}

/// Of kinds that exclude.
pub(crate) fn of_locks(subject: &Subject) -> Applicability {
    Applicability::of_those_that(subject.promise.hold != HoldKind::Nothing, "holds nothing")
}

/// Of kinds that other processes meet.
pub(crate) fn of_servers(subject: &Subject) -> Applicability {
    Applicability::of_those_that(subject.promise.is_on_a_server(), "lives in no server")
}

/// Of kinds whose holds end when nothing more is heard of their holders.
pub(crate) fn of_ending(subject: &Subject) -> Applicability {
    match subject.promise.hold {
        HoldKind::Lease | HoldKind::Session | HoldKind::WeakestMember => Applicability::Yes,
        HoldKind::Transaction => {
            Applicability::No("keeps all others out for as long as it is frozen")
        }
        HoldKind::Nothing | HoldKind::Process => Applicability::No("lives in no server"),
    }
}

/// Of kinds whose holds are kept alive.
pub(crate) fn of_renewed(subject: &Subject) -> Applicability {
    match subject.promise.renewal {
        RenewalKind::Yes | RenewalKind::Heartbeat => Applicability::Yes,
        RenewalKind::No => Applicability::No("renews nothing"),
        RenewalKind::NotApplicable => Applicability::No("has no lease"),
    }
}

/// Whether holds end at a time that the server knows.
pub(crate) fn has_lease(promise: &Guarantees) -> bool {
    let ends = matches!(promise.hold, HoldKind::Lease | HoldKind::WeakestMember);
    ends && promise.renewal != RenewalKind::Heartbeat
}

pub(crate) struct Arena {
    pub(crate) kind: LockKind,
    variant: Variant,
    pub(crate) promise: Guarantees,
    pub(crate) servers: &'static Servers,
    client: Option<Peer>,
}

/// A process that holds and one that wants the same; the same one where processes do not meet.
pub(crate) struct Pair {
    pub(crate) holder: Contender,
    rival: Option<Contender>,
}

impl Pair {
    pub(crate) fn rival(&self) -> &Contender {
        self.rival.as_ref().unwrap_or(&self.holder)
    }
}

impl Arena {
    pub(crate) fn of(subject: Subject) -> Self {
        let Subject { kind, variant, promise, client, .. } = subject;
        Self { kind, variant, promise, servers: Servers::shared(), client }
    }

    /// The kinds on whose servers it lives.
    pub(crate) fn lives_as(&self) -> Vec<LockKind> {
        self.variant.lives_as(self.kind)
    }

    /// Whether that is among what it lives on.
    pub(crate) fn lives_on(&self, place: Home) -> bool {
        self.lives_as().into_iter().any(|kind| home(kind) == place)
    }

    /// Where a process finds what it lives on.
    fn addresses(&self) -> Addresses {
        let mut addresses = self.servers.addresses_of(&self.lives_as());
        addresses.set_ttl(SHORT_TTL);
        addresses
    }

    /// With connections of their own.
    pub(crate) async fn backends(&self) -> Backends {
        self.addresses().connect().await.expect("addresses of servers that run")
    }

    /// The mechanism.
    pub(crate) fn locker(&self, servers: &Backends) -> Result<Arc<dyn Locker>, LockError> {
        let locker = self.variant.locker(self.kind, servers)?;
        assert_eq!(locker.guarantees(), self.promise, "it is asked for something else");
        Ok(locker)
    }

    /// Of a process.
    pub(crate) fn setup(&self) -> Setup {
        let mut setup = setup_of(self.servers, self.kind, self.variant);
        setup.addresses.set_ttl(SHORT_TTL);
        setup
    }

    /// Of a process that shall keep its holds, and the lease of those that are renewed: a third of
    /// it is no short time for a busy machine. Of a session less is left after a heartbeat.
    pub(crate) fn setup_that_lasts(&self) -> (Setup, Duration) {
        let mut setup = self.setup();
        if self.promise.renewal != RenewalKind::Heartbeat {
            return (setup, SHORT * 3 / 2);
        }
        setup.addresses.set_ttl(LASTING_TTL);
        (setup, LASTING_TTL)
    }

    /// A process.
    pub(crate) fn contender(&self) -> Contender {
        self.contender_as(&self.setup())
    }

    /// A process that is set up in this way.
    pub(crate) fn contender_as(&self, setup: &Setup) -> Contender {
        match self.client {
            Some(client) => Contender::start_client(self.servers, client, setup),
            None => Contender::start_as(self.servers, setup),
        }
    }

    /// Ways of one's own to its servers, and the addresses at their near ends.
    pub(crate) fn ways(&self) -> (Vec<Proxy>, Addresses) {
        let (servers, mut addresses) = (self.servers, self.addresses());
        let mut ways = Vec::new();
        let mut lead = |server: SocketAddr, url: &mut String| {
            let way = Proxy::before(server).expect("a proxy");
            *url = way.instead_of(server, url);
            ways.push(way);
        };
        addresses.redis.iter_mut().for_each(|url| lead(servers.redis().addr(), url));
        let independent = addresses.independent_redis.iter_mut();
        independent
            .zip(0..)
            .for_each(|(url, number)| lead(servers.independent_redis()[number].addr(), url));
        addresses.mysql.iter_mut().for_each(|url| lead(servers.database().addr(), url));
        addresses.zookeeper.iter_mut().for_each(|hosts| lead(servers.zookeeper().addr(), hosts));
        addresses.etcd.iter_mut().for_each(|endpoints| lead(servers.etcd().addr(), endpoints));
        addresses.nats.iter_mut().for_each(|url| lead(servers.nats().addr(), url));
        assert!(!ways.is_empty(), "{} has no server", self.kind);
        (ways, addresses)
    }

    pub(crate) fn pair(&self) -> Pair {
        let rival = self.promise.is_on_a_server().then(|| self.contender());
        Pair { holder: self.contender(), rival }
    }

    /// What another process is, as far as a server can see.
    pub(crate) async fn locks(&self) -> Locks {
        let locks = Locks::new(self.locker(&self.backends().await).expect("its servers are there"));
        warm_up(&locks).await.expect("its servers answer");
        locks.with_token_issuer(Arc::new(FileTokenIssuer(self.servers.token_folder())))
    }

    /// Two of them; the same one where processes do not meet.
    pub(crate) async fn two_locks(&self) -> (Locks, Locks) {
        let one = self.locks().await;
        if self.promise.is_on_a_server() { (one, self.locks().await) } else { (one.clone(), one) }
    }

    /// A long lease of the sort that suits the kind.
    pub(crate) fn options(&self, wait: Duration) -> LockOptions {
        LockOptions::new(wait, self.promise.lease(LONG))
    }

    /// Runs a check of this process.
    pub(crate) fn run(&self, check: impl AsyncFnOnce()) {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime: Runtime = runtime.expect("threads");
        // What blocks while servers start is done before.
        let _addresses = self.addresses();
        let outcome = runtime.block_on(async { tokio::time::timeout(LIMIT, check()).await });
        assert!(outcome.is_ok(), "not within {LIMIT:?}");
    }
}

/// Asks for that lock without waiting, with a long lease.
pub(crate) fn at_once(name: &str) -> LockRequest {
    LockRequest::new(name, LONG)
}

/// Asks for that lock with a long lease, however long it takes.
pub(crate) fn patiently(name: &str) -> LockRequest {
    at_once(name).waiting(LONG)
}

/// Fails unless the contender is told at once that the lock is held.
pub(crate) fn assert_busy(contender: &Contender, name: &str) {
    let outcome = contender.lock(&at_once(name));
    let failure = outcome.expect_err("the lock must be held");
    assert_eq!(failure.code, "timed_out", "{failure:?}");
}

/// Fails unless the contender gets the lock at once; gives it back.
pub(crate) fn assert_free(contender: &Contender, name: &str) {
    let held = contender.lock(&at_once(name)).expect("the lock is free");
    contender.release(held.handle).expect("a release");
}

/// Fails unless these locks get the lock, and gives it back: at once if all that could be in the
/// way is a lease. A session that was cut off ends when the server gets to it.
pub(crate) async fn assert_free_for(locks: &Locks, name: &LockName, what: &str) {
    let promise = locks.guarantees();
    let wait = match promise.hold {
        HoldKind::Session | HoldKind::Transaction => LONG / 4,
        HoldKind::Lease | HoldKind::WeakestMember | HoldKind::Process | HoldKind::Nothing => {
            Duration::ZERO
        }
    };
    let options = LockOptions::new(wait, promise.lease(LONG));
    match locks.lock(name, &options).await {
        Ok(guard) => drop(guard.release().await.expect("a release")),
        Err(error) => panic!("something is left of {what}: {error}"),
    }
}

/// Waits until the contender has been told so often that a lock is busy.
pub(crate) fn await_busy(contender: &Contender, more_than: u64) {
    eventually("it is told that the lock is busy", || contender.busy() > more_than);
}

/// Waits until the condition holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {LONG:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Fresh, and checked.
pub(crate) fn fresh_name() -> LockName {
    LockName::new(conformance::fresh_name()).expect("a good name")
}
