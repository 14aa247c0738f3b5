//! Notices when this process stands still. A thread wakes every 10 ms; if more than 250 ms have
//! passed, the kernel did not run it, nor the other threads.
//!
//! A request whose answer was read late for that reason looks as if the service had hung. So the
//! judge counts every length without these stalls (`crate::judge::stalls`).

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often the thread wakes.
const TICK: Duration = Duration::from_millis(10);
/// The shortest stall that is noted.
const MIN_STALL: Duration = Duration::from_millis(250);
/// Stalls that are kept, the longest ones.
const MAX_STALLS: usize = 128;

/// From when until when the process stood still.
pub type Stall = [Instant; 2];

/// A thread that watches until it is stopped or dropped.
#[derive(Debug)]
pub struct StallMonitor {
    stalls: Arc<Mutex<Vec<Stall>>>,
    /// When the thread woke last.
    woke: Arc<Mutex<Instant>>,
    /// The thread ends when this is dropped.
    _ends: Sender<()>,
}

impl StallMonitor {
    /// Watches from now on.
    pub fn start() -> Self {
        let stalls = Arc::new(Mutex::default());
        let woke = Arc::new(Mutex::new(Instant::now()));
        let ((ends, ended), noted) = (channel::<()>(), Arc::clone(&stalls));
        let last = Arc::clone(&woke);
        thread::spawn(move || {
            while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                let now = Instant::now();
                note(&noted, [*last, now]);
                *last = now;
            }
        });
        Self { stalls, woke, _ends: ends }
    }

    /// The stalls so far, in no order. The thread may not have woken since the last one.
    pub fn stalls(&self) -> Vec<Stall> {
        let last = self.woke.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stalls = self.stalls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let stretch = [*last, Instant::now()];
        stalls.extend((stretch[1].duration_since(*last) > MIN_STALL).then_some(stretch));
        stalls
    }

    /// How long the process has stood still since then.
    pub fn stalled_since(&self, moment: Instant) -> Duration {
        let since = |[from, until]: Stall| until.saturating_duration_since(from.max(moment));
        self.stalls().into_iter().map(since).sum()
    }
}

/// Keeps a stretch between two ticks if it was a stall.
fn note(stalls: &Mutex<Vec<Stall>>, stretch: Stall) {
    let length = |[from, until]: Stall| until.saturating_duration_since(from);
    if length(stretch) <= MIN_STALL {
        return;
    }
    let mut stalls = stalls.lock().unwrap_or_else(PoisonError::into_inner);
    if stalls.len() < MAX_STALLS {
        return stalls.push(stretch);
    }
    if let Some(shortest) = stalls.iter_mut().min_by_key(|stall| length(**stall))
        && length(*shortest) < length(stretch)
    {
        *shortest = stretch;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_stalls_are_kept_and_shorter_stretches_are_none() {
        let (stalls, began) = (Mutex::default(), Instant::now());
        let stretch = |ms: u64| [began, began + Duration::from_millis(ms)];
        note(&stalls, stretch(250));
        assert!(stalls.lock().expect("whole").is_empty(), "250 ms are no stall");
        for ms in 0..500 {
            note(&stalls, stretch(251 + ms));
        }
        let kept = stalls.into_inner().expect("whole");
        assert_eq!(kept.len(), MAX_STALLS);
        assert!(kept.contains(&stretch(750)) && !kept.contains(&stretch(251)));
    }

    #[test]
    fn a_stall_counts_before_the_thread_has_woken() {
        let monitor = StallMonitor::start();
        // The thread stands still at this.
        let mut last = monitor.woke.lock().expect("whole");
        *last = Instant::now().checked_sub(Duration::from_secs(1)).expect("long up");
        let began = *last;
        let later = thread::scope(|scope| {
            let reading = scope.spawn(|| monitor.stalled_since(began));
            drop(last);
            reading.join().expect("a reading")
        });
        assert!(later >= Duration::from_secs(1), "{later:?}");
    }

    #[test]
    fn time_before_a_moment_does_not_count_as_stalled_since_then() {
        let monitor = StallMonitor::start();
        let began = Instant::now() + Duration::from_secs(100);
        let at = |ms: u64| began + Duration::from_millis(ms);
        monitor.stalls.lock().expect("whole").extend([[at(0), at(100)], [at(200), at(300)]]);
        assert_eq!(monitor.stalled_since(at(0)), Duration::from_millis(200));
        assert_eq!(monitor.stalled_since(at(60)), Duration::from_millis(140));
        assert_eq!(monitor.stalled_since(at(400)), Duration::ZERO);
    }
}
