//! The laboratory's fault `failpoint` on this program: kinds of locks that the rounds beside it do
//! not have, under a crowd whose history is judged.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// With this seed each of the three deeds has a cell.
const SEED: &str = "2";
/// A cell is invalid if its voucher is sold out before the point is armed, as on a busy machine.
const TRIES: usize = 3;

#[test]
fn cells_with_a_failpoint_see_a_replica_die_panic_and_sleep_at_a_point_and_all_hold() {
    let seckill = env!("CARGO_BIN_EXE_seckill");
    let loadtest = Path::new(seckill).with_file_name("loadtest");
    assert!(loadtest.is_file(), "`cargo build --workspace --bins` makes {}", loadtest.display());
    let folder = tempfile::tempdir().expect("a folder");
    let [json, resume] = ["matrix.json", "resume.jsonl"].map(|name| folder.path().join(name));
    let run = || {
        let mut command = Command::new(&loadtest);
        command.args(["matrix", "--faults", "failpoint", "--scopes", "user", "--guards", "on"]);
        command.args(["--locks", "fair,mysql-row,mysql-named,zookeeper", "--seed", SEED]);
        command.args(["--seckill", seckill, "--json"]).arg(&json).arg("--resume").arg(&resume);
        command.output().expect("loadtest runs")
    };
    // What is valid is not run again.
    let mut output = run();
    for _ in 1..TRIES {
        let said = String::from_utf8_lossy(&output.stderr);
        if !said.contains("INVALID") {
            break;
        }
        println!("{said}");
        output = run();
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let report = std::fs::read(&json).unwrap_or_else(|error| panic!("{error}: {said}"));
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    let cells = report["cells"].as_array().expect("cells");
    println!("{said}");
    assert_eq!((output.status.code(), cells.len()), (Some(0), 4), "{said}");
    let witnesses: Vec<_> =
        cells.iter().filter_map(|cell| cell["round"]["faults"][0]["witness"].as_str()).collect();
    assert_eq!(witnesses.len(), cells.len(), "{said}");
    for words in ["ended at ", "panicked at ", "stood still for "] {
        assert!(witnesses.iter().any(|witness| witness.contains(words)), "{words}: {said}");
    }
}
