//! The smoke run of the matrix on real servers: every kind of lock and every fault really runs, and
//! comes out as predicted. Without `SMOKE_CELLS=all` some of its cells are run.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clap::ValueEnum as _;
use loadtest_lab::faults::FaultKind;
use loadtest_lab::lock::Lock;
use serde_json::Value;
use testbed::PacketLink;

/// One run at a time: a cell is a full load.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Runs in which each cell is valid once.
const TRIES: usize = 3;

/// Cells of the short form, the same each time. In one of them packets are lost, if they can be.
const SOME_CELLS: usize = 13;

const LOADTEST: &str = env!("CARGO_BIN_EXE_loadtest");

fn seckill() -> PathBuf {
    let path = Path::new(LOADTEST).with_file_name("seckill");
    let missing =
        "is missing; `cargo build --workspace --bins` makes it, and `make test` does that";
    assert!(path.is_file(), "{} {missing}", path.display());
    path
}

fn matrix(flags: &[&str], json: &Path) -> (Output, Value) {
    matrix_of(&seckill(), flags, json)
}

fn matrix_of(program: &Path, flags: &[&str], json: &Path) -> (Output, Value) {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut command = Command::new(LOADTEST);
    command.arg("matrix").args(flags).arg("--seckill").arg(program).arg("--json").arg(json);
    let output = command.output().expect("loadtest runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = std::fs::read(json).unwrap_or_else(|error| panic!("{error}: {said}"));
    (output, serde_json::from_slice(&report).expect("JSON"))
}

fn names<'a>(cells: &'a [&Value], member: &str) -> BTreeSet<&'a str> {
    cells.iter().filter_map(|cell| cell[member].as_str()).collect()
}

/// A run whose state is kept: a cell whose load was not real beside the other tests runs again, and
/// no other cell does.
fn until_valid(flags: &[&str], json: &Path) -> (Option<i32>, Value, String) {
    for tries in 1.. {
        let (output, report) = matrix(flags, json);
        let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        println!("{}", said.join("\n"));
        let cells = report["cells"].as_array().expect("cells");
        if tries == TRIES || cells.iter().all(|cell| cell["valid"] == true) {
            return (output.status.code(), report, said[0].clone().into_owned());
        }
    }
    unreachable!("it returns");
}

/// Each fault with a witness of its effect.
fn every_lock_and_every_fault_ran(ran: &[&Value]) {
    let locks = Lock::value_variants().iter().map(|lock| lock.name()).collect::<BTreeSet<_>>();
    assert_eq!(names(ran, "lock"), locks);
    // A machine that can lose no packets has no cells of that.
    let loses_packets = PacketLink::check(Path::new(LOADTEST)).is_ok();
    let faults = FaultKind::ALL.into_iter();
    let faults =
        faults.filter(|fault| loses_packets || !matches!(fault, FaultKind::LosePackets(_)));
    let faults = faults.map(FaultKind::name).collect::<BTreeSet<_>>();
    let seen = |cell: &&&Value| {
        let strikes = cell["round"]["faults"].as_array();
        strikes.is_some_and(|strikes| {
            !strikes.is_empty() && strikes.iter().all(|strike| strike["witness"] != "")
        })
    };
    let struck: Vec<&Value> = ran.iter().filter(seen).copied().collect();
    assert_eq!(names(&struck, "fault"), faults);
}

#[test]
fn the_smoke_run_is_as_predicted_and_the_whole_one_has_every_lock_and_every_fault() {
    let folder = tempfile::tempdir().expect("a folder");
    let [json, state] = ["smoke.json", "state.jsonl"].map(|name| folder.path().join(name));
    let has_all_cells = std::env::var("SMOKE_CELLS").is_ok_and(|form| form == "all");
    let (count, state) = (SOME_CELLS.to_string(), state.to_str().expect("UTF-8"));
    let mut flags = vec!["--smoke", "--resume", state];
    if !has_all_cells {
        flags.extend(["--sample", &count]);
    }
    let (code, report, said) = until_valid(&flags, &json);
    if let Some(late) = said.lines().find(|line| line.contains("TOO SLOW")) {
        // Past what the harness keeps of a test that is green.
        writeln!(std::io::stderr(), "{late}").expect("written");
    }
    let cells = report["cells"].as_array().expect("cells");
    let ran: Vec<&Value> =
        cells.iter().filter(|cell| cell["requests"].as_u64() > Some(0)).collect();
    assert_eq!(ran.len(), cells.len());
    if has_all_cells {
        every_lock_and_every_fault_ran(&ran);
    } else {
        let left_out = report["not_generated"].as_array().expect("combinations").iter();
        let left_out: u64 = left_out.filter_map(|one| one["combinations"].as_u64()).sum();
        assert_eq!(cells.len() as u64 + left_out, SOME_CELLS as u64);
    }
    assert_eq!(code, Some(0));
    assert_eq!(report["summary"]["as_predicted"], cells.len());
}

#[test]
fn each_topology_sells_as_predicted_and_a_queue_survives_moving_slots_and_a_lost_master() {
    let folder = tempfile::tempdir().expect("a folder");
    let direct = |lock, guards, topologies| {
        let lock = ["--locks", lock, "--scopes", "voucher", "--scenarios", "short-work"];
        [&lock[..], &["--guards", guards, "--topologies", topologies]].concat()
    };
    let queued = ["--mode", "queued", "--locks", "none", "--guards", "on"];
    let faults = "slot-moves,cluster-failover,sentinel-failover";
    let moves = ["--topologies", "redis-cluster,sentinel", "--faults", faults];
    let runs = [
        // Without guards a lock that fails shows: it is all there is.
        (4, direct("redisson", "off", "sentinel,redis-cluster,semi-sync,async")),
        (2, direct("zookeeper", "off", "ensemble,replicated")),
        (2, direct("redisson", "on", "galera,sharded")),
        (3, [&queued[..], &moves].concat()),
    ];
    for (number, (count, axes)) in runs.iter().enumerate() {
        let path = |name: &str| folder.path().join(format!("{number}-{name}"));
        let (state, json) = (path("state.jsonl"), path("matrix.json"));
        let state = ["--resume", state.to_str().expect("UTF-8")];
        let flags = [&axes[..], &["--replicas", "2"], &state].concat();
        let (code, report, said) = until_valid(&flags, &json);
        let cells = report["cells"].as_array().expect("cells");
        let sold = |cell: &&Value| cell["requests"].as_u64() > Some(0);
        assert_eq!((cells.iter().filter(sold).count(), cells.len()), (*count, *count), "{said}");
        assert_eq!(report["summary"]["as_predicted"], *count, "{said}");
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn a_finished_cell_is_not_run_again_unless_its_seed_is_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let (state, json) = (path("state.jsonl"), path("matrix.json"));
    let state = state.to_str().expect("UTF-8");
    let cell = ["--locks", "local", "--scopes", "user", "--guards", "on", "--faults", "hang-up"];
    let run = |seed: &str| {
        let (_, report) =
            matrix(&[&cell[..], &["--resume", state, "--seed", seed]].concat(), &json);
        (report["resumed"].as_u64().expect("a count"), report["cells"][0].clone())
    };
    let (resumed, first) = run("1");
    assert_eq!(resumed, 0);
    assert!(first["requests"].as_u64() > Some(0), "{first}");
    assert_eq!(run("1"), (1, first.clone()));
    let (resumed, other) = run("2");
    assert_eq!(resumed, 0);
    assert_ne!(other["round"]["schedule"], first["round"]["schedule"]);
}

/// A service that holds each lock for the whole voucher, whatever it is told.
fn cautious(folder: &Path) -> PathBuf {
    let path = folder.join("seckill");
    let script = format!(
        "#!/bin/sh\nfor word do\n  shift\n  [ \"$word\" = user ] && word=voucher\n  \
         set -- \"$@\" \"$word\"\ndone\nexec {} \"$@\"\n",
        seckill().display()
    );
    std::fs::write(&path, script).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, mode).expect("executable");
    path
}

#[test]
fn a_cell_that_does_not_show_its_prediction_has_three_tries_and_fails_the_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let cell = ["--locks", "local", "--scopes", "user", "--guards", "off", "--replicas", "1"];
    let flags = [&cell[..], &["--scenarios", "short-work", "--seed", "5"]].concat();
    let program = cautious(folder.path());
    let (output, report) = matrix_of(&program, &flags, &path("matrix.json"));
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat();
    let cell = &report["cells"][0];
    assert_eq!((&cell["valid"], &cell["observed"]["oversells"]), (&true.into(), &false.into()));
    // The third try has the third seed, or its schedule would be that of the first.
    assert_eq!((&cell["tries"], &cell["seed"]), (&3.into(), &7.into()), "{said}");
    assert!(said.contains("NOT SHOWN"), "{said}");
    assert_eq!((output.status.code(), &report["ok"]), (Some(1), &false.into()), "{said}");
}
