//! A board in a process of its own.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const LOADTEST: &str = env!("CARGO_BIN_EXE_loadtest");
/// The longest time to anything else, on a busy machine.
pub(super) const DEADLINE: Duration = Duration::from_mins(2);
/// Between two looks.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A running `loadtest up --board`.
pub(super) struct BoardProcess {
    pub(super) child: Child,
    lines: Receiver<String>,
    pub(super) url: String,
    folder: PathBuf,
}

impl BoardProcess {
    pub(super) fn start() -> Self {
        let seckill = program();
        let free = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr());
        let port = free.expect("a free port").port().to_string();
        let mut command = Command::new(LOADTEST);
        command.args(["up", "--board", "--replicas", "1", "--port", &port, "--seckill"]);
        let mut child = command.arg(seckill).stdout(Stdio::piped()).spawn().expect("loadtest runs");
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _test_is_over = sender.send(line);
            }
        });
        let (url, folder) = (String::new(), PathBuf::new());
        let mut process = Self { child, lines, url, folder };
        let tokens = process.line_with(" --tokens ");
        let file = tokens.split_whitespace().skip_while(|word| *word != "--tokens").nth(1);
        process.folder =
            Path::new(file.expect("a file")).parent().map(PathBuf::from).expect("a folder");
        let line = process.line_with("race board");
        process.url = line.split_whitespace().last().map(String::from).expect("an address");
        process
    }

    fn line_with(&mut self, words: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("no {words}"));
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Ctrl-C. It must end well, and its servers and their folder must be gone.
    pub(super) async fn interrupt(mut self) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", "INT", &pid]).status().expect("kill(1)");
        assert!(sent.success());
        self.line_with("Taking everything down.");
        let status = self.child.wait().expect("its end");
        assert_eq!(status.code(), Some(0));
        let folder = self.folder.clone();
        until("its folder is gone", DEADLINE, async || !folder.exists()).await;
        let left = processes_in(&folder);
        assert!(left.is_empty(), "still running: {left:?}");
    }
}

impl Drop for BoardProcess {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The service beside this program.
pub(super) fn program() -> PathBuf {
    let seckill = Path::new(LOADTEST).with_file_name("seckill");
    let missing = "is missing; `cargo build --workspace --bins` makes it";
    assert!(seckill.is_file(), "{} {missing}", seckill.display());
    seckill
}

/// Whether this is the long form.
pub(super) fn runs_all_scenarios() -> bool {
    std::env::var("BOARD_SCENARIOS").is_ok_and(|form| form == "all")
}

/// Whether figures are measured against their bars, by a test that runs alone.
pub(super) fn measures_figures() -> bool {
    std::env::var("BOARD_FIGURES").is_ok_and(|form| form == "all")
}

/// Command lines of processes that name the folder.
fn processes_in(folder: &Path) -> Vec<String> {
    let name = folder.display().to_string();
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let lines = all.filter_map(|it| std::fs::read_to_string(it.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(&name) && !line.contains("testbed-reaper")).collect()
}

pub(super) async fn until(what: &str, within: Duration, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < within, "not within {within:?}: {what}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The processes that this one has started, with their command lines.
pub(super) fn children_of(parent: u32) -> impl Iterator<Item = (String, String)> {
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    all.filter_map(move |it| {
        let status = std::fs::read_to_string(it.path().join("status")).ok()?;
        let line = std::fs::read(it.path().join("cmdline")).ok()?;
        let is_child = status.lines().any(|line| line == format!("PPid:\t{parent}"));
        let words = String::from_utf8_lossy(&line).replace('\0', " ");
        is_child.then(|| (it.file_name().to_string_lossy().into_owned(), words))
    })
}
