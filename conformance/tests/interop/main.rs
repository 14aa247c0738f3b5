//! This library and the real Redisson and Curator on the same servers: they keep each other out,
//! wake each other, and see the same.
//!
//! `make interop` builds the programs of the JVM (`conformance/interop`) and runs this. What is
//! timed runs alone, so the checks run one after the other.

mod contention;
mod ends;
mod formats;
mod holds;
mod looks;
mod nodes;
mod recipes;
mod scene;
mod synchronizers;
mod waking;

use std::process::ExitCode;

use conformance::Peer;
use libtest_mimic::{Arguments, Trial};

use scene::Scene;

/// A sentence, and what shows that it is true.
type Check = (&'static str, fn(&Scene));

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(1);
    let trials = [Peer::Redisson4, Peer::Redisson3, Peer::Curator].into_iter().flat_map(|peer| {
        checks(peer).into_iter().map(move |(name, check)| {
            Trial::test(format!("{}::{name}", peer.name()), move || {
                check(Scene::of(peer));
                Ok(())
            })
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn checks(peer: Peer) -> Vec<Check> {
    let of_the_peer = if peer == Peer::Curator {
        [looks::OF_CURATOR, ends::OF_CURATOR, recipes::CHECKS].concat()
    } else {
        let others = [formats::OF_REDISSON, holds::CHECKS, synchronizers::CHECKS].concat();
        [looks::OF_REDISSON, ends::OF_REDISSON, &others].concat()
    };
    [contention::CHECKS, waking::CHECKS, &of_the_peer, ends::OF_BOTH].concat()
}
