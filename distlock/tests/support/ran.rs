//! Time for which the machine ran. Upper bounds in it hold also where other programs want the
//! processors, or where all stands still for seconds.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often a thread wants to run, and for how much a turn counts at most.
const PERIOD: Duration = Duration::from_millis(2);
const TURN: Duration = Duration::from_millis(5);

/// The machine's running time since the first call. It stands still while a runnable thread has to
/// wait, so it is never ahead of the clock: no lower bounds in this time.
pub(crate) fn ran() -> Duration {
    static RAN_US: OnceLock<&'static AtomicU64> = OnceLock::new();
    let ran_us = RAN_US.get_or_init(|| {
        let ran_us: &AtomicU64 = Box::leak(Box::default());
        thread::spawn(move || {
            loop {
                let began = Instant::now();
                thread::sleep(PERIOD);
                let turn = began.elapsed().min(TURN).as_micros();
                ran_us.fetch_add(u64::try_from(turn).expect("a short time"), Ordering::Relaxed);
            }
        });
        ran_us
    });
    Duration::from_micros(ran_us.load(Ordering::Relaxed))
}
