//! The laboratory can fail: an injected bug turns the comparison red, for the right reason, and the
//! same cell without it is green.

use std::path::{Path, PathBuf};
use std::process::Command;

use distlock::LockKind;
use serde_json::Value;
use tokio::sync::Mutex;

use crate::fleet::SECKILL;

const UNGUARDED: [&str; 2] = ["--guards", "off"];
const GUARDED: [&str; 2] = ["--guards", "on"];

/// The load generator, which is built beside the service.
pub(crate) fn loadtest() -> PathBuf {
    let path = Path::new(SECKILL).with_file_name("loadtest");
    let missing =
        "is missing; `cargo build --workspace --bins` makes it, and `make test` does that";
    assert!(path.is_file(), "{} {missing}", path.display());
    path
}

/// One comparison after the other: each is a full load, and a cell needs many requests in flight.
pub(crate) static TURN: Mutex<()> = Mutex::const_new(());

/// What one comparison came to.
struct Run {
    exit_code: Option<i32>,
    report: Value,
    printed: String,
    /// Exit code of `loadtest check` on the history that was kept, if one was.
    judged_again: Option<i32>,
}

impl Run {
    /// A comparison of one cell: a distributed lock per voucher over three replicas.
    async fn of(guards: [&'static str; 2], bug: Option<&'static str>) -> Self {
        let _turn = TURN.lock().await;
        let compare = move || {
            let folder = tempfile::tempdir().expect("a folder");
            let json = folder.path().join("report.json");
            let mut command = Command::new(loadtest());
            command.args(["compare", "--locks", "redisson", "--scopes", "voucher"]);
            command.args(["--replicas", "3", "--seckill", SECKILL]).args(guards);
            command.args(bug.iter().flat_map(|bug| ["--inject-bug", bug]));
            command.arg("--report-dir").arg(folder.path().join("report"));
            let output = command.arg("--json").arg(&json).output().expect("loadtest runs");
            let printed = [output.stdout, output.stderr].map(String::from_utf8);
            let printed = printed.map(|text| text.expect("UTF-8")).join("\n");
            let report = std::fs::read(&json).expect(&printed);
            let report: Value = serde_json::from_slice(&report).expect("JSON");
            let kept = report["cells"][0]["history"].as_str();
            let judged_again = kept.map(|history| {
                let check = Command::new(loadtest()).args(["check", history]).output();
                check.expect("loadtest runs").status.code().expect("an exit code")
            });
            Self { exit_code: output.status.code(), report, printed, judged_again }
        };
        tokio::task::spawn_blocking(compare).await.expect("a comparison")
    }

    /// The only cell, which must be a real load.
    fn cell(&self) -> &Value {
        let cells = self.report["cells"].as_array().expect("cells");
        assert_eq!(cells.len(), 1, "{}", self.printed);
        assert_eq!(cells[0]["valid"], true, "{}", self.printed);
        assert_eq!(cells[0]["error"], Value::Null, "{}", self.printed);
        &cells[0]
    }

    fn assert_green(&self) {
        assert_eq!(self.exit_code, Some(0), "{}", self.printed);
        assert_eq!(self.report["ok"], true, "{}", self.printed);
        assert_eq!(self.cell()["as_predicted"], true, "{}", self.printed);
        assert_eq!(self.cell()["orders"], self.cell()["stock"], "{}", self.printed);
        assert_eq!(self.judged_again, None, "the history of a green cell does not stay");
    }

    /// Asserts that it failed because of that rule, and that the text says so.
    fn assert_red(&self, rule: &str) {
        assert_eq!(self.exit_code, Some(1), "{}", self.printed);
        assert_eq!(self.report["ok"], false, "{}", self.printed);
        assert_eq!(self.cell()["as_predicted"], false, "{}", self.printed);
        let broken = self.cell()["broken_rules"].as_array().expect("rules");
        assert!(broken.iter().any(|broken| broken == rule), "{broken:?}\n{}", self.printed);
        assert!(self.printed.contains("✗"), "{}", self.printed);
        assert_eq!(self.judged_again, Some(1), "its history is as red: {}", self.printed);
    }
}

#[test]
fn the_comparison_knows_every_kind_of_lock_by_the_same_name() {
    let output = Command::new(loadtest()).args(["compare", "--locks", "mutex"]).output();
    let said = String::from_utf8(output.expect("loadtest runs").stderr).expect("UTF-8");
    let names = LockKind::ALL.map(LockKind::as_str).join(", ");
    assert!(said.contains(&format!("[possible values: {names}]")), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_released_before_the_commit_turns_the_unguarded_cell_red() {
    Run::of(UNGUARDED, None).await.assert_green();
    let buggy = Run::of(UNGUARDED, Some("release-before-commit")).await;
    buggy.assert_red("orders_within_stock");
    let cell = buggy.cell();
    assert_eq!(cell["predicted"]["oversells"], false);
    assert_eq!(cell["observed"]["oversells"], true);
    assert!(cell["oversold"].as_u64() > Some(0), "{cell}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stock_without_its_condition_turns_the_guarded_cell_red() {
    Run::of(GUARDED, None).await.assert_green();
    let buggy = Run::of(GUARDED, Some("no-stock-condition")).await;
    buggy.assert_red("orders_within_stock");
    assert!(buggy.cell()["oversold"].as_u64() > Some(0), "{}", buggy.printed);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_that_lies_turns_the_cell_red_although_nothing_else_is_wrong() {
    let buggy = Run::of(GUARDED, Some("lying-audit")).await;
    buggy.assert_red("audit_agrees");
    let cell = buggy.cell();
    assert_eq!(cell["broken_rules"].as_array().map(Vec::len), Some(1), "{}", buggy.printed);
    assert_eq!(cell["observed"], cell["predicted"]);
    assert_eq!(cell["audit"]["consistent"], true, "that is the lie");
}
