//! The bench runs on real servers and is never green when it was short.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const LOADTEST: &str = env!("CARGO_BIN_EXE_loadtest");

fn seckill() -> PathBuf {
    let path = Path::new(LOADTEST).with_file_name("seckill");
    assert!(path.is_file(), "{} is missing; `cargo build --workspace --bins`", path.display());
    path
}

#[test]
fn a_short_run_measures_what_it_says_and_meets_no_bar() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("bench.json");
    let mut command = Command::new(LOADTEST);
    command.args([
        "bench",
        "--rows",
        "cpu,ready,admitted,drained",
        "--rounds",
        "1",
        "--seconds",
        "1",
    ]);
    let output = command.arg("--seckill").arg(seckill()).arg("--json").arg(&json).output();
    let output = output.expect("loadtest runs");
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let said = said.join("\n");
    assert_eq!(output.status.code(), Some(1), "{said}");
    let report: Value = serde_json::from_slice(&std::fs::read(&json).expect(&said)).expect("JSON");
    assert_eq!((&report["ok"], &report["long_enough"]), (&false.into(), &false.into()), "{said}");
    let verdicts: Vec<&Value> = report["rows"].as_array().expect("rows").iter().collect();
    let verdicts: Vec<&Value> = verdicts.iter().map(|row| &row["verdict"]).collect();
    assert_eq!(verdicts[..1], ["too_short"], "{said}");
    assert!(!verdicts.iter().any(|verdict| *verdict == "met"), "{said}");
    for cell in ["single:64", "grouped:64"] {
        let sample = &report["cells"][cell][0];
        assert!(sample["per_s"].as_f64() > Some(1.0), "{cell}: {said}");
        assert_eq!(sample["invalid"], Value::Array(Vec::new()), "{cell}: {said}");
        for process in ["replicas", "redis", "database", "generator"] {
            assert!(sample["cpu_us"][process].as_f64() > Some(0.0), "{cell}, {process}: {said}");
        }
    }
    let bare: Vec<f64> = ["bare:1", "bare:8", "bare:32"]
        .map(|cell| report["cells"][cell][0]["per_s"].as_f64().expect("a rate"))
        .to_vec();
    let best = bare.iter().copied().fold(0.0, f64::max);
    for (row, cell) in [("admitted", "queued, admitted"), ("drained", "queued, drained")] {
        let sample = &report["cells"][cell][0];
        let per_s = sample["per_s"].as_f64().expect("a rate");
        let rows = report["rows"].as_array().expect("rows");
        let figure = rows.iter().find(|one| one["name"] == row).expect("the row");
        let figure = figure["median"].as_f64().expect("a figure");
        assert!((figure - per_s / best).abs() < 1e-6, "{row}: {said}");
        assert!(sample["cpu_us"]["replicas"].as_f64() > Some(0.0), "{row}: {said}");
        let invalid = sample["invalid"].to_string();
        assert!(!invalid.contains("already_ordered"), "{row}: {said}");
    }
    assert!(report["cells"]["queued, admitted"][0]["per_s"].as_f64() > Some(1.0), "{said}");
    let parts = report["cells"]["grouped:64"][0]["parts_ms"].as_object().expect(&said);
    let parts: Vec<&str> = parts.keys().map(String::as_str).collect();
    let expected =
        ["http", "lock", "purchase", "queue", "release", "request", "token", "transaction"];
    assert_eq!(parts, expected, "{said}");
    assert!(report["cells"]["start"][0]["ready_ms"].as_f64() > Some(1.0), "{said}");
    assert!(said.contains("innodb_flush_log_at_trx_commit=1"), "{said}");
    assert!(said.contains("this run can be no proof"), "{said}");
}
