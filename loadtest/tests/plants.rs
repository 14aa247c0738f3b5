//! The laboratory finds bugs that are planted, and nothing where there is none: the quick ones of
//! the table that `make plants` runs whole; and the service knows the bugs by the same names, and
//! only in a laboratory.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum as _;
use loadtest::lab::place::Plant;
use serde_json::Value;

const LOADTEST: &str = env!("CARGO_BIN_EXE_loadtest");
/// One that the sale shows, one that a lost COMMIT shows, one that nobody waits for.
const QUICK: [&str; 3] = ["release-before-commit", "answer-before-commit", "lost-wake-up"];

fn seckill() -> PathBuf {
    let path = Path::new(LOADTEST).with_file_name("seckill");
    let missing =
        "is missing; `cargo build --workspace --bins` makes it, and `make test` does that";
    assert!(path.is_file(), "{} {missing}", path.display());
    path
}

#[test]
fn three_planted_bugs_are_caught_and_the_service_without_them_is_clean() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("plants.json");
    let mut command = Command::new(LOADTEST);
    command.args(["plants", "--seeds", "1", "--only", &QUICK.join(",")]);
    command.arg("--seckill").arg(seckill()).arg("--json").arg(&json);
    let output = command.output().expect("loadtest runs");
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let said = said.join("\n");
    let report = std::fs::read(&json).unwrap_or_else(|error| panic!("{error}: {said}"));
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    for plant in report["plants"].as_array().expect("a list") {
        let attempt = &plant["attempts"][0];
        assert!(attempt["caught_by"].as_array().is_some_and(|by| !by.is_empty()), "{said}");
        assert_eq!(attempt["clean"], true, "{said}");
    }
    assert!(said.contains("planted 3, caught 3, median rounds 1"), "{said}");
    assert_eq!(output.status.code(), Some(0), "{said}");
}

/// What `seckill serve` says when it refuses these flags.
fn refused(flags: &[&str]) -> String {
    let output = Command::new(seckill())
        .arg("serve")
        .args(flags)
        .env_clear()
        .envs([
            ("DATABASE_URL", "mysql://127.0.0.1:1/none"),
            ("REDIS_URL", "redis://127.0.0.1:1"),
            ("JWT_SECRET", "a-secret-of-thirty-two-bytes-or-more"),
        ])
        .output()
        .expect("the built program");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    said
}

#[test]
fn the_service_has_the_same_bugs_and_refuses_each_outside_of_a_laboratory() {
    for plant in Plant::value_variants() {
        let said = refused(&["--plant", plant.name()]);
        assert!(said.contains("--plant is for the laboratory and needs --lab"), "{said}");
    }
    let said = refused(&["--lab", "--plant", "tulips"]);
    for plant in Plant::value_variants() {
        assert!(said.contains(plant.name()), "{said}");
    }
    assert_eq!(said.matches(", ").count() + 1, Plant::value_variants().len(), "{said}");
}

#[test]
fn a_bug_of_one_lock_is_refused_with_another() {
    let said = refused(&["--lab", "--lock", "redisson", "--plant", "get-then-del"]);
    assert!(said.contains("is a bug of the lock lua-release, not of redisson"), "{said}");
}
