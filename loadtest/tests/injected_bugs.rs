//! The laboratory finds injected bugs, and nothing where there is none: quick ones of the table
//! that `make inject-bugs` runs whole. A matrix whose bugs are not caught is red. The service knows
//! the bugs by the same names, and only in a laboratory.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum as _;
use loadtest_lab::cell_axes::InjectedBug;
use serde_json::Value;

const LOADTEST: &str = env!("CARGO_BIN_EXE_loadtest");
/// Six bugs: one shows in the sale, one by a lost COMMIT, one that needs no waiting, one that only
/// buyers with tickets see. The last two show by callers who ask for what they must not get.
const QUICK: [&str; 6] = [
    "release-before-commit",
    "answer-before-commit",
    "lost-wake-up",
    "lost-compensation",
    "no-time-window",
    "admin-without-login",
];

fn seckill() -> PathBuf {
    let path = Path::new(LOADTEST).with_file_name("seckill");
    let missing =
        "is missing; `cargo build --workspace --bins` makes it, and `make test` does that";
    assert!(path.is_file(), "{} {missing}", path.display());
    path
}

/// One run at a time: each is a full load.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Runs in which the load of a cell is a real one once: beside the other tests it may not be.
const TRIES: u32 = 3;

/// What `loadtest` says, its exit code, and the report that it writes.
type Ran = (String, Option<i32>, Value);

fn loadtest<A: AsRef<OsStr>>(arguments: &[A], program: &Path, folder: &Path) -> Ran {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let json = folder.join("report.json");
    let mut command = Command::new(LOADTEST);
    command.args(arguments).arg("--seckill").arg(program).arg("--json").arg(&json);
    let output = command.output().expect("loadtest runs");
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let said = said.join("\n");
    let report = std::fs::read(&json).unwrap_or_else(|error| panic!("{error}: {said}"));
    (said, output.status.code(), serde_json::from_slice(&report).expect("JSON"))
}

/// Runs until the loads of all cells were real ones, or something was found, each time with a new
/// folder, from which come the arguments. The last folder too.
fn until_valid(
    arguments: impl Fn(&Path) -> Vec<String>,
    program: &Path,
    folder: &Path,
) -> (PathBuf, Ran) {
    for tries in 1.. {
        let own = tempfile::tempdir_in(folder).expect("a folder").keep();
        let ran = loadtest(&arguments(&own), program, &own);
        let cells = ran.2["cells"].as_array().expect("cells");
        let has_found = |cell: &Value| {
            cell["died"] == true || cell["broken_rules"].as_array().is_some_and(|it| !it.is_empty())
        };
        let is_real = cells.iter().all(|cell| cell["valid"] == true);
        if tries == TRIES || is_real || cells.iter().any(has_found) {
            return (own, ran);
        }
        println!("not a real load: {}", ran.0);
    }
    unreachable!("it returns");
}

/// Those arguments, and after them that option with a path.
fn with_path(arguments: &[&str], option: &str, path: &Path) -> Vec<String> {
    let path = path.to_str().expect("UTF-8");
    [arguments, &[option, path]].concat().into_iter().map(str::to_owned).collect()
}

#[test]
fn six_injected_bugs_are_caught_and_the_service_without_them_is_clean() {
    let folder = tempfile::tempdir().expect("a folder");
    let bugs = QUICK.join(",");
    let arguments = ["inject-bugs", "--seeds", "1", "--only", &bugs];
    let (said, code, report) = loadtest(&arguments, &seckill(), folder.path());
    for bug in report["bugs"].as_array().expect("a list") {
        let attempt = &bug["attempts"][0];
        assert!(attempt["caught_by"].as_array().is_some_and(|by| !by.is_empty()), "{said}");
        assert_eq!(attempt["clean"], true, "{said}");
    }
    assert!(said.contains("injected 6, caught 6, median rounds "), "{said}");
    assert_eq!(code, Some(0), "{said}");
}

/// A service whose audit lies under that lock, even without the injected bug, where the laboratory
/// wants a clean round.
fn unsound(lock: &str, folder: &Path) -> PathBuf {
    with_flags(lock, "--inject-bug lying-audit", folder)
}

/// A service with further flags under that lock, if no bug is injected into it.
fn with_flags(lock: &str, flags: &str, folder: &Path) -> PathBuf {
    let path = folder.join("seckill");
    let script = format!(
        "#!/bin/sh\nfor word; do\n shift\n \
         [ \"$word\" = --inject-bug-control ] && word=--inject-bug\n \
         set -- \"$@\" \"$word\"\ndone\ncase \" $* \" in\n*' --inject-bug '*) ;;\n\
         *' --lock {lock} '*) set -- \"$@\" {flags} ;;\nesac\nexec {} \"$@\"\n",
        seckill().display()
    );
    std::fs::write(&path, script).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, mode).expect("executable");
    path
}

/// What `loadtest check` says of the only history in a folder, and its exit code.
fn check_the_only_history_in(folder: &Path) -> (String, Option<i32>) {
    let files = std::fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file"));
    let files: Vec<PathBuf> = files.map(|file| file.path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    let output = Command::new(LOADTEST).arg("check").arg(file).output().expect("loadtest runs");
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

#[test]
fn requested_histories_and_those_of_red_cells_can_be_judged_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let cell = &CELL_AND_BUG[..11];
    let started_anew =
        |report: &Value| report["cells"][0]["detail"]["locks"]["started_anew"].clone();
    let beside = |own: &Path| with_path(cell, "--report-dir", &own.join("report"));
    let histories = |own: &Path| own.join("report/histories");

    let faulty = [cell, &["--faults", "kill"]].concat();
    let asking = |own: &Path| with_path(&faulty, "--histories", &own.join("asked"));
    let (own, (said, code, report)) = until_valid(asking, &seckill(), folder.path());
    assert_eq!(code, Some(0), "{said}");
    let (judged, code) = check_the_only_history_in(&own.join("asked"));
    assert_eq!(code, Some(0), "{judged}");
    assert_eq!(started_anew(&report), 1, "the counts of the killed replica are gone");
    let witness = report["cells"][0]["round"]["faults"][0]["witness"].as_str().expect("seen");
    assert!(judged.contains(&format!("fault kill, witness: {witness}")), "{judged}");

    let (own, (said, code, report)) = until_valid(beside, &seckill(), folder.path());
    assert_eq!((code, &report["cells"][0]["history"]), (Some(0), &Value::Null), "{said}");
    assert_eq!(started_anew(&report), 0, "{said}");
    assert!(!histories(&own).exists(), "{said}");

    let unsound = unsound("local", folder.path());
    let (own, (said, code, report)) = until_valid(beside, &unsound, folder.path());
    assert_eq!(code, Some(1), "{said}");
    let kept = report["cells"][0]["history"].as_str().expect("it is red");
    assert!(said.contains(&format!("(history: {kept})")), "{said}");
    let (judged, code) = check_the_only_history_in(&histories(&own));
    assert_eq!(code, Some(1), "{judged}");
    assert!(judged.contains("rule broken: the service's audit agrees with the judge"), "{judged}");

    let idle = with_flags("local", "--limit-orders-address 40", folder.path());
    let own = folder.path();
    let (said, code, report) = loadtest(&beside(own), &idle, own);
    let reasons = report["cells"][0]["invalid_because"].as_array().expect("it is invalid");
    // It is not the first reason if the answers came too fast for many to be in flight.
    let mut reasons = reasons.iter().filter_map(Value::as_str);
    let why = reasons.find(|why| why.ends_with(" of 100 units were sold")).expect(&said);
    assert_eq!(code, Some(1), "{said}");
    let (judged, code) = check_the_only_history_in(&histories(own));
    assert_eq!(code, Some(1), "{judged}");
    let unmet = format!("condition not met: it was a real load ({why})");
    assert!(judged.contains(&unmet), "{judged}");
}

/// One cell, and after it a bug that shows without a fault.
const CELL_AND_BUG: [&str; 15] = [
    "matrix",
    "--locks",
    "local",
    "--scopes",
    "user",
    "--guards",
    "on",
    "--replicas",
    "1",
    "--scenarios",
    "short-work",
    "--inject-bugs",
    "lying-audit",
    "--bug-seeds",
    "1",
];

#[test]
fn a_matrix_is_red_if_something_is_found_without_the_bug_until_the_program_is_another_one() {
    let folder = tempfile::tempdir().expect("a folder");
    // The bug's own lock, which the cell has not.
    let unsound = unsound("redisson", folder.path());
    let state = |own: &Path| own.join("state.jsonl");
    let resume = |own: &Path| with_path(&CELL_AND_BUG, "--resume", &state(own));
    let (own, (said, code, first)) = until_valid(resume, &unsound, folder.path());
    assert!(said.contains("1 cell, 1 as predicted; injected 1, caught 1"), "{said}");
    assert!(said.contains("NOT CLEAN without it: "), "{said}");
    assert_eq!((code, &first["ok"]), (Some(1), &Value::Bool(false)), "{said}");
    let (said, code, second) = loadtest(&resume(&own), &unsound, &own);
    assert!(!said.contains("NOT CLEAN without it: "), "injected again: {said}");
    assert_eq!((code, &second["injected_bugs"]), (Some(1), &first["injected_bugs"]), "{said}");
    assert_eq!(second["resumed"], 1, "{said}");

    // Mended: what another program did says nothing of this one.
    let resume_a_copy = |other: &Path| {
        std::fs::copy(state(&own), state(other)).expect("a copy");
        resume(other)
    };
    let (_, (said, code, mended)) = until_valid(resume_a_copy, &seckill(), folder.path());
    assert_eq!((code, &mended["resumed"]), (Some(0), &Value::from(0)), "{said}");
    assert!(said.contains("injected 1, caught 1") && said.contains("; clean without it"), "{said}");
    let build = |report: &Value| report["versions"]["builds"]["seckill"].clone();
    assert!(build(&mended).is_string() && build(&mended) != build(&first), "{mended}");
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
    for bug in InjectedBug::value_variants() {
        let said = refused(&["--inject-bug", bug.name()]);
        assert!(said.contains("--inject-bug is for the laboratory and needs --lab"), "{said}");
    }
    let said = refused(&["--lab", "--inject-bug", "tulips"]);
    for bug in InjectedBug::value_variants() {
        assert!(said.contains(bug.name()), "{said}");
    }
    assert_eq!(said.matches(", ").count() + 1, InjectedBug::value_variants().len(), "{said}");
}

#[test]
fn a_bug_of_one_lock_is_refused_with_another() {
    let said = refused(&["--lab", "--lock", "redisson", "--inject-bug", "get-then-del"]);
    assert!(said.contains("is a bug of the lock lua-release, not of redisson"), "{said}");
}
