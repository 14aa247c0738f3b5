//! `seckill lock run`: a command under a lock. Why it may not run is in `lock_codes`.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::{CommandOutput, run};
use crate::fleet::SECKILL;
use crate::support::Place;

const DEADLINE: Duration = Duration::from_mins(1);

/// Where the locks of a test live.
pub(super) struct Bench {
    pub(super) place: Place,
    /// Of the lock; some servers are those of other tests as well.
    pub(super) name: String,
    pub(super) folder: TempDir,
}

impl Bench {
    pub(super) fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        let name = format!("nightly report {}", folder.path().display());
        Self { place: Place::fresh(), name, folder }
    }

    pub(super) fn env(&self) -> [(&str, &str); 4] {
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let Place { database_url, redis_url } = &self.place;
        let timeout_ms = self.place.redis_timeout_ms();
        [
            ("DATABASE_URL", database_url),
            ("REDIS_URL", redis_url),
            ("REDIS_TIMEOUT_MS", timeout_ms),
            ("PATH", path),
        ]
    }

    /// A run of a shell's script in the bench's folder, to its end.
    pub(super) fn run(&self, flags: &[&str], script: &str) -> CommandOutput {
        run(&self.line(flags, script).iter().map(String::as_str).collect::<Vec<_>>(), &self.env())
    }

    /// Starts the run without waiting for its end.
    pub(super) fn start(&self, flags: &[&str], script: &str) -> RunningCommand {
        self.start_line(&self.line(flags, script))
    }

    /// Starts the program with these arguments, without waiting for its end.
    pub(super) fn start_line(&self, line: &[String]) -> RunningCommand {
        let mut command = Command::new(SECKILL);
        command.args(line).env_clear().envs(self.env());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        RunningCommand(Some(command.spawn().expect("the program")))
    }

    fn line(&self, flags: &[&str], script: &str) -> Vec<String> {
        let script = format!("cd '{}'; {script}", self.folder.path().display());
        let line =
            [&["lock", "run", "--name", &self.name], flags, &["--", "sh", "-c", &script]].concat();
        line.into_iter().map(str::to_owned).collect()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits until the script has made that file.
    pub(super) fn until_there(&self, name: &str) {
        let path = self.path(name);
        until(&format!("{} is made", path.display()), || path.exists());
    }

    /// The keys in Redis, without those that only say how a release ended.
    fn keys(&self) -> Vec<String> {
        let keys: Vec<String> = self.redis(&["KEYS", "*"]);
        keys.into_iter().filter(|key| !key.contains("latch")).collect()
    }

    pub(super) fn redis<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let client = redis::Client::open(self.place.redis_url.as_str()).expect("a URL");
        let mut connection = client.get_connection().expect("Redis");
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]).query(&mut connection).expect("an answer")
    }
}

pub(super) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A run on its way; one that is dropped is killed.
pub(super) struct RunningCommand(Option<Child>);

impl RunningCommand {
    pub(super) fn id(&self) -> u32 {
        self.0.as_ref().expect("it runs").id()
    }

    pub(super) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.id()).expect("a number");
        kill(Pid::from_raw(id), signal).expect("it is there");
    }

    /// Whether the process has a handler for that signal.
    fn hears(&self, signal: Signal) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).expect("it runs");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.expect("a mask").trim(), 16).expect("a mask");
        caught & (1 << (signal as i32 - 1)) != 0
    }

    pub(super) fn end(mut self) -> CommandOutput {
        let mut child = self.0.take().expect("it runs");
        let mut status: Option<ExitStatus> = None;
        until("the run ends", || {
            status = child.try_wait().expect("a status");
            status.is_some()
        });
        let (mut stdout, mut stderr) = (String::new(), String::new());
        child.stdout.take().expect("piped").read_to_string(&mut stdout).expect("text");
        child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("text");
        CommandOutput { code: status.and_then(|status| status.code()), stdout, stderr }
    }
}

/// The command of a run that is killed lives on in a group of its own. So the run is asked first.
impl Drop for RunningCommand {
    fn drop(&mut self) {
        if self.0.is_some() {
            self.signal(Signal::SIGTERM);
        }
        if let Some(mut child) = self.0.take() {
            let deadline = Instant::now() + Duration::from_secs(5);
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
            let _gone = child.kill();
            let _gone = child.wait();
        }
    }
}

pub(super) const LUA: [&str; 2] = ["--kind", "lua-release"];

#[test]
fn the_command_gets_its_arguments_and_its_exit_code_is_handed_through() {
    let bench = Bench::new();
    for code in [0, 1, 7, 75, 255] {
        let ended = bench.run(&LUA, &format!("echo said; exit {code}"));
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(code), "said\n"), "{ended:?}");
        assert_eq!(ended.stderr, "");
    }
    for (signal, code) in [("KILL", 137), ("TERM", 143), ("INT", 130)] {
        let ended = bench.run(&LUA, &format!("kill -{signal} $$; sleep 5"));
        assert_eq!(ended.code, Some(code), "{ended:?}");
    }
    let line = ["lock", "run", "--kind", "lua-release", "--name", &bench.name, "--"];
    let printed =
        run(&[&line[..], &["printf", "%s|", "--wait", "a b", "--"]].concat(), &bench.env());
    assert_eq!(printed.fine(), "--wait|a b|--|");
    let nowhere = run(&[&line[..], &["no-such-command"]].concat(), &bench.env());
    assert_eq!(nowhere.code, Some(127), "{nowhere:?}");
    assert!(nowhere.stderr.starts_with("seckill: no-such-command: "), "{nowhere:?}");
    let folder = run(&[&line[..], &["/"]].concat(), &bench.env());
    assert_eq!(folder.code, Some(126), "{folder:?}");
    assert_eq!(bench.keys(), [""; 0], "every lock was released");
}

#[test]
fn a_held_lock_is_waited_for_and_then_given_up() {
    let bench = Bench::new();
    let holder = bench.start(&LUA, "touch held; while [ ! -e done ]; do sleep 0.01; done");
    bench.until_there("held");
    for (wait, least) in [("0", 0), ("300ms", 300)] {
        let started = Instant::now();
        let ended = bench.run(&[&LUA[..], &["--wait", wait]].concat(), "touch entered");
        assert_eq!(ended.code, Some(75), "{ended:?}");
        assert!(ended.stderr.contains("still held by another owner"), "{ended:?}");
        assert!(started.elapsed() >= Duration::from_millis(least));
        assert!(!bench.path("entered").exists(), "it ran without the lock");
    }
    // A run that is told to end while it waits leaves nothing.
    let waiting = bench.start(&LUA, "touch entered");
    until("it hears signals", || waiting.hears(Signal::SIGTERM));
    waiting.signal(Signal::SIGTERM);
    assert_eq!(waiting.end().code, Some(143));
    let heir = bench.start(&LUA, "touch entered");
    fs::write(bench.path("done"), "").expect("written");
    assert_eq!(holder.end().code, Some(0));
    assert_eq!(heir.end().code, Some(0));
    assert!(bench.path("entered").exists());
    assert_eq!(bench.keys(), [""; 0]);
}

#[test]
fn runs_of_one_name_exclude_each_other() {
    let bench = Bench::new();
    let script = "for i in 1 2 3; do echo $$ >> log; sleep 0.05; done";
    let runs: Vec<_> = (0..4).map(|_| bench.start(&LUA, script)).collect();
    for run in runs {
        assert_eq!(run.end().code, Some(0));
    }
    let log = fs::read_to_string(bench.path("log")).expect("a log");
    let ids: Vec<&str> = log.lines().collect();
    assert_eq!(ids.len(), 12, "{log}");
    assert!(ids.chunks(3).all(|three| three.iter().all(|id| *id == three[0])), "{log}");
}

/// A script that will not end, and says that it was asked to. Its heartbeat is in `beats`.
pub(super) const STUBBORN: &str = "trap 'date +%s%N >> term' TERM; \
     while :; do date +%s%N >> beats; sleep 0.02; done";

pub(super) fn now_ns() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    since_1970.as_nanos().try_into().expect("before 2554")
}

pub(super) fn times(path: &Path) -> Vec<u64> {
    let text = fs::read_to_string(path).unwrap_or_else(|_| panic!("no {}", path.display()));
    // A line that was cut off by SIGKILL is none.
    text.lines().filter(|line| line.len() == 19).map(|line| line.parse().expect("ns")).collect()
}

#[test]
fn signals_reach_all_that_the_command_has_started_and_the_lock_is_freed_after_it() {
    let bench = Bench::new();
    let script = "trap 'echo parent >> got; wait; exit 5' TERM; \
         (trap 'sleep 0.3; echo child >> got; exit' TERM; touch ready; \
          while :; do sleep 0.02; done) & wait";
    let running = bench.start(&LUA, script);
    bench.until_there("ready");
    running.signal(Signal::SIGTERM);
    until("the parent has its signal", || bench.path("got").exists());
    assert_eq!(bench.keys(), [&bench.name[..]], "the lock is held until the command has ended");
    assert_eq!(running.end().code, Some(5));
    let got = fs::read_to_string(bench.path("got")).expect("both wrote");
    assert_eq!(got, "parent\nchild\n");
    assert_eq!(bench.keys(), [""; 0]);
}

#[test]
fn a_command_at_a_terminal_reads_from_it_and_is_not_stopped() {
    let bench = Bench::new();
    let script = "read line; echo \"got $line\"; touch ready; read line; echo \"got $line\"";
    let line = bench.line(&LUA, script).iter().map(|word| shell_word(word)).collect::<Vec<_>>();
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &format!("{} {}", shell_word(SECKILL), line.join(" ")), "/dev/null"]);
    terminal.env_clear().envs(bench.env()).env("SHELL", "/bin/sh");
    terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = terminal.spawn().expect("script(1) of bsdutils");
    let mut keys = child.stdin.take().expect("piped");
    let running = RunningCommand(Some(child));
    keys.write_all(b"one\n").expect("typed");
    bench.until_there("ready");
    // Ctrl-Z, and on it goes.
    keys.write_all(b"\x1a").expect("typed");
    keys.write_all(b"two\n").expect("typed");
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("got one") && ended.stdout.contains("got two"), "{ended:?}");
}

fn shell_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[test]
fn a_run_that_is_killed_itself_leaves_its_command_at_work_and_the_lock_to_its_lease() {
    let bench = Bench::new();
    let work =
        "touch began; for i in $(seq 400); do [ -e go ] && break; sleep 0.05; done; touch done";
    let doomed = bench.start(&["--lease", "6s"], work);
    bench.until_there("began");
    doomed.signal(Signal::SIGKILL);
    assert_eq!(bench.run(&["--wait", "0"], "touch go").code, Some(75), "the lease has not ended");
    // Beside the command that is still at work, as the help says.
    assert_eq!(bench.run(&["--wait", "20s"], "touch go").code, Some(0));
    bench.until_there("done");
}
