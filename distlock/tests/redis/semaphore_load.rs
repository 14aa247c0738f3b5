//! `Semaphore` under load: each waiter gets its permits in bounded time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::synchronizers::{Client, OwnServer};
use crate::support::{connect_with, eventually, fresh_name};
use distlock::{LockName, RedisServer, Semaphore};
use tokio::task::JoinSet;

const KEYS: usize = 500;
const TASKS: usize = 48;
const PROCESSES: usize = 3;
/// A waiter gets a permit within this time, also on a busy machine.
const BOUND: Duration = Duration::from_secs(30);

/// Processes that have patience with a server that shares two cores with all of them.
async fn processes(own: &OwnServer) -> Vec<RedisServer> {
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        processes.push(connect_with(own.redis.url(), Duration::from_secs(10)).await);
    }
    processes
}

/// As reported of another library: hundreds of names, and dozens of tasks that want each of them.
#[tokio::test(flavor = "multi_thread")]
async fn each_of_48_tasks_gets_its_permits_from_500_semaphores() {
    let own = OwnServer::start();
    let processes = processes(&own).await;
    let names: Arc<Vec<LockName>> = Arc::new((0..KEYS).map(|_| fresh_name()).collect());
    for name in names.iter() {
        let made = Semaphore::new(&processes[0], name.clone()).try_set_permits(1).await;
        assert!(made.expect("an answer"));
    }
    let (started, mut tasks) = (Instant::now(), JoinSet::new());
    for task in 0..TASKS {
        let (process, names) = (processes[task % PROCESSES].clone(), Arc::clone(&names));
        tasks.spawn(async move {
            let mut longest = Duration::ZERO;
            // All go the same way, three together, so that they are in each other's.
            for key in 0..KEYS {
                let name = names[(key + task / 3) % KEYS].clone();
                let semaphore = Semaphore::new(&process, name);
                let asked = Instant::now();
                let permits = semaphore.acquire(1, BOUND).await.expect("a permit in bounded time");
                longest = longest.max(asked.elapsed());
                tokio::task::yield_now().await;
                permits.release().await.expect("an answer");
            }
            longest
        });
    }
    let longest = tasks.join_all().await.into_iter().max();
    println!("{} acquisitions in {:?}, longest {longest:?}", KEYS * TASKS, started.elapsed());
    let client = Client::at(own.redis.url()).await;
    for name in names.iter() {
        let semaphore = Semaphore::new(&processes[0], name.clone());
        assert_eq!(semaphore.available().await.expect("an answer"), 1);
    }
    eventually("only the semaphores are left", async || {
        client.command::<usize>(&["DBSIZE"]).await == KEYS
    })
    .await;
    eventually("no channel is left", async || {
        processes.iter().all(|process| process.subscribed_channels() == 0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_three_processes_that_never_stop_each_gets_permits() {
    let own = OwnServer::start();
    let (processes, name) = (processes(&own).await, fresh_name());
    Semaphore::new(&processes[0], name.clone()).try_set_permits(2).await.expect("an answer");
    let shares: [Arc<AtomicU64>; PROCESSES] = Default::default();
    let mut tasks = JoinSet::new();
    let until = Instant::now() + Duration::from_secs(3);
    for (process, share) in processes.iter().zip(&shares) {
        for _ in 0..8 {
            let semaphore = Semaphore::new(process, name.clone());
            let share = Arc::clone(share);
            tasks.spawn(async move {
                let mut own = 0;
                while Instant::now() < until {
                    let permits = semaphore.acquire(1, BOUND).await.expect("a permit");
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    permits.release().await.expect("an answer");
                    own += 1;
                }
                share.fetch_add(own, Ordering::SeqCst);
                own
            });
        }
    }
    let each = tasks.join_all().await;
    let shares = shares.map(|share| share.load(Ordering::SeqCst));
    println!("shares of the processes {shares:?}, of their tasks {each:?}");
    assert!(each.iter().all(|own| *own > 0), "{each:?}");
}
