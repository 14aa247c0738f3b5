//! One suite for every kind of lock.
//!
//! Each check says by a kind's guarantees whether it is asked of the kind. Every kind that the
//! registry knows meets every check that is asked of it, as a test of its own:
//! `lua-release::a_killed_holder_is_taken_over`. A run of the whole suite prints the matrix of
//! kinds and checks, and fails if one that is asked did not run to its end. That enough is asked is
//! a test as well (`floor`), because what is asked comes from the kinds' own promises. A composite
//! of three kinds, on three sorts of servers, is asked for what the weakest of them promises. With
//! the feature `interop` the clients of other languages are asked what their processes can show.

mod arena;
mod bad_input;
mod cancellation;
mod clients;
mod clocks;
mod exclusion;
mod fencing;
mod floor;
mod inspection;
mod leases;
mod lost_answers;
mod matrix;
mod measuring;
mod other_kinds;
mod queueing;
mod reentry;
mod release;
#[path = "../support/removal.rs"]
mod removal;
mod residue;
mod validity;
mod waiting;

use std::process::ExitCode;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Instant;

use conformance::promise;
use conformance::variant::Variant;
use distlock::{Guarantees, LockKind, RenewalKind, WakeKind};
use libtest_mimic::{Arguments, Trial};

use arena::{Arena, Check, Subject};
use matrix::Matrix;

/// Set by `make test-times`, which reads how long each check took.
const TEST_TIMES: &str = "TEST_TIMES";
/// The filter of `make interop` and `make test`, which selects all clients of other languages.
const CLIENTS: &str = "client-";
/// Checks that run at the same time, for each processor: they wait most of the time.
const CHECKS_PER_PROCESSOR: usize = 3;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let processors = available_parallelism().map_or(1, usize::from);
    arguments.test_threads.get_or_insert(processors * CHECKS_PER_PROCESSOR);
    let filter = arguments.filter.as_deref();
    let is_judged = !arguments.list && arguments.skip.is_empty() && !arguments.ignored;
    let is_whole = is_judged && filter.is_none();
    let is_of_clients = is_judged && filter == Some(CLIENTS);

    let matrix = Arc::new(Matrix::new(subjects(), checks()));
    let mut trials: Vec<Trial> =
        matrix.asked().map(|(subject, check)| trial(subject, check, &matrix)).collect();
    trials.push(floor::trial(&matrix));
    trials.extend(clients::floor_trial(&matrix));
    let conclusion = libtest_mimic::run(&arguments, trials);
    let gaps = match (is_whole, is_of_clients) {
        (true, _) => matrix.gaps(),
        (_, true) => matrix.client_gaps(),
        _ => Vec::new(),
    };
    if is_whole {
        println!("{matrix}");
    }
    if !gaps.is_empty() {
        println!("asked, but not run to the end:\n  {}", gaps.join("\n  "));
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

fn subjects() -> Vec<Subject> {
    let usual = |kind: LockKind| {
        let (name, variant, promise) = (kind.as_str(), Variant::Usual, promise(kind));
        Subject { name, kind, variant, promise, client: None }
    };
    let kinds = LockKind::ALL.into_iter().map(usual);
    kinds.chain([of_three_kinds()]).chain(clients::subjects()).collect()
}

/// The row is polled for, and the node lives with its session.
fn of_three_kinds() -> Subject {
    let kind = LockKind::Multi;
    let (renewal, wake) = (RenewalKind::Heartbeat, WakeKind::Poll);
    Subject {
        name: "multi-of-3-kinds",
        kind,
        variant: Variant::OfThreeKinds,
        promise: Guarantees { renewal, wake, ..promise(kind) },
        client: None,
    }
}

fn checks() -> Vec<Check> {
    [
        exclusion::CHECKS,
        waiting::CHECKS,
        release::CHECKS,
        lost_answers::CHECKS,
        inspection::CHECKS,
        leases::CHECKS,
        validity::CHECKS,
        clocks::CHECKS,
        reentry::CHECKS,
        queueing::CHECKS,
        fencing::CHECKS,
        cancellation::CHECKS,
        other_kinds::CHECKS,
        bad_input::CHECKS,
        measuring::CHECKS,
    ]
    .concat()
}

fn trial(subject: Subject, check: Check, matrix: &Arc<Matrix>) -> Trial {
    let matrix = Arc::clone(matrix);
    let name = format!("{}::{}", subject.name, check.name);
    Trial::test(name.clone(), move || {
        let began = Instant::now();
        (check.run)(&Arena::of(subject));
        if std::env::var_os(TEST_TIMES).is_some() {
            println!("test {name} ... ok <{:.3}s>", began.elapsed().as_secs_f64());
        }
        // Not before: a check that has broken off has not run.
        matrix.ran(subject.name, check.name);
        Ok(())
    })
}
