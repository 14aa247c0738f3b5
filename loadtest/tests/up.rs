//! `loadtest up` on real servers. What it prints works when it is pasted, a replica that dies is
//! reported and leaves no zombie, and a crowd shows what the chosen lock does.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const LOADTEST: &str = env!("CARGO_BIN_EXE_loadtest");
/// The longest time from one awaited line to the next: a start with ZooKeeper, on a busy machine.
const LINE_WITHIN: Duration = Duration::from_mins(2);
/// One cluster at a time.
static TURN: Mutex<()> = Mutex::new(());

fn seckill() -> PathBuf {
    let path = Path::new(LOADTEST).with_file_name("seckill");
    let missing =
        "is missing; `cargo build --workspace --bins` makes it, and `make test` does that";
    assert!(path.is_file(), "{} {missing}", path.display());
    path
}

/// A running `loadtest up`, and what it has printed so far.
struct UpProcess {
    child: Child,
    lines: Receiver<String>,
    printed: String,
}

impl UpProcess {
    fn start(flags: &[&str]) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr());
        let port = free.expect("a free port").port().to_string();
        let mut command = Command::new(LOADTEST);
        command.args(["up", "--port", &port, "--seckill"]).arg(seckill()).args(flags);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("loadtest runs");
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _test_is_over = sender.send(line);
            }
        });
        Self { child, lines, printed: String::new() }
    }

    /// The next line that holds all these words.
    fn line_with(&mut self, words: &[&str]) -> String {
        let deadline = Instant::now() + LINE_WITHIN;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("no line with {words:?} in\n{}", self.printed);
            };
            writeln!(self.printed, "{line}").expect("a string");
            if words.iter().all(|word| line.contains(word)) {
                return line;
            }
        }
    }

    /// The lines to paste that begin so, as a script.
    fn pasted(&self, begin: &str) -> String {
        let lines = self.printed.split_inclusive('\n');
        lines.filter(|line| line.starts_with(begin)).collect()
    }

    /// The process of that replica, and its command line.
    fn replica(&self, name: &str) -> (String, String) {
        let children = format!("/proc/{}/task", self.child.id());
        let threads = std::fs::read_dir(children).expect("its threads").flatten();
        let children =
            threads.filter_map(|it| std::fs::read_to_string(it.path().join("children")).ok());
        let children: String = children.collect();
        let command_line = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
        let all = children
            .split_whitespace()
            .filter_map(|pid| Some((pid.to_owned(), command_line(pid).ok()?.replace('\0', " "))));
        let named = format!("--replica-id {name} ");
        let found = all.into_iter().find(|(_, line)| line.contains(&named));
        found.unwrap_or_else(|| panic!("no replica {name}"))
    }

    /// Ctrl-C; it must end well.
    fn interrupt(mut self) {
        signal("INT", &self.child.id().to_string());
        self.line_with(&["Taking everything down."]);
        let status = self.child.wait().expect("its end");
        assert_eq!(status.code(), Some(0), "{}", self.printed);
    }
}

impl Drop for UpProcess {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn signal(name: &str, pid: &str) {
    let sent = Command::new("kill").args(["-s", name, pid]).status().expect("kill(1)");
    assert!(sent.success(), "{name} to {pid}");
}

fn sh(script: &str) -> Output {
    let mut command = Command::new("sh");
    command.args(["-e", "-c", script]).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.output().expect("a shell")
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat()
}

#[test]
fn what_is_printed_can_be_pasted_and_used_at_once() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut up = UpProcess::start(&["--replicas", "1", "--zookeeper", "--etcd", "--nats"]);
    let load = up.line_with(&[" run --voucher "]);
    let exports = up.pasted("export ");
    let seckill = seckill().display().to_string();
    let under_lock = up.pasted(&seckill);
    let ping = up.pasted("redis-cli ");
    assert!(under_lock.contains("lock run --name") && !ping.is_empty(), "{}", up.printed);
    let mut script = format!("{exports}{under_lock}{ping}");
    for kind in ["mysql-named", "zookeeper", "etcd", "nats"] {
        writeln!(script, "{seckill} lock run --kind {kind} --name a -- echo in-{kind}")
            .expect("a string");
    }
    let output = sh(&script);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "under the lock\nPONG\nin-mysql-named\nin-zookeeper\nin-etcd\nin-nats\n",
        "{script}{}",
        text(&output)
    );
    // What `cargo run` would run.
    let example = up.pasted("cargo run -p distlock --example guard -- ");
    let built = Path::new(LOADTEST).with_file_name("examples").join("guard");
    let guard =
        example.replace("cargo run -p distlock --example guard --", built.to_str().expect("text"));
    let guard = text(&sh(&format!("{exports}{guard}")));
    assert!(guard.contains("step 3, as ") && guard.contains("released: "), "{example}{guard}");
    let first = sh(&format!("{exports}{load}"));
    assert!(text(&first).contains("Verdict: good"), "{}", text(&first));
    // All is sold then.
    let second = text(&sh(&format!("{exports}{load} || true")));
    let hint = "\"Authorization: Bearer $ADMIN\" --json '{\"units\":100}'` adds some";
    assert!(second.contains("/api/admin/vouchers/1/stock") && second.contains(hint), "{second}");
    up.interrupt();
}

#[test]
fn the_etcd_of_the_replicas_lock_is_the_only_one() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut up = UpProcess::start(&["--replicas", "1", "--etcd", "--lock", "etcd"]);
    let load = up.line_with(&[" run --voucher "]);
    assert_eq!(up.pasted("export ETCD_ENDPOINTS=").lines().count(), 1, "{}", up.printed);
    let sold = sh(&format!("{}{load}", up.pasted("export ")));
    assert!(text(&sold).contains("Verdict: good"), "{}", text(&sold));
    up.interrupt();
}

#[test]
fn a_replica_that_dies_is_reported_and_reaped() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut up = UpProcess::start(&["--replicas", "2", "--scope", "voucher"]);
    up.line_with(&[" run --voucher "]);
    for (name, rest) in [("r2", "HAProxy uses 1 replica"), ("r1", "no replica is left, so HAProxy")]
    {
        let (pid, command_line) = up.replica(name);
        assert!(command_line.contains("--lock redisson --lock-scope voucher"), "{command_line}");
        signal("KILL", &pid);
        up.line_with(&[&format!("{name} (http://"), "ended (signal: 9", rest, "its log: "]);
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "a zombie is left");
    }
    up.interrupt();
}

#[test]
fn a_crowd_shows_what_the_chosen_lock_is_worth() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let flags = ["--lock", "none", "--guards", "off", "--replicas", "2", "--crowd", "300"];
    let mut up = UpProcess::start(&flags);
    up.line_with(&["none per user, guards off, replicas 2"]);
    let came = up.line_with(&["The crowd: 300 buyers wanted 100 units"]);
    let (_, oversold) = came.rsplit_once("units oversold: ").expect("the figure");
    let oversold: u64 = oversold.trim_end_matches('.').parse().expect("a number");
    assert!(oversold > 0, "{came}");
    up.interrupt();
}
