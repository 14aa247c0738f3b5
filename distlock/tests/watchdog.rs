//! The watchdog over 30 simulated days, against a scripted server: tokio's time is paused, so a
//! day takes a moment, and the server does what no real one can be made to do on demand: it
//! fails before or after it has acted, answers late, and loses locks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use distlock::{
    Acquisition, Belief, Guarantees, Guard, Hold, Lease, LockError, LockKind, LockName,
    LockOptions, Locker, Locks, Loss, LossCause, Release, Renewal, Renewer, Request, Upkeep,
    guarantees,
};
use tokio::time::{Instant, sleep, timeout};

const LEASE: Duration = Duration::from_secs(30);
const DAY: Duration = Duration::from_hours(24);
/// How long a command waits for its answer.
const ANSWER: Duration = Duration::from_millis(500);

/// How long a quick answer takes, all of it on the way back.
const AT_ONCE: Duration = Duration::from_millis(1);

/// What the server does to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered(Duration),
    /// It never arrives.
    LostBefore,
    /// It is carried out; the answer is lost.
    LostAfter,
}

/// A server that keeps leases by tokio's clock.
struct Server {
    held_until: HashMap<LockName, Instant>,
    fate: Box<dyn FnMut() -> Fate + Send>,
    /// Renewals that were sent for a name nobody held any more.
    stray: u32,
    calls: u64,
    largest_batch: usize,
    /// Per name: what its holder knows.
    believed: HashMap<LockName, Loss>,
    /// Per name: calls since the last one that was answered.
    unanswered: HashMap<LockName, u32>,
}

impl Server {
    /// Nobody believes for longer than the server keeps others out.
    fn compare(&self, name: &LockName) {
        let Some(loss) = self.believed.get(name) else { return };
        let believed_until = loss.belief().deadline().expect("an end");
        assert!(believed_until < self.held_until[name], "believed in for too long");
    }
}

#[derive(Clone)]
struct Scripted {
    server: Arc<Mutex<Server>>,
    renewer: Arc<ScriptedRenewer>,
}

struct ScriptedRenewer(Arc<Mutex<Server>>);

impl Scripted {
    fn new(fate: impl FnMut() -> Fate + Send + 'static) -> Self {
        let server = Arc::new(Mutex::new(Server {
            held_until: HashMap::new(),
            fate: Box::new(fate),
            stray: 0,
            calls: 0,
            largest_batch: 0,
            believed: HashMap::new(),
            unanswered: HashMap::new(),
        }));
        Self { renewer: Arc::new(ScriptedRenewer(Arc::clone(&server))), server }
    }

    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().expect("no panic")
    }

    /// Whether the server keeps others out.
    fn keeps(&self, name: &LockName) -> bool {
        self.server().held_until.get(name).is_some_and(|until| Instant::now() < *until)
    }
}

impl Locker for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::Redisson)
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        Box::new(Taking(self.clone(), request))
    }
}

struct Taking(Scripted, Request);

#[async_trait]
impl Acquisition for Taking {
    async fn attempt(&mut self) -> Result<Option<Box<dyn Hold>>, LockError> {
        let Self(scripted, request) = self;
        if scripted.keeps(&request.name) {
            return Ok(None);
        }
        let sent = Instant::now();
        scripted.server().held_until.insert(request.name.clone(), sent + request.lease);
        let belief = Belief::in_lease(sent, request.lease);
        Ok(Some(Box::new(Holding(scripted.clone(), request.clone(), belief))))
    }

    async fn abandon(&mut self) -> Result<(), LockError> {
        Ok(())
    }
}

struct Holding(Scripted, Request, Belief);

#[async_trait]
impl Hold for Holding {
    fn belief(&self) -> Belief {
        self.2
    }

    fn upkeep(&self) -> Option<Upkeep> {
        Some(Upkeep { renewer: self.0.renewer.clone(), request: self.1.clone() })
    }

    async fn release(&mut self) -> Result<Release, LockError> {
        let freed = self.0.server().held_until.remove(&self.1.name);
        Ok(if freed.is_some() { Release::Released } else { Release::Gone })
    }
}

#[async_trait]
impl Renewer for ScriptedRenewer {
    async fn renew(&self, holds: &[Request]) -> Vec<Renewal> {
        let sent = Instant::now();
        let fate = self.call(holds);
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
        let belief = |hold: &Request| Renewal::Renewed(Belief::in_lease(sent, hold.lease));
        let answer = |(hold, kept)| if kept { belief(hold) } else { Renewal::Lost };
        for hold in holds {
            self.0.lock().expect("no panic").unanswered.insert(hold.name.clone(), 0);
        }
        holds.iter().zip(renewed).map(answer).collect()
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

    /// What the script on the server does: whoever holds goes on holding.
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

/// Numbers that look random and are the same in every run (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

fn name(number: u32) -> LockName {
    LockName::new(format!("lock:{number}")).expect("a name")
}

fn renewed() -> LockOptions {
    LockOptions::new(Duration::ZERO, Lease::Renewed(LEASE))
}

fn quickly() -> Fate {
    Fate::Answered(AT_ONCE)
}

/// Seven of ten are answered, now and then late; every so often the server is away for minutes.
fn troubled(seed: u64) -> impl FnMut() -> Fate + Send {
    let mut dice = Dice(seed);
    let mut away_until = Instant::now();
    move || {
        let now = Instant::now();
        if now < away_until {
            return if dice.roll(2) == 0 { Fate::LostBefore } else { Fate::LostAfter };
        }
        match dice.roll(5000) {
            0 => {
                away_until = now + Duration::from_secs(dice.roll(90));
                Fate::LostBefore
            }
            1..=750 => Fate::LostBefore,
            751..=1500 => Fate::LostAfter,
            1501..=2500 => Fate::Answered(Duration::from_millis(dice.roll(450))),
            _ => quickly(),
        }
    }
}

/// Looks at a guard until it is lost or `until`. Belief and lease change with renewals only, and
/// are compared before each; here after the last one. The steps are no divisor of anything, so that
/// each phase of a lease is seen.
async fn hold(scripted: &Scripted, guard: &Guard, name: &LockName, until: Instant) -> bool {
    scripted.server().believed.insert(name.clone(), guard.loss());
    while Instant::now() < until && !guard.is_lost() {
        assert!(scripted.keeps(name), "believed in, and not kept by the server");
        sleep(Duration::from_millis(60_013)).await;
    }
    scripted.server().compare(name);
    scripted.server().believed.remove(name);
    guard.is_lost()
}

#[tokio::test(start_paused = true)]
async fn in_thirty_days_of_trouble_no_guard_is_believed_too_long_or_given_up_too_soon() {
    let scripted = Scripted::new(troubled(20_261_121));
    let locks = Locks::new(Arc::new(scripted.clone()));
    let end = Instant::now() + 30 * DAY;
    let mut tasks = Vec::new();
    for number in 0..3 {
        let (scripted, locks) = (scripted.clone(), locks.clone());
        tasks.push(tokio::spawn(async move {
            let (name, mut dice) = (name(number), Dice(u64::from(number) + 1));
            let (mut lost, mut kept) = (0_u32, 0_u32);
            while Instant::now() < end {
                let Ok(guard) = locks.lock(&name, &renewed()).await else {
                    sleep(Duration::from_secs(1)).await;
                    continue;
                };
                scripted.server().unanswered.remove(&name);
                let until = Instant::now() + Duration::from_mins(dice.roll(3000));
                if hold(&scripted, &guard, &name, until.min(end)).await {
                    lost += 1;
                    let tries = scripted.server().unanswered[&name];
                    assert!(tries >= 6, "given up after {tries} renewals without an answer");
                    assert_eq!(guard.lost().await, LossCause::Expired);
                } else {
                    kept += 1;
                }
                guard.release().await.expect("a release");
            }
            (lost, kept)
        }));
    }
    let (mut lost, mut kept) = (0, 0);
    for task in tasks {
        let (more_lost, more_kept) = task.await.expect("no panic");
        lost += more_lost;
        kept += more_kept;
    }
    let server = scripted.server();
    println!("30 days: {} calls, {kept} holds kept to their end, {lost} lost", server.calls);
    assert!(lost >= 10 && kept >= 10, "the script is neither too kind nor too cruel");
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_the_server_calls_lost_is_told_within_a_third_of_its_lease() {
    let scripted = Scripted::new(quickly);
    let locks = Locks::new(Arc::new(scripted.clone()));
    let guard = locks.lock(&name(1), &renewed()).await.expect("the lock");
    sleep(Duration::from_secs(100)).await;
    let since = Instant::now();
    scripted.server().held_until.clear();
    assert_eq!(guard.lost().await, LossCause::Taken);
    assert!(since.elapsed() <= LEASE / 3 + ANSWER, "{:?}", since.elapsed());
    let calls = scripted.server().calls;
    sleep(DAY).await;
    assert_eq!(scripted.server().calls, calls, "what is lost is not renewed");
}

#[tokio::test(start_paused = true)]
async fn after_release_or_drop_no_renewal_is_sent() {
    let scripted = Scripted::new(quickly);
    let locks = Locks::new(Arc::new(scripted.clone()));
    for number in 0..1000_u32 {
        let guard = locks.lock(&name(number), &renewed()).await.expect("the lock");
        if number % 3 == 0 {
            // Around the moment at which the renewal is due.
            let late = Duration::from_millis(1) * (number % 4);
            sleep(Duration::from_millis(9_998) + late).await;
        }
        if number % 2 == 0 {
            guard.release().await.expect("a release");
        } else {
            drop(guard);
            locks.flush().await;
        }
    }
    let calls = scripted.server().calls;
    assert!(calls > 0);
    sleep(DAY).await;
    let server = scripted.server();
    assert_eq!((server.calls, server.stray), (calls, 0));
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_is_never_renewed_and_max_hold_ends_renewal() {
    let scripted = Scripted::new(quickly);
    let locks = Locks::new(Arc::new(scripted.clone()));
    let fixed = LockOptions::new(Duration::ZERO, Lease::Fixed(LEASE));
    let guard = locks.lock(&name(1), &fixed).await.expect("the lock");
    guard.lost().await;
    assert_eq!(scripted.server().calls, 0);

    let since = Instant::now();
    let bounded = LockOptions { max_hold: Some(Duration::from_mins(5)), ..renewed() };
    let guard = locks.lock(&name(2), &bounded).await.expect("the lock");
    guard.lost().await;
    let held = since.elapsed();
    assert!(held >= Duration::from_mins(5) && held < Duration::from_secs(301), "{held:?}");
    sleep(LEASE / 30).await;
    assert!(!scripted.keeps(&name(2)), "it is freed under its guard");
    assert_eq!(guard.release().await.expect("an answer"), Release::Gone);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_holds_are_renewed_in_batches_of_a_hundred() {
    let scripted = Scripted::new(quickly);
    let locks = Locks::new(Arc::new(scripted.clone()));
    let mut guards = Vec::new();
    for number in 0..10_000 {
        guards.push(locks.lock(&name(number), &renewed()).await.expect("the lock"));
    }
    sleep(LEASE * 10).await;
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    let server = scripted.server();
    assert_eq!(server.largest_batch, 100);
    // Thirty-one rounds at most, each of a hundred batches.
    assert!(server.calls <= 3100, "{} calls", server.calls);
}

#[tokio::test(start_paused = true)]
async fn one_failing_renewal_does_not_hold_up_or_end_the_others() {
    // The first 40 s: nothing is answered. A hold taken meanwhile is renewed afterwards.
    let start = Instant::now();
    let scripted = Scripted::new(move || {
        if start.elapsed() < Duration::from_secs(40) { Fate::LostBefore } else { quickly() }
    });
    let locks = Locks::new(Arc::new(scripted.clone()));
    let doomed = locks.lock(&name(1), &renewed()).await.expect("the lock");
    sleep(Duration::from_secs(25)).await;
    let saved = locks.lock(&name(2), &renewed()).await.expect("the lock");
    assert_eq!(doomed.lost().await, LossCause::Expired);
    let lost = timeout(DAY, saved.lost()).await;
    assert!(lost.is_err(), "it is renewed for ever");
    let again = locks.lock(&name(1), &renewed()).await.expect("the lost lock is free");
    assert!(timeout(DAY, again.lost()).await.is_err(), "and renewed for its new holder");
}
