//! `loadtest learn` on real servers: quick rungs break and are repaired. A lock that does not break
//! and a repair that does are red. The pages of the ladder have every rung in its order.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use loadtest_lab::ladder::{Breach, RUNGS, Rung};
use serde_json::Value;

const LOADTEST: &str = env!("CARGO_BIN_EXE_loadtest");
/// Rungs that take a few seconds each: one without a fault, one with three replicas, one in which
/// no purchase is made.
const QUICK: [&str; 3] = ["no-lock", "jvm-lock", "lua-release"];

fn seckill() -> PathBuf {
    let path = Path::new(LOADTEST).with_file_name("seckill");
    let missing =
        "is missing; `cargo build --workspace --bins` makes it, and `make test` does that";
    assert!(path.is_file(), "{} {missing}", path.display());
    path
}

/// One run at a time: each is a full load.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn learn(arguments: &[&str], program: &Path) -> (String, Output) {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut command = Command::new(LOADTEST);
    command.arg("learn").args(arguments).arg("--seckill").arg(program);
    let output = command.output().expect("loadtest runs");
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    (said.join("\n"), output)
}

#[test]
fn quick_rungs_break_and_are_repaired_and_the_report_has_both_sides_with_a_drawing() {
    for slug in QUICK {
        let folder = tempfile::tempdir().expect("a folder");
        let report_dir = folder.path().to_str().expect("UTF-8");
        let arguments = [slug, "--seed", "5", "--report-dir", report_dir];
        let (said, output) = learn(&arguments, &seckill());
        assert_eq!(output.status.code(), Some(0), "{said}");
        for part in ["will break", "BROKE, as it should", "HELD, as it should", "loadtest learn "] {
            assert!(said.contains(part), "{slug}: {part} in {said}");
        }
        let json = std::fs::read(folder.path().join("matrix.json")).expect("a report");
        let report: Value = serde_json::from_slice(&json).expect("JSON");
        let repaired = format!("{slug}-repaired");
        let rungs: Vec<&Value> =
            report["cells"].as_array().expect("cells").iter().map(|cell| &cell["rung"]).collect();
        assert_eq!(rungs, [slug, &repaired], "{said}");
        assert_eq!(report["ok"], true);
        let page = std::fs::read_to_string(folder.path().join("index.html")).expect("a page");
        for side in [slug, &repaired] {
            assert!(page.contains(&format!("id=\"{side}\"")), "{side} is on it");
            assert!(page.contains(&format!("data-plot=\"{side}\"")), "{side} is drawn");
        }
        let sold_wrongly = Rung::named(slug).is_some_and(|rung| rung.breach != Breach::NoPurchase);
        let has_bars = page.contains("<figure class=\"timeline\">");
        assert_eq!(has_bars, sold_wrongly, "{slug}: the requests that prove it are drawn");
        let again = format!("loadtest learn {slug} --seed 5");
        assert!(page.contains(&again), "{again}");
    }
}

/// A service that takes another lock than it is told to.
fn with_other_lock(told: &str, taken: &str, folder: &Path) -> PathBuf {
    let path = folder.join("seckill");
    let script = format!(
        "#!/bin/sh\nfor word; do\n shift\n [ \"$word\" = {told} ] && word={taken}\n \
         set -- \"$@\" \"$word\"\ndone\nexec {} \"$@\"\n",
        seckill().display()
    );
    std::fs::write(&path, script).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, mode).expect("executable");
    path
}

#[test]
fn a_lock_that_does_not_break_and_a_repair_that_does_are_red() {
    for (told, taken, verdict) in
        [("none", "local", "NOT SHOWN"), ("local", "none", "FAILED: the repair")]
    {
        let folder = tempfile::tempdir().expect("a folder");
        let program = with_other_lock(told, taken, folder.path());
        let (said, output) = learn(&["no-lock"], &program);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(verdict), "{said}");
    }
}

#[test]
fn without_a_rung_the_ladder_is_listed_and_an_unknown_one_is_a_usage_error() {
    let output = Command::new(LOADTEST).arg("learn").output().expect("loadtest runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    for rung in RUNGS {
        assert!(said.contains(&format!("{} {}", rung.number(), rung.slug)), "{said}");
    }
    let output = Command::new(LOADTEST).args(["learn", "spinlock"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("possible values: no-lock, jvm-lock"), "{said}");
}

/// The names of the rungs in a page's headings, and its commands, each in the order of the page.
fn rungs_of_page(page: &str) -> (Vec<String>, Vec<String>) {
    let headings = page.lines().filter_map(|line| line.strip_prefix("## "));
    let slugs = headings.filter_map(|line| line.split_once(". ")).map(|(_, slug)| slug.to_owned());
    let commands = page.lines().filter(|line| line.starts_with("loadtest learn "));
    // Those of the introduction have a comment.
    let commands = commands.filter(|line| !line.contains('#'));
    (slugs.collect(), commands.map(str::to_owned).collect())
}

#[test]
fn the_pages_of_both_languages_have_every_rung_and_its_command_in_the_order_of_the_ladder() {
    let slugs: Vec<&str> = RUNGS.iter().map(|rung| rung.slug).collect();
    let commands: Vec<String> =
        RUNGS.iter().map(|rung| format!("loadtest learn {}", rung.slug)).collect();
    for path in ["docs/learn.md", "docs/zh/learn.md"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
        let page = std::fs::read_to_string(file).expect("the page");
        assert_eq!(
            rungs_of_page(&page),
            (slugs.iter().map(ToString::to_string).collect(), commands.clone()),
            "{path}"
        );
    }
}
