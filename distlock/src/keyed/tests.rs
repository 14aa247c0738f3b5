use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::*;
use crate::process_quantum::ProcessQuantum;

fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

/// Whether the future is still pending.
fn waits(waiter: Pin<&mut impl Future<Output = KeyGuard>>) -> bool {
    waiter.poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[tokio::test]
async fn each_key_has_one_holder_and_serves_waiters_in_order() {
    let keyed = KeyedMutex::<()>::new();
    let first = keyed.try_lock(&name("a")).unwrap();
    assert!(keyed.try_lock(&name("a")).is_none());
    assert!(keyed.try_lock(&name("b")).is_some());
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..10 {
        let (keyed, order) = (keyed.clone(), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let _key_guard = keyed.lock(&name("a")).await;
            order.lock().unwrap().push(number);
        }));
        tokio::task::yield_now().await;
    }
    drop(first);
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..10).collect::<Vec<_>>());
}

#[tokio::test]
async fn no_key_is_left_behind_by_holders_or_by_waiters_that_gave_up() {
    let keyed = KeyedMutex::<()>::new();
    let key_guard = keyed.lock(&name("a")).await;
    let key = name("a");
    let mut waiter = Box::pin(keyed.lock(&key));
    assert!(waits(waiter.as_mut()));
    drop(waiter);
    assert_eq!(keyed.sizes(), (1, 0));
    drop(key_guard);
    assert_eq!(keyed.sizes(), (0, 0));
    assert!(keyed.try_lock(&name("a")).is_some(), "the waiter that gave up holds nothing");
}

#[tokio::test]
async fn a_quantum_is_remembered_between_holds_and_for_few_keys_only() {
    let keyed = KeyedMutex::<ProcessQuantum>::new();
    for number in 0..10_000 {
        let key_guard = keyed.try_lock(&name(&number.to_string())).unwrap();
        key_guard.with_state(ProcessQuantum::entered);
    }
    let (used, remembered) = keyed.sizes();
    assert_eq!(used, 0);
    assert!(remembered <= SHARD_COUNT * MAX_REMEMBERED_STATES, "{remembered}");
    let key_guard = keyed.try_lock(&name("9999")).unwrap();
    let goes_on = key_guard.with_state(|quantum| quantum.is_worth_keeping());
    assert_eq!(goes_on, Some(true), "the latest is among them");
    drop(key_guard);
    assert_eq!(keyed.sizes(), (0, remembered), "and is remembered once");
}

#[tokio::test]
async fn waiters_that_give_up_leave_no_more_behind_than_have_waited_at_once() {
    let (keyed, key) = (KeyedMutex::<()>::new(), name("a"));
    let key_guard = keyed.try_lock(&key).unwrap();
    let mut last = Box::pin(keyed.lock(&key));
    assert!(waits(last.as_mut()));
    for _ in 0..10_000 {
        let mut waiter = Box::pin(keyed.lock(&key));
        assert!(waits(waiter.as_mut()));
    }
    let kept = key_guard.with(|entry| entry.waiters.places()).unwrap();
    assert!(kept <= 16, "{kept}");
    drop(key_guard);
    drop(last.await);
    assert_eq!(keyed.sizes(), (0, 0));
}

#[tokio::test]
async fn a_key_granted_to_a_waiter_that_gives_up_is_granted_to_the_next() {
    let (keyed, key) = (KeyedMutex::<()>::new(), name("a"));
    let key_guard = keyed.try_lock(&key).unwrap();
    let mut waiters: Vec<_> = (0..10_000).map(|_| Box::pin(keyed.lock(&key))).collect();
    for waiter in &mut waiters {
        assert!(waits(waiter.as_mut()));
    }
    drop(key_guard);
    let last = waiters.pop().unwrap();
    // Each was handed the guard and has not polled.
    drop(waiters);
    drop(last.await);
    assert_eq!(keyed.sizes(), (0, 0));
}

#[tokio::test]
async fn on_contention_is_called_once_and_only_for_the_guard_that_set_it() {
    let (keyed, key) = (KeyedMutex::<()>::new(), name("a"));
    let done = Arc::new(Mutex::new(Vec::new()));
    let say = |key_guard: &KeyGuard, what: &'static str| {
        let done = Arc::clone(&done);
        key_guard.on_contention().call(Box::new(move || done.lock().unwrap().push(what)));
    };
    let first = keyed.try_lock(&key).unwrap();
    say(&first, "first");
    assert!(keyed.try_lock(&key).is_none());
    assert!(keyed.try_lock(&key).is_none());
    assert_eq!(*done.lock().unwrap(), ["first"]);
    say(&first, "said and not waited for");
    drop(first);
    let second = keyed.try_lock(&key).unwrap();
    let mut waiter = Box::pin(keyed.lock(&key));
    assert!(waits(waiter.as_mut()));
    say(&second, "second");
    assert_eq!(*done.lock().unwrap(), ["first", "second"]);
}

/// Counts wake-ups.
#[derive(Default)]
struct WakeCounter(AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[tokio::test]
async fn a_slow_waiter_is_woken_once_and_the_waker_thread_ends() {
    let (keyed, key) = (KeyedMutex::<()>::new(), name("a"));
    let key_guard = keyed.try_lock(&key).unwrap();
    // The first waiter finds no waker thread and has its own timer.
    let mut first = keyed.lock(&key).with_slow_wake();
    assert!(waits(Pin::new(&mut first)) && first.late().is_some());
    drop(first);
    let watched = || {
        let (began, woken) = (Instant::now(), Arc::new(WakeCounter::default()));
        let (mut waiter, waker) =
            (keyed.lock(&key).with_slow_wake(), Waker::from(Arc::clone(&woken)));
        let mut context = Context::from_waker(&waker);
        assert!(Pin::new(&mut waiter).poll(&mut context).is_pending() && waiter.late().is_none());
        (began, woken, waiter)
    };
    let mut waiters = Vec::new();
    for _ in 0..3 {
        let (began, woken, mut waiter) = watched();
        let until = async {
            while woken.0.load(SeqCst) == 0 {
                sleep(slow_waiter_waker::WAKE_INTERVAL / 5).await;
            }
        };
        timeout(Duration::from_secs(10), until).await.expect("it is woken");
        assert!(began.elapsed() >= slow_waiter_waker::WAKE_INTERVAL, "{:?}", began.elapsed());
        assert!(waits(Pin::new(&mut waiter)) && waiter.late().is_some());
        waiters.push((woken, waiter));
    }
    assert!(waiters.iter().all(|(woken, _)| woken.0.load(SeqCst) == 1));
    for _ in 0..1_000 {
        drop(watched());
    }
    assert!(keyed.0.slow_waker.keys() <= 1, "a key is watched once");
    let rests = async {
        while keyed.0.slow_waker.keys() > 0 {
            sleep(slow_waiter_waker::WAKE_INTERVAL).await;
        }
    };
    timeout(Duration::from_secs(10), rests).await.expect("nobody new waits");
    drop(waiters);
    drop(key_guard);
    assert_eq!(keyed.sizes(), (0, 0));
}

#[tokio::test]
async fn a_waker_that_panics_does_not_keep_others_from_being_called() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose");
        }
    }
    let (keyed, key) = (KeyedMutex::<()>::new(), name("a"));
    let key_guard = keyed.try_lock(&key).unwrap();
    let mut waiters: Vec<_> = (0..3).map(|_| keyed.lock(&key).with_slow_wake()).collect();
    assert!(waits(Pin::new(&mut waiters[0])));
    let bad = Waker::from(Arc::new(Panics));
    assert!(Pin::new(&mut waiters[1]).poll(&mut Context::from_waker(&bad)).is_pending());
    let woken = Arc::new(WakeCounter::default());
    let good = Waker::from(Arc::clone(&woken));
    assert!(Pin::new(&mut waiters[2]).poll(&mut Context::from_waker(&good)).is_pending());
    let until = async {
        while woken.0.load(SeqCst) == 0 {
            sleep(slow_waiter_waker::WAKE_INTERVAL).await;
        }
    };
    timeout(Duration::from_secs(10), until).await.expect("it is woken");
    drop(waiters);
    drop(key_guard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_has_one_holder_and_is_not_lost_by_waiters_that_give_up_in_other_threads() {
    const DEADLINE: Duration = Duration::from_mins(1);
    let keyed = KeyedMutex::<()>::new();
    let keys: Vec<_> =
        (0..4).map(|number| (name(&number.to_string()), AtomicUsize::new(0))).collect();
    let keys = Arc::new(keys);
    let mut tasks = JoinSet::new();
    for task in 0..64 {
        let (keyed, keys) = (keyed.clone(), Arc::clone(&keys));
        tasks.spawn(async move {
            for pass in 0..2_000 {
                let (key, inside) = &keys[(task * 7 + pass) % 4];
                let key_guard = match (task + pass) % 4 {
                    0 => keyed.try_lock(key),
                    1 => timeout(Duration::from_micros(200), keyed.lock(key)).await.ok(),
                    2 => soon(keyed.lock(key).with_slow_wake(), pass % 5).await,
                    _ => Some(keyed.lock(key).await),
                };
                let Some(key_guard) = key_guard else { continue };
                assert_eq!(inside.fetch_add(1, SeqCst), 0, "two have the turn");
                if pass % 3 == 0 {
                    tokio::task::yield_now().await;
                }
                inside.fetch_sub(1, SeqCst);
                drop(key_guard);
            }
        });
    }
    timeout(DEADLINE, tasks.join_all()).await.expect("no turn is lost");
    assert_eq!(keyed.sizes().0, 0);
}

/// What comes before others have run so often.
async fn soon<T>(future: impl Future<Output = T>, often: usize) -> Option<T> {
    let late = async {
        for _ in 0..often {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        came = future => Some(came),
        () = late => None,
    }
}
