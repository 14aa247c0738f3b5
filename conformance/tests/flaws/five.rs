//! Five Redis servers of one's own, and contenders for `redlock` on them.

use std::time::Instant;

use conformance::protocol::{AcquiredLock, LockRequest};
use conformance::variant::Variant;
use conformance::{Contender, Servers, fresh_name, setup};
use distlock::LockKind;
use testbed::{Proxy, Redis, RedisOptions};

use crate::scene::{LONG, WAIT_TIMEOUT};

/// Five servers that do not know of each other.
pub(crate) struct Five {
    pub(crate) servers: Servers,
    pub(crate) nodes: Vec<Redis>,
    pub(crate) variant: Variant,
    kind: LockKind,
}

impl Five {
    pub(crate) fn start(options: RedisOptions) -> Self {
        let servers = Servers::start();
        let nodes = servers.bed().redis_many(5, options).expect("Redis is installed");
        Self { servers, nodes, variant: Variant::Usual, kind: LockKind::Redlock }
    }

    /// Uses locks of another kind.
    pub(crate) fn locked_by(self, kind: LockKind) -> Self {
        Self { kind, ..self }
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.url().to_owned()).collect()
    }

    pub(crate) fn contender(&self) -> Contender {
        self.contender_at(self.urls())
    }

    pub(crate) fn contender_at(&self, urls: Vec<String>) -> Contender {
        let mut setup = setup(&self.servers, LockKind::None);
        setup.kind = self.kind.to_string();
        setup.addresses.independent_redis = urls;
        setup.variant = self.variant;
        setup.warm_up = self.variant == Variant::Usual;
        Contender::start_as(&self.servers, &setup)
    }

    /// A contender that cannot reach the last two.
    pub(crate) fn contender_on_the_first_three(&self) -> (Contender, Vec<Proxy>) {
        let mut urls = self.urls();
        let proxies: Vec<Proxy> = (3..5)
            .map(|number| {
                let node = &self.nodes[number];
                let proxy = Proxy::before(node.addr()).expect("a proxy");
                proxy.start_outage();
                urls[number] = proxy.instead_of(node.addr(), node.url());
                proxy
            })
            .collect();
        (self.contender_at(urls), proxies)
    }

    /// Which of them have that lock.
    pub(crate) fn have(&self, name: &str) -> Vec<bool> {
        let has = |node: &Redis| node.command(&["EXISTS", name]).expect("an answer").trim() == "1";
        self.nodes.iter().map(has).collect()
    }

    /// Takes a lock that all of them grant. A holder with a majority waits for no other server, so
    /// a slow one may have been passed over: then it is another lock.
    pub(crate) fn enter_all(&self, contender: &Contender) -> (String, AcquiredLock) {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            let name = fresh_name();
            let want = LockRequest::new(&name, LONG).unrenewed().waiting(WAIT_TIMEOUT);
            let held = contender.insist(&want);
            if self.have(&name) == [true; 5] {
                return (name, held);
            }
            contender.release(held.handle).expect("an answer");
            assert!(Instant::now() < deadline, "never all of them");
        }
    }

    /// Kills some and starts them again.
    pub(crate) fn restart(&self, numbers: impl IntoIterator<Item = usize>) {
        for number in numbers {
            let node = &self.nodes[number];
            let pid = node.pid();
            node.kill().expect("it is killed");
            node.restart().expect("it starts again");
            assert_ne!(node.pid(), pid);
        }
    }
}

/// Takes a lock that is free, for long. Each server has half a second for an answer; a busy machine
/// may need longer, and then it is asked for again. No lease of a test ends while that is done.
#[track_caller]
pub(crate) fn enter(contender: &Contender, name: &str) -> AcquiredLock {
    contender.insist(&LockRequest::new(name, LONG))
}

/// Waits for a lock that will be free, and takes it for long.
#[track_caller]
pub(crate) fn enter_later(contender: &Contender, name: &str) -> AcquiredLock {
    contender.insist(&LockRequest::new(name, LONG).waiting(WAIT_TIMEOUT))
}

/// Asked for again where too few servers have answered in time.
#[track_caller]
pub(crate) fn assert_kept_out(contender: &Contender, name: &str) {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    let failure = loop {
        match contender.lock(&LockRequest::new(name, LONG)) {
            Err(failure) if failure.code == "backend" && Instant::now() < deadline => {}
            Err(failure) => break failure,
            Ok(held) => panic!("it got the lock: {held:?}"),
        }
    };
    assert_eq!(failure.code, "timed_out", "{}", failure.message);
}
