//! The program in `examples/`, run as a reader of the README runs it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Cargo puts test programs into a folder beside that of the examples.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a program knows its path");
    let folder = test.parent().and_then(Path::parent).expect("a test program has a folder");
    let program = folder.join("examples").join(name);
    assert!(program.exists(), "missing: {name}; `cargo build -p testbed --examples` makes it");
    program
}

#[test]
fn the_promoted_replica_lacks_the_write_that_was_lost_on_the_link() {
    let ended = Command::new(example("lagging_replica")).output().expect("the example starts");
    let (stdout, stderr) =
        (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{stderr}");
    assert_eq!(stdout, "the new master has before: 1\nthe new master has after: 0\n", "{stderr}");
}
