//! The programs in `examples/`, run as their readers run them, on a real Redis.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::server;
use testbed::{Bed, Redis, RedisOptions};

/// Each of them, and the line that says that it has done what it shows.
const EXAMPLES: [(&str, &str); 4] = [
    ("from_redisson", "all of Redisson's interfaces, by other names"),
    ("guard", "released: Released"),
    ("scope", "done, 3 steps"),
    ("try_lock", "first: true, second: false"),
];

/// Cargo puts test programs into a folder beside that of the examples.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a program knows its path");
    let folder = test.parent().and_then(Path::parent).expect("a test program has a folder");
    let program = folder.join("examples").join(name);
    assert!(program.exists(), "missing: {name}; `cargo build -p distlock --examples` makes it");
    program
}

/// The names of the sources.
fn sources() -> BTreeSet<String> {
    let files = fs::read_dir("examples").expect("tests run in the folder of their package");
    let name = |file: PathBuf| Some(file.file_stem()?.to_str()?.to_owned());
    files.filter_map(|file| name(file.expect("a file").path())).collect()
}

#[test]
fn every_example_does_what_it_shows_and_ends_well() {
    assert!(sources().iter().eq(EXAMPLES.map(|(name, _)| name)), "{:?}", sources());
    for (name, line) in EXAMPLES {
        does(name, &[server()], line);
    }
}

#[test]
fn with_three_servers_the_example_for_those_from_redisson_takes_a_majority_of_them() {
    let bed = Bed::start().expect("a private bed");
    let servers = bed.redis_many(3, RedisOptions::default()).expect("Redis is installed");
    does("from_redisson", &Vec::from_iter(&servers), "a majority of 3");
}

/// With these servers it says that line and ends well.
fn does(name: &str, servers: &[&Redis], line: &str) {
    let urls = servers.iter().map(|server| server.url());
    let run = Command::new(program(name)).args(urls).output().expect("a program");
    let said = String::from_utf8_lossy(&run.stdout);
    let complained = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{name}: {}\n{said}{complained}", run.status);
    assert!(said.lines().any(|said| said == line), "{name} does not say {line:?}:\n{said}");
}
