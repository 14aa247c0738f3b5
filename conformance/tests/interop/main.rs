//! This library, the real Redisson and Curator, and the clients of other languages on the same
//! servers: they keep each other out, wake each other, and see the same.
//!
//! `make interop` builds the programs of the JVM and of etcd's Go package (`conformance/interop`),
//! and those of the clients (`clients`), and runs this. What is timed runs alone, so the checks run
//! one after the other.

mod clients;
mod contention;
mod ends;
mod etcd;
mod formats;
mod holds;
mod inspection;
mod languages;
mod looks;
mod lua_release;
mod nodes;
mod recipes;
mod scene;
mod sentinel;
mod synchronizers;
mod waking;

use std::process::ExitCode;

use conformance::Peer;
use libtest_mimic::{Arguments, Trial};

use scene::Scene;

const PEERS: [Peer; 6] =
    [Peer::Redisson4, Peer::Redisson3, Peer::Curator, Peer::Python, Peer::Go, Peer::Node];

/// A sentence, and what shows that it is true.
type Check = (&'static str, fn(&Scene));

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(1);
    let mut trials = Vec::new();
    for peer in PEERS {
        trials.extend(checks(peer).into_iter().map(|check| trial(peer.name(), check, peer)));
    }
    // Redisson is one of the languages, and the Redis of its checks is that of all.
    let of_all = languages::CHECKS.iter();
    trials.extend(of_all.map(|check| trial("languages", *check, Peer::Redisson4)));
    trials.extend(etcd::CHECKS.iter().map(|(name, check)| {
        Trial::test(format!("etcd-go::{name}"), move || {
            check();
            Ok(())
        })
    }));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(group: &str, (name, check): Check, peer: Peer) -> Trial {
    Trial::test(format!("{group}::{name}"), move || {
        check(Scene::of(peer));
        Ok(())
    })
}

fn checks(peer: Peer) -> Vec<Check> {
    let of_the_peer = if peer.is_client() {
        let of_a_lock = [looks::OF_REDISSON, &ends::OF_REDISSON[..1], clients::CHECKS].concat();
        let shares_lua_release = peer != Peer::Node;
        if shares_lua_release { [&of_a_lock, lua_release::CHECKS].concat() } else { of_a_lock }
    } else if peer == Peer::Curator {
        [looks::OF_CURATOR, ends::OF_CURATOR, recipes::CHECKS, inspection::OF_READ_WRITE].concat()
    } else {
        let others =
            [formats::OF_REDISSON, holds::CHECKS, sentinel::CHECKS, synchronizers::CHECKS].concat();
        [looks::OF_REDISSON, ends::OF_REDISSON, inspection::OF_READ_WRITE, &others].concat()
    };
    [contention::CHECKS, waking::CHECKS, inspection::CHECKS, &of_the_peer, ends::OF_BOTH].concat()
}
