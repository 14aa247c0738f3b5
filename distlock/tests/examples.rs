//! The programs in `examples/`, run as their readers run them, on a real Redis.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::server;

/// Each of them, and the line that says that it has done what it shows.
const EXAMPLES: [(&str, &str); 3] = [
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
        let run = Command::new(program(name)).arg(server().url()).output().expect("a program");
        let said = String::from_utf8_lossy(&run.stdout);
        let complained = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{name}: {}\n{said}{complained}", run.status);
        assert!(said.lines().any(|said| said == line), "{name} does not say {line:?}:\n{said}");
    }
}
