//! The watchdog under load: ten thousand held locks of one process, on a real Redis. One test, so
//! that nothing else runs and every command that the server counts is of this process.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use distlock::{Guard, LockName, Locks, Release};
use metrics::set_global_recorder;
use support::redisson::{OwnServer, RawRedis, Service, kept};
use support::told::{LATE, RecordedMetrics};
use support::{connect_with, fresh_name};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::sleep;

const HELD: usize = 10_000;
/// The workers that take and release at a time.
const WORKERS: usize = 100;
const LEASE: Duration = Duration::from_secs(9);
const INTERVAL: Duration = Duration::from_secs(3);
/// How long the locks are watched, in leases.
const LEASES: u32 = 3;
const BATCH: usize = 100;
/// Groups that are due at different times leave a batch that is not full each.
const NOT_FULL: usize = 12;
/// The watchdog, and those that send its batches: some at a time, and never one for each lock.
const TASKS: usize = 1 + HELD / BATCH;

/// The most tasks that were alive at a time, by a thread that looks all the time: one that sent a
/// batch would live for a round trip.
struct LivenessCount {
    most: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl LivenessCount {
    fn since_now() -> Self {
        let alive = Self { most: Arc::default(), stop: Arc::default() };
        let (most, stop) = (Arc::clone(&alive.most), Arc::clone(&alive.stop));
        let metrics = Handle::current().metrics();
        thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                most.fetch_max(metrics.num_alive_tasks(), Ordering::Relaxed);
                thread::sleep(Duration::from_micros(200));
            }
        });
        alive
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }
}

impl Drop for LivenessCount {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// What the server counts.
#[derive(Debug)]
struct CountedRenewer {
    scripts: usize,
    /// By the address of the client, of those that have sent a script last.
    senders: BTreeSet<String>,
    clients: usize,
}

async fn count(raw: &RawRedis) -> CountedRenewer {
    let stats: String = raw.command(&["INFO", "commandstats"]).await;
    let of = |name: &str| {
        let calls = stats.lines().find_map(|line| {
            line.strip_prefix(name)?.strip_prefix(":calls=")?.split(',').next()?.parse().ok()
        });
        calls.unwrap_or(0_usize)
    };
    let clients: String = raw.command(&["CLIENT", "LIST"]).await;
    let field = |line: &str, name: &str| {
        line.split(' ').find_map(|field| Some(field.strip_prefix(name)?.to_owned()))
    };
    let scripting = |line: &&str| field(line, "cmd=").is_some_and(|cmd| cmd.starts_with("eval"));
    CountedRenewer {
        scripts: of("cmdstat_evalsha") + of("cmdstat_eval"),
        senders: clients
            .lines()
            .filter(scripting)
            .filter_map(|line| field(line, "addr="))
            .collect(),
        clients: clients.lines().count(),
    }
}

async fn there(raw: &RawRedis, names: &[LockName]) -> usize {
    let mut there = 0;
    for some in names.chunks(1000) {
        let words: Vec<&str> =
            std::iter::once("EXISTS").chain(some.iter().map(LockName::as_str)).collect();
        there += raw.command::<usize>(&words).await;
    }
    there
}

async fn take(locks: &Locks, names: &[LockName]) -> Vec<Guard> {
    let mut hands = JoinSet::new();
    for some in names.chunks(HELD / WORKERS) {
        let (locks, some) = (locks.clone(), some.to_vec());
        hands.spawn(async move {
            let mut guards = Vec::new();
            for name in some {
                let wanted = kept(Duration::ZERO, LEASE);
                guards.push(locks.lock(&name, &wanted).await.expect("nobody has it"));
            }
            guards
        });
    }
    hands.join_all().await.into_iter().flatten().collect()
}

async fn give_back(guards: Vec<Guard>) {
    let (mut hands, mut guards) = (JoinSet::new(), guards.into_iter());
    loop {
        let some: Vec<Guard> = guards.by_ref().take(HELD / WORKERS).collect();
        if some.is_empty() {
            break;
        }
        hands.spawn(async move {
            for guard in some {
                assert_eq!(guard.release().await.expect("a release"), Release::Released);
            }
        });
    }
    hands.join_all().await;
}

fn tell(mut lateness: Vec<f64>) -> f64 {
    assert!(!lateness.is_empty(), "nothing was renewed");
    lateness.sort_by(f64::total_cmp);
    let ms = |percent: usize| lateness[(lateness.len() - 1) * percent / 100] * 1000.0;
    let (p50, p99, longest) = (ms(50), ms(99), ms(100));
    println!("{} renewals, late p50={p50:.2} p99={p99:.2} max={longest:.2} ms", lateness.len());
    longest
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_held_locks_are_renewed_in_batches_on_one_connection_by_few_tasks() {
    let told = RecordedMetrics::default();
    assert!(set_global_recorder(told.clone()).is_ok(), "the first recorder");
    let own = OwnServer::start();
    // Patience: the server shares two cores with all else.
    let server = connect_with(own.redis.url(), Duration::from_secs(10)).await;
    let locks = Service::on(server).locks;
    let raw = own.raw().await;
    let names: Vec<LockName> = (0..HELD).map(|_| fresh_name()).collect();
    let idle = Handle::current().metrics().num_alive_tasks();

    let guards = take(&locks, &names).await;
    // Whatever was due while they were taken.
    sleep(INTERVAL).await;
    told.take(LATE);
    let (before, since) = (count(&raw).await, Instant::now());
    let alive = LivenessCount::since_now();
    while since.elapsed() < LEASE * LEASES {
        if let Some(lost) = guards.iter().find(|guard| guard.is_lost()) {
            panic!("one is lost: {:?}", lost.lost_signal().cause());
        }
        sleep(Duration::from_millis(100)).await;
    }
    let after = count(&raw).await;
    // A round may have been begun before, and one may be going on.
    let rounds = usize::try_from(since.elapsed().as_millis() / INTERVAL.as_millis());
    let rounds = rounds.expect("a few") + 2;
    let (scripts, renewed) = (after.scripts - before.scripts, told.take(LATE));
    let tasks = alive.most().saturating_sub(idle);
    println!("{scripts} scripts, {} clients, {tasks} tasks at most", after.clients);
    let longest = tell(renewed.clone());
    assert_eq!(there(&raw, &names).await, HELD, "they are not all there");
    assert!(renewed.len() >= HELD * (LEASES as usize * 3 - 1), "{} renewals", renewed.len());
    assert!(scripts <= rounds * (HELD / BATCH + NOT_FULL), "{scripts} scripts");
    assert!(Duration::from_secs_f64(longest / 1000.0) < INTERVAL, "a renewal was left out");
    assert_eq!(after.senders.len(), 1, "{after:?}");
    // The locks', and the one that looks.
    assert!(after.clients <= 3, "{after:?}");
    assert!(tasks <= TASKS, "{tasks} at a time, besides {idle}");

    give_back(guards).await;
    locks.flush().await;
    assert_eq!(there(&raw, &names).await, 0);
    let (before, _) = (count(&raw).await, told.take(LATE));
    sleep(INTERVAL * 2).await;
    let after = count(&raw).await;
    assert_eq!((after.scripts, told.take(LATE).len()), (before.scripts, 0), "nobody holds them");
    assert_eq!(there(&raw, &names).await, 0);
}
