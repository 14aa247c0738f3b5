//! How soon a holder is told that it has lost its lock, by cause. Validity ends before the server
//! grants the lock again, however late the news is. That is an order and no time: the suite's
//! `validity_of_...` checks show it of every kind.
//!
//! Each holder also works: a look at the lock, then an effect. After the loss there is no effect
//! that was begun after it, whatever the delay of the news. One test, so that nothing else runs;
//! which of the measured times count is said in `witness`.

#[path = "../support/removal.rs"]
mod removal;

use std::time::Duration;

use conformance::clock::{between, now_ns};
use conformance::protocol::{AcquiredLock, Cause, LockRequest};
use conformance::{
    Contender, Home, Sample, Servers, Spread, Unproven, Witness, fresh_name, home, judge, promise,
    setup,
};
use distlock::{HoldKind, LockKind, RenewalKind};

use removal::removals;

const LEASE: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(20);
/// After a freeze, or after the end of validity, the news must be there.
const SIGNALLED_WITHIN: Duration = Duration::from_millis(50);
/// Holders at the same time, the locks of each, and how often. With the next, this makes a hundred
/// times for each kind, of which the 99th percentile is not the longest.
const HOLDERS: usize = 9;
const HOLDS: usize = 4;
const ROUNDS: usize = 2;
/// Locks whose leases end one after the other.
const LEASES: usize = 22;
/// Locks that are removed in each way, and their lease. The machine may stand still for two thirds
/// of it before a holder learns from its clock what the server would have told it.
const REMOVED: usize = 8;
const REMOVED_LEASE: Duration = Duration::from_secs(3);
/// Rounds that a busy machine may spoil, of each kind and cause. In these the holders were not run
/// for a lease, and had lost their locks before the removal.
const SPOILED: usize = 10;
/// How often the locks of a kind are removed whose holders learnt of it late, or whose machine was
/// too busy.
const TRIES: usize = 4;
/// How often a kind is measured again because the machine was too busy for a verdict.
const TOO_BUSY: usize = 6;

#[test]
fn a_lost_lock_is_signalled_to_its_holder_within_50_ms() {
    let ends = [HoldKind::Lease, HoldKind::Session, HoldKind::WeakestMember];
    let mut unproven = Vec::new();
    for kind in LockKind::ALL.into_iter().filter(|kind| ends.contains(&promise(*kind).hold)) {
        let (mut told, mut busy) = (told_in_time(kind), 0);
        while let Err(Unproven::TooBusy(why)) = &told
            && busy < TOO_BUSY
        {
            println!("{kind}: once more, for {why}");
            busy += 1;
            told = told_in_time(kind);
        }
        unproven.extend(told.err().map(|why| format!("{kind}: {why}")));
    }
    assert!(unproven.is_empty(), "{}", unproven.join("\n"));
}

/// All that is measured of one kind.
fn told_in_time(kind: LockKind) -> Result<(), Unproven> {
    let promised = promise(kind);
    let mut all = Vec::new();
    let mut note = |cause: &str, samples: Vec<Sample>| {
        let spread = Spread::of(samples.iter().map(|sample| sample.took));
        println!("{:18}{cause:24}{spread}", kind.as_str());
        all.extend(samples);
    };
    let contenders: Vec<_> =
        (0..HOLDERS).map(|_| Contender::start(Servers::shared(), kind)).collect();
    let (looked, told) = frozen(&contenders);
    note("frozen, first look", looked);
    note("frozen, lost()", told);
    if promised.hold != HoldKind::Session {
        note("lease at its end", lease_at_its_end(&contenders[0]));
    }
    let is_renewed = matches!(promised.renewal, RenewalKind::Yes | RenewalKind::Heartbeat);
    if is_renewed {
        note("server away", server_away(kind));
    }
    // Not by cause: those who lose their locks at the same time are told at the same time.
    let spread = judge(&all, SIGNALLED_WITHIN)?;
    println!("{:18}of {} count: {spread}", kind.as_str(), all.len());
    if is_renewed && !removals(kind).is_empty() {
        learnt_from_the_server(kind)?;
    }
    Ok(())
}

/// What is beyond the next renewal. One answer of the server ends all locks of a cause. Its disk or
/// its garbage collector may delay that answer, and the holder's process does not show it. So it is
/// measured again: a holder that asks too late is late each time.
fn learnt_from_the_server(kind: LockKind) -> Result<(), Unproven> {
    let measure = || judge(&removed_behind_its_back(kind)?, SIGNALLED_WITHIN);
    let mut told = measure();
    for _ in 1..TRIES {
        let Err(why) = &told else { break };
        println!("{kind}: locks are removed once more, for {why}");
        told = measure();
    }
    told.map(drop)
}

/// The processes are frozen for longer than their leases; from the thaw to the first look that
/// finds the lock lost, and to the news.
fn frozen(contenders: &[Contender]) -> (Vec<Sample>, Vec<Sample>) {
    let witness = Witness::of(contenders);
    let (mut looked, mut told) = (Vec::new(), Vec::new());
    for round in 0.. {
        let wanted = contenders.len() * ROUNDS;
        if looked.len() >= wanted {
            break;
        }
        assert!(round < ROUNDS + SPOILED, "{} of {wanted} were frozen with locks", looked.len());
        // Each at once, before its leases can end.
        let take_and_freeze = |contender| {
            let holds = take_and_watch(contender);
            contender.freeze();
            (contender, holds)
        };
        let holds: Vec<(&Contender, Vec<AcquiredLock>)> =
            contenders.iter().map(take_and_freeze).collect();
        // The last renewal was sent before the freeze.
        await_ns(now_ns() + ns(LEASE));
        for (contender, holds) in holds {
            let thawed_ns = contender.thaw();
            let watched = contender.watched(holds[0].handle, LONG);
            if watched.woke_ns < thawed_ns {
                release_all(contender, &holds);
                continue;
            }
            assert!(watched.slept_ns < thawed_ns, "{watched:?}");
            assert_eq!(watched.effects_since, 0, "an effect after the loss: {watched:?}");
            looked.push(witness.sample(contender, thawed_ns, watched.looked_ns));
            for held in &holds {
                let lost = contender.lost(held.handle, LONG);
                assert_eq!(lost.cause, Cause::Expired);
                assert!(lost.valid_until_ns.expect("an end") <= thawed_ns, "{lost:?}");
                told.push(witness.sample(contender, thawed_ns, lost.told_ns));
            }
            release_all(contender, &holds);
        }
    }
    (looked, told)
}

/// What the server says now is its business.
fn release_all(contender: &Contender, holds: &[AcquiredLock]) {
    for held in holds {
        let _outcome = contender.release(held.handle);
    }
}

/// Some locks; it works under the first.
fn take_and_watch(contender: &Contender) -> Vec<AcquiredLock> {
    let take = |_| contender.insist(&LockRequest::new(&fresh_name(), LEASE));
    let holds: Vec<AcquiredLock> = (0..HOLDS).map(take).collect();
    let effects = Servers::shared().fresh_path("effects");
    contender.watch(holds[0].handle, &effects, Duration::from_millis(1));
    holds
}

/// From the end of validity to the news, in a process that runs.
fn lease_at_its_end(contender: &Contender) -> Vec<Sample> {
    let witness = Witness::of([contender]);
    let leases = leases(LEASE / 2)
        .map(|lease| contender.insist(&LockRequest::new(&fresh_name(), lease).unrenewed()));
    delays(&witness, contender, &leases.collect::<Vec<_>>())
}

/// Measures holds that are kept alive, but whose server stands still.
fn server_away(kind: LockKind) -> Vec<Sample> {
    let servers = Servers::start();
    let contender = Contender::start(&servers, kind);
    let witness = Witness::of([&contender]);
    let holds = (0..=SPOILED).find_map(|_| renewed(&contender)).expect("they are renewed");
    match home(kind) {
        Home::Redis => servers.redis().freeze().expect("it freezes"),
        Home::IndependentRedis => {
            for redis in servers.independent_redis() {
                redis.freeze().expect("it freezes");
            }
        }
        Home::Database => servers.database().freeze().expect("it freezes"),
        Home::ZooKeeper => servers.zookeeper().freeze().expect("it freezes"),
        Home::Etcd => servers.etcd().freeze().expect("it freezes"),
        Home::Nats => servers.nats().freeze().expect("it freezes"),
        Home::Process => panic!("{kind} has no server"),
    }
    delays(&witness, &contender, &holds)
}

/// Locks that have outlived their first leases; none if one of them has not.
fn renewed(contender: &Contender) -> Option<Vec<AcquiredLock>> {
    let take = |lease| contender.insist(&LockRequest::new(&fresh_name(), lease));
    let holds: Vec<AcquiredLock> = leases(LEASE).map(take).collect();
    await_ns(now_ns() + ns(LEASE * 3 / 2));
    if holds.iter().all(|held| !contender.is_lost(held.handle)) {
        return Some(holds);
    }
    release_all(contender, &holds);
    None
}

/// From the removal to the news: printed; what is beyond a third of the lease, when the next
/// renewal is due at the latest, is returned.
///
/// # Errors
/// A lease was over before the server had answered.
fn removed_behind_its_back(kind: LockKind) -> Result<Vec<Sample>, Unproven> {
    let mut setup = setup(Servers::shared(), kind);
    // Whose lease is its session's.
    setup.addresses.set_ttl(REMOVED_LEASE);
    let contender = Contender::start_as(Servers::shared(), &setup);
    let witness = Witness::of([&contender]);
    let mut beyond = Vec::new();
    for (cause, remove) in removals(kind) {
        let names: Vec<String> = (0..REMOVED).map(|_| fresh_name()).collect();
        let take = |name: &String| contender.insist(&LockRequest::new(name, REMOVED_LEASE));
        let holds: Vec<AcquiredLock> = names.iter().map(take).collect();
        remove(kind, &names);
        let removed_ns = now_ns();
        let lost: Vec<_> = holds.iter().map(|held| contender.lost(held.handle, LONG)).collect();
        release_all(&contender, &holds);
        if lost.iter().any(|lost| lost.cause == Cause::Expired) {
            return Err(Unproven::Late(format!("{cause}: the lease ended before the news")));
        }
        let news = lost.iter().map(|lost| {
            assert_eq!(lost.cause, Cause::Taken, "{kind}");
            let due_ns = (removed_ns + ns(REMOVED_LEASE / 3)).min(lost.told_ns);
            beyond.push(witness.sample(&contender, due_ns, lost.told_ns));
            between(removed_ns, lost.told_ns)
        });
        println!("{:18}{cause:24}{}", kind.as_str(), Spread::of(news));
    }
    Ok(beyond)
}

/// Leases that do not end at the same time: each is told of its own end.
fn leases(shortest: Duration) -> impl Iterator<Item = Duration> {
    (0..).map(move |number| shortest + number * LEASE / 50).take(LEASES)
}

fn delays(witness: &Witness, contender: &Contender, holds: &[AcquiredLock]) -> Vec<Sample> {
    let delay = |held: &AcquiredLock| {
        let lost = contender.lost(held.handle, LONG);
        witness.sample(contender, lost.valid_until_ns.expect("an end"), lost.told_ns)
    };
    holds.iter().map(delay).collect()
}

fn await_ns(instant_ns: u64) {
    while now_ns() < instant_ns {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
