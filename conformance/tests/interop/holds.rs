//! Locks of Redisson whose hash is the plain lock's: they share the hold with it, and nothing of
//! how one waits.

use std::iter::repeat_with;
use std::time::Duration;

use conformance::clock::{between, now_ns};
use conformance::protocol::LockRequest;
use conformance::{WAIT_TIMEOUT, eventually};

use crate::Check;
use crate::scene::{LONG_WAIT, Scene, another_of, redis, redis_says, refusal};

pub(crate) const CHECKS: &[Check] = &[
    (
        "fair_spin_and_fenced_locks_of_redisson_keep_the_plain_one_out_and_it_them",
        fair_spin_and_fenced_locks_of_redisson_keep_the_plain_one_out_and_it_them,
    ),
    (
        "a_waiter_of_the_plain_lock_polls_where_redisson_sends_no_message",
        a_waiter_of_the_plain_lock_polls_where_redisson_sends_no_message,
    ),
    (
        "a_fenced_lock_of_redisson_counts_its_own_holds_alone",
        a_fenced_lock_of_redisson_counts_its_own_holds_alone,
    ),
];

/// A waiter of this library looks again after a second, and a busy machine may be late.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const POLLED_WITHIN: Duration = Duration::from_secs(5);

fn fair_spin_and_fenced_locks_of_redisson_keep_the_plain_one_out_and_it_them(scene: &Scene) {
    let ours = &scene.ours.contender;
    for kind in ["fair", "spin", "fenced"] {
        let theirs = another_of(scene.peer, kind);
        for (holder, other) in [(ours, &theirs), (&theirs, ours)] {
            let want = scene.want_fresh();
            let held = holder.insist(&want);
            assert_eq!(refusal(other, &want), "timed_out", "{kind}");
            holder.release(held.handle).expect("it is held");
            let held = other.insist(&want);
            assert_eq!(refusal(holder, &want), "timed_out", "{kind}");
            other.release(held.handle).expect("it is held");
        }
    }
}

fn a_waiter_of_the_plain_lock_polls_where_redisson_sends_no_message(scene: &Scene) {
    let ours = &scene.ours.contender;
    for (kind, messages) in [("spin", 0), ("fair", 0), ("fenced", 1)] {
        let theirs = another_of(scene.peer, kind);
        let want = scene.want_fresh();
        let client = redis::Client::open(redis().url()).expect("a URL");
        let mut connection = client.get_connection().expect("a connection");
        connection.set_read_timeout(Some(WAIT_TIMEOUT)).expect("a time-out");
        let mut ear = connection.as_pubsub();
        ear.psubscribe(format!("*{}*", want.name)).expect("a subscription");

        // What lets the waiter in is not the end of this lease.
        let long = u64::try_from(LONG_WAIT.as_millis()).expect("a minute");
        let held = theirs.insist(&LockRequest { lease_ms: long, ..want.clone().unrenewed() });
        let waiting = ours.lock_later(&want.clone().waiting(LONG_WAIT));
        eventually("the waiter waits", || scene.waiters(&want.name) == 1);
        let freed_ns = now_ns();
        theirs.release(held.handle).expect("it is held");
        let got = waiting.wait().expect("it is free");
        let took = between(freed_ns, got.acquired_ns);
        println!("{} {kind}: distlock enters after {took:?}", scene.peer.name());
        assert!(took < POLL_INTERVAL + POLLED_WITHIN, "{kind}: {took:?}");

        // Whatever was said before this is heard before it.
        redis_says(&["PUBLISH", &format!("end:{}", want.name), "end"]);
        let mut hear = || ear.get_message().and_then(|message| message.get_payload::<String>());
        let said = repeat_with(|| hear().expect("a message")).take_while(|said| said != "end");
        assert_eq!(said.count(), messages, "{kind}");
        ours.release(got.handle).expect("it is held");
    }
}

fn a_fenced_lock_of_redisson_counts_its_own_holds_alone(scene: &Scene) {
    let (theirs, want) = (another_of(scene.peer, "fenced"), scene.want_fresh());
    for holder in [&theirs, &scene.ours.contender, &theirs] {
        let held = holder.insist(&want);
        holder.release(held.handle).expect("it is held");
    }
    let token = format!("redisson_lock_token:{{{}}}", want.name);
    assert_eq!(redis_says(&["GET", &token]), "2");
}
