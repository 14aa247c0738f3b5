//! The textbook replica in Java (`jvm/`) beside our own: both answer alike, and the laboratory
//! finds of a mixed fleet what it predicts. `make jvm` builds what this needs.

mod answers;
mod options;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

/// One run at a time: a cell is a full load.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

const LOADTEST: &str = env!("CARGO_BIN_EXE_loadtest");

fn seckill() -> PathBuf {
    Path::new(LOADTEST).with_file_name("seckill")
}

fn compare(flags: &[&str]) -> (Output, Value) {
    run("compare", flags)
}

/// What `loadtest` with this command and these flags prints, and its report.
fn run(command: &str, flags: &[&str]) -> (Output, Value) {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("report.json");
    let mut loadtest = Command::new(LOADTEST);
    loadtest.arg(command).args(flags).arg("--json").arg(&json);
    let output = loadtest.output().expect("loadtest runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = std::fs::read(&json).unwrap_or_else(|error| panic!("{error}: {said}"));
    (output, serde_json::from_slice(&report).expect("JSON"))
}

#[test]
fn redisson_in_java_and_in_rust_exclude_each_other_and_local_locks_do_not() {
    let cells = ["--replicas-of", "mixed", "--scopes", "user", "--guards", "off"];
    let (output, report) = compare(&[&cells[..], &["--locks", "local,redisson"]].concat());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    let twice = |lock: &str| {
        let cells = report["cells"].as_array().expect("cells");
        let cell = cells.iter().find(|cell| cell["lock"] == lock).expect("a cell");
        cell["duplicate_users"].as_u64().expect("a number")
    };
    assert!(twice("local") > 0, "{said}");
    assert_eq!(twice("redisson"), 0, "{said}");
}

#[test]
fn a_transaction_that_a_self_invocation_bypasses_is_caught() {
    let bug = ["--replicas-of", "jvm", "--inject-jvm-bug", "self-invocation"];
    let cell = ["--locks=none", "--scopes=user", "--guards=on", "--replicas=2"];
    let (output, report) = compare(&[bug, cell].concat());
    assert_eq!(output.status.code(), Some(1));
    let broken = report["cells"][0]["broken_rules"].as_array().expect("rules");
    assert!(broken.contains(&json!("stock_adds_up")), "{broken:?}");
}

#[test]
fn a_bug_of_either_side_of_a_mixed_fleet_is_caught() {
    let cell = ["--locks=none", "--scopes=user", "--guards=on", "--replicas=2"];
    for of_side in ["--inject-bug", "--inject-jvm-bug"] {
        let bug = ["--replicas-of", "mixed", of_side, "no-stock-condition"];
        let (output, report) = compare(&[&bug[..], &cell].concat());
        assert_eq!(output.status.code(), Some(1), "{of_side}");
        let oversold = report["cells"][0]["oversold"].as_u64().expect("a number");
        assert!(oversold > 0, "{of_side}: {}", report["cells"][0]);
    }
}

#[test]
fn each_lock_of_the_textbook_sells_as_predicted() {
    let flags = ["--replicas-of", "jvm", "--replicas=2", "--guards=off"];
    let locks = "--locks=none,local,set-nx,owner-check,lua-release,redisson";
    let (output, report) = compare(&[&flags[..], &[locks]].concat());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    let cells = report["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 12, "{said}");
    let per_voucher = cells.iter().filter(|cell| cell["scope"] == "voucher");
    for cell in per_voucher.filter(|cell| cell["lock"] != "none" && cell["lock"] != "local") {
        assert_eq!(cell["oversold"], 0, "{cell}");
    }
}

#[test]
fn a_jvm_that_stands_still_past_its_lease_sells_too_much() {
    let fleet = ["--replicas-of=jvm", "--locks=redisson", "--replicas=2"];
    let cell = ["--scenarios=frozen-unfenced", "--faults=freeze"];
    let (output, report) = run("matrix", &[&fleet[..], &cell].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let oversold = report["cells"][0]["oversold"].as_u64().expect("a number");
    assert!(oversold > 0, "{}", report["cells"][0]);
}

/// With guards on a cell holds whatever becomes of its lock: what this shows is the replicas.
#[test]
fn jvms_that_are_killed_or_lose_their_redis_keep_selling() {
    let fleet = ["--replicas-of=jvm", "--locks=redisson", "--scopes=user", "--guards=on"];
    let cell = ["--replicas=2", "--scenarios=short-work", "--faults=kill,redis-failover"];
    let (output, report) = run("matrix", &[&fleet[..], &cell].concat());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    let cells = report["cells"].as_array().expect("cells");
    let faults: Vec<_> = cells.iter().map(|cell| &cell["round"]["faults"][0]["name"]).collect();
    assert_eq!(faults, ["kill", "redis-failover"], "{said}");
    for cell in cells {
        assert!(cell["round"]["served_after"].as_u64() > Some(0), "{}", cell["round"]);
    }
}
