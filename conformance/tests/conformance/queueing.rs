//! The order of waiters.

use conformance::{Contender, busy_until_queued, fresh_name};

use crate::arena::{Applicability, Arena, Check, at_once, await_busy, patiently};

pub(crate) const CHECKS: &[Check] = &[Check {
    name: "waiters_get_the_lock_in_the_order_of_arrival",
    asked: |subject| {
        Applicability::of_those_that(subject.promise.fair.is_yes(), "promises no order")
    },
    run: first_come_first_served,
}];

const WAITERS: usize = 6;

fn first_come_first_served(arena: &Arena) {
    let name = fresh_name();
    // Each in a process of its own, where processes meet.
    let processes = if arena.promise.is_on_a_server() { WAITERS } else { 1 };
    let processes: Vec<Contender> = (0..processes).map(|_| arena.contender()).collect();
    let process = |waiter: usize| &processes[waiter % processes.len()];
    let mut last = (0, process(0).lock(&at_once(&name)).expect("the lock is free").handle);
    let mut waiting = Vec::new();
    for waiter in 1..=WAITERS {
        let busy = process(waiter).busy();
        waiting.push((waiter, process(waiter).lock_later(&patiently(&name))));
        await_busy(process(waiter), busy + busy_until_queued(&arena.promise) - 1);
    }
    for (waiter, next) in waiting {
        process(last.0).release(last.1).expect("a release");
        let held = next.wait();
        let held = held.unwrap_or_else(|failure| panic!("waiter {waiter}: {failure:?}"));
        last = (waiter, held.handle);
    }
}
