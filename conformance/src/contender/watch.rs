//! Effects under a lock, each after a look at it. In a thread of its own: no timer and no other
//! task stands between the end of a freeze and the next look.

use std::thread::sleep;
use std::time::Duration;

use conformance::clock::now_ns;
use conformance::counter::Counter;
use conformance::protocol::{Response, WatchReport};
use distlock::LostSignal;

use super::speech::say;

pub(crate) struct Watch {
    pub(crate) handle: u64,
    pub(crate) loss: LostSignal,
    pub(crate) counter: Counter,
    pub(crate) pause: Duration,
}

/// Calls `first` after the first effect.
pub(crate) fn watch(watch: Watch, first: impl FnOnce()) {
    let Watch { handle, loss, counter, pause } = watch;
    let mut first = Some(first);
    let now = now_ns();
    let mut watched = WatchReport {
        handle,
        effects: 0,
        valid_ns: now,
        last_effect_ns: now,
        looked_ns: now,
        slept_ns: now,
        woke_ns: now,
        effects_since: 0,
    };
    let mut seen_ns = now;
    loop {
        let begun_ns = now_ns();
        note(&mut watched, &mut seen_ns);
        if loss.is_lost() {
            // A freeze may have begun since the first note.
            note(&mut watched, &mut seen_ns);
            watched.looked_ns = seen_ns;
            break;
        }
        watched.valid_ns = begun_ns;
        if let Err(error) = counter.add_one() {
            eprintln!("contender: an effect failed: {error}");
            break;
        }
        watched.effects += 1;
        watched.effects_since += 1;
        note(&mut watched, &mut seen_ns);
        watched.last_effect_ns = seen_ns;
        if let Some(first) = first.take() {
            first();
        }
        sleep(pause);
    }
    say(None, Response::Watched(watched));
}

/// Remembers the longest time in which the loop did not run.
fn note(watched: &mut WatchReport, seen_ns: &mut u64) {
    let now = now_ns();
    if now - *seen_ns > watched.woke_ns - watched.slept_ns {
        watched.slept_ns = *seen_ns;
        watched.woke_ns = now;
        watched.effects_since = 0;
    }
    *seen_ns = now;
}
