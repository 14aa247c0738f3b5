//! A server that does what it is told, in tokio's time, and locks on it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use distlock::BoxFuture;
use distlock::{
    Acquisition, Guarantees, Hold, LockError, LockKind, LockName, Locker, LostSignal, Release,
    Renewal, RenewalTarget, Renewer, Request, Validity, guarantees,
};
use tokio::time::{Instant, sleep};

/// How long a command waits for its answer.
pub(crate) const ANSWER: Duration = Duration::from_millis(500);

/// How long a quick answer takes, all of it on the way back.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(1);

/// What the server does to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Answered(Duration),
    /// It never arrives.
    LostBefore,
    /// It is carried out; the answer is lost.
    LostAfter,
    /// The mechanism itself has a bug, and panics.
    Panics,
}

/// A server that keeps leases by tokio's clock.
pub(crate) struct Server {
    pub(crate) held_until: HashMap<LockName, Instant>,
    fate: Box<dyn FnMut() -> Fate + Send>,
    /// Renewals that were sent for a name without a holder.
    pub(crate) stray: u32,
    pub(crate) calls: u64,
    pub(crate) largest_batch: usize,
    /// Per name: what its holder knows.
    pub(crate) signals: HashMap<LockName, LostSignal>,
    /// Per name: calls since the last one that was answered.
    pub(crate) unanswered: HashMap<LockName, u32>,
}

impl Server {
    /// No hold is valid for longer than the server keeps other owners out.
    pub(crate) fn compare(&self, name: &LockName) {
        let Some(loss) = self.signals.get(name) else { return };
        let valid_until = loss.validity().deadline().expect("an end");
        assert!(valid_until < self.held_until[name], "signals in for too long");
    }
}

#[derive(Clone)]
pub(crate) struct ScriptedLocker {
    server: Arc<Mutex<Server>>,
    renewer: Arc<ScriptedRenewer>,
}

struct ScriptedRenewer(Arc<Mutex<Server>>);

impl ScriptedLocker {
    pub(crate) fn new(fate: impl FnMut() -> Fate + Send + 'static) -> Self {
        let server = Arc::new(Mutex::new(Server {
            held_until: HashMap::new(),
            fate: Box::new(fate),
            stray: 0,
            calls: 0,
            largest_batch: 0,
            signals: HashMap::new(),
            unanswered: HashMap::new(),
        }));
        Self { renewer: Arc::new(ScriptedRenewer(Arc::clone(&server))), server }
    }

    pub(crate) fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().expect("no panic")
    }

    /// Whether the server keeps others out.
    pub(crate) fn keeps(&self, name: &LockName) -> bool {
        self.server().held_until.get(name).is_some_and(|until| Instant::now() < *until)
    }
}

impl Locker for ScriptedLocker {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::Redisson)
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        Box::new(ScriptedAcquisition(self.clone(), request))
    }
}

struct ScriptedAcquisition(ScriptedLocker, Request);

impl Acquisition for ScriptedAcquisition {
    fn attempt(&mut self) -> BoxFuture<'_, Result<Option<Box<dyn Hold>>, LockError>> {
        Box::pin(async move {
            let Self(scripted, request) = self;
            if scripted.keeps(&request.name) {
                return Ok(None);
            }
            let sent = Instant::now();
            scripted.server().held_until.insert(request.name.clone(), sent + request.lease);
            let validity = Validity::of_lease(sent, request.lease);
            Ok(Some(Box::new(ScriptedHold(scripted.clone(), request.clone(), validity))
                as Box<dyn Hold>))
        })
    }

    fn abandon(&mut self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move { Ok(()) })
    }
}

struct ScriptedHold(ScriptedLocker, Request, Validity);

impl Hold for ScriptedHold {
    fn validity(&self) -> Validity {
        self.2
    }

    fn renewal_target(&self) -> Option<RenewalTarget> {
        Some(RenewalTarget { renewer: self.0.renewer.clone(), request: self.1.clone() })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<Release, LockError>> {
        Box::pin(async move {
            let freed = self.0.server().held_until.remove(&self.1.name);
            Ok(if freed.is_some() { Release::Released } else { Release::Gone })
        })
    }
}

impl Renewer for ScriptedRenewer {
    fn renew<'a>(&'a self, holds: &'a [Request]) -> BoxFuture<'a, Vec<Renewal>> {
        Box::pin(async move {
            let sent = Instant::now();
            let fate = self.call(holds);
            assert!(fate != Fate::Panics, "as it was told");
            if let Fate::Answered(delay) = fate
                && delay > AT_ONCE
            {
                sleep(delay / 2).await;
            }
            let renewed = if fate == Fate::LostBefore { vec![] } else { self.act(holds) };
            let Fate::Answered(delay) = fate else {
                sleep(ANSWER).await;
                return vec![Renewal::Unknown; holds.len()];
            };
            sleep(delay / 2).await;
            let validity = |hold: &Request| Renewal::Renewed(Validity::of_lease(sent, hold.lease));
            let answer = |(hold, kept)| if kept { validity(hold) } else { Renewal::Lost };
            for hold in holds {
                self.0.lock().expect("no panic").unanswered.insert(hold.name.clone(), 0);
            }
            holds.iter().zip(renewed).map(answer).collect()
        })
    }
}

impl ScriptedRenewer {
    fn call(&self, holds: &[Request]) -> Fate {
        let mut server = self.0.lock().expect("no panic");
        server.calls += 1;
        server.largest_batch = server.largest_batch.max(holds.len());
        for hold in holds {
            server.compare(&hold.name);
            server.stray += u32::from(!server.held_until.contains_key(&hold.name));
            *server.unanswered.entry(hold.name.clone()).or_default() += 1;
        }
        (server.fate)()
    }

    /// What the script on the server does: it prolongs the holds that are there.
    fn act(&self, holds: &[Request]) -> Vec<bool> {
        let mut server = self.0.lock().expect("no panic");
        let now = Instant::now();
        let renew = |hold: &Request| match server.held_until.get_mut(&hold.name) {
            Some(until) if *until > now => {
                *until = now + hold.lease;
                true
            }
            _ => false,
        };
        holds.iter().map(renew).collect()
    }
}
