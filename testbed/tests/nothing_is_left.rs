//! However the owner of a bed ends, its processes and its folder are gone soon afterwards.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{STAND_IN, await_that, is_alive, processes_with};

/// How long the cleaning up may take.
const LIMIT: Duration = Duration::from_secs(10);

/// A process that owns a bed with one server of each kind.
struct Owner {
    child: Child,
    stdout: BufReader<ChildStdout>,
    dir: PathBuf,
    pids: Vec<u32>,
}

impl Owner {
    fn start(how: &str) -> Self {
        // A shell's background jobs ignore SIGINT, and so would the owner if this runs in one.
        let mut child = Command::new("env")
            .args(["--default-signal=INT", STAND_IN, "own", how])
            // As at a terminal, where Ctrl-C goes to a whole process group.
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(if how == "panic" { Stdio::null() } else { Stdio::inherit() })
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let mut words = line.split_whitespace();
        let dir = PathBuf::from(words.next().expect("the bed's folder"));
        let pids: Vec<u32> = words.map(|pid| pid.parse().unwrap()).collect();
        assert_eq!(pids.len(), 5, "{line}");
        Self { child, stdout, dir, pids }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    fn assert_that_nothing_is_left(&self) {
        for pid in &self.pids {
            await_that(&format!("end of process {pid}"), LIMIT, || !is_alive(*pid));
        }
        await_that("end of the stray grandchild", LIMIT, || processes_with(&self.dir).is_empty());
        await_that("removal of the folder", LIMIT, || !self.dir.exists());
    }
}

#[test]
fn nothing_is_left_after_success() {
    let mut owner = Owner::start("return");
    assert!(owner.wait().success());
    // Not even for a moment: dropping the bed waits for the end.
    assert!(!owner.dir.exists());
    owner.assert_that_nothing_is_left();
}

#[test]
fn nothing_is_left_after_a_panic() {
    let mut owner = Owner::start("panic");
    assert_eq!(owner.wait().code(), Some(101));
    assert!(!owner.dir.exists());
    owner.assert_that_nothing_is_left();
}

#[test]
fn nothing_is_left_after_exit_without_drop() {
    let mut owner = Owner::start("exit");
    assert!(owner.wait().success());
    owner.assert_that_nothing_is_left();
}

#[test]
fn nothing_is_left_after_ctrl_c() {
    let mut owner = Owner::start("wait");
    kill(Pid::from_raw(-owner.pid().as_raw()), Signal::SIGINT).unwrap();
    assert_eq!(owner.wait().signal(), Some(Signal::SIGINT as i32));
    owner.assert_that_nothing_is_left();
}

#[test]
fn nothing_is_left_after_sigkill_of_the_owner() {
    let mut owner = Owner::start("wait");
    assert!(!processes_with(&owner.dir).is_empty(), "the test sees the processes");
    kill(owner.pid(), Signal::SIGKILL).unwrap();
    assert_eq!(owner.wait().signal(), Some(Signal::SIGKILL as i32));
    owner.assert_that_nothing_is_left();
}

#[test]
fn nothing_is_left_of_frozen_servers_after_sigkill_of_the_owner() {
    let mut owner = Owner::start("frozen");
    let mut line = String::new();
    owner.stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "frozen\n");
    kill(owner.pid(), Signal::SIGKILL).unwrap();
    owner.wait();
    owner.assert_that_nothing_is_left();
}

#[test]
fn servers_die_with_the_owner_even_if_the_reaper_was_killed_before() {
    let mut owner = Owner::start("wait");
    let reapers: Vec<u32> = processes_with(&owner.dir)
        .into_iter()
        .filter(|pid| {
            let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&cmdline).contains("testbed-reaper")
        })
        .collect();
    assert_eq!(reapers.len(), 1, "{reapers:?}");
    kill(Pid::from_raw(reapers[0].cast_signed()), Signal::SIGKILL).unwrap();
    kill(owner.pid(), Signal::SIGKILL).unwrap();
    owner.wait();
    for pid in &owner.pids {
        await_that(&format!("end of process {pid}"), LIMIT, || !is_alive(*pid));
    }
    // The stray grandchild and the folder are the reaper's business; here they are ours.
    for pid in processes_with(&owner.dir) {
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    }
    fs::remove_dir_all(&owner.dir).unwrap();
}
