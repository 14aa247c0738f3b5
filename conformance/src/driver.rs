//! Starts contenders and talks to them.
//!
//! Everything here blocks, and panics if a contender does not answer: it is for tests.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use distlock::LockKind;
use testbed::Program;

use crate::clock::now_ns;
use crate::deadline::WAIT_TIMEOUT;
use crate::protocol::{
    AcquiredLock, Command, Contest, ContestResult, Failure, Line, LockRequest, LossReport, Outcome,
    Request, Response, Setup, TokenSource, WatchReport,
};
use crate::servers::Servers;
use crate::variant::Variant;

/// How long an answer may take beyond what the command itself says.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// A child process that holds locks. It dies with this value, and with the test program.
pub struct Contender {
    program: Program,
    stdin: Mutex<ChildStdin>,
    heard: Arc<Inbox>,
    last_id: AtomicU64,
}

/// What the contender has said.
#[derive(Default)]
struct Inbox {
    open: Mutex<InboxState>,
    more: Condvar,
}

#[derive(Default)]
struct InboxState {
    /// The waiting caller of each command, by its id.
    pending: HashMap<u64, Sender<Line>>,
    news: Vec<Response>,
    ended: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, InboxState> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A command that was sent and has no response yet.
#[must_use = "nothing waits for the answer"]
pub struct PendingResponse<T> {
    answer: Receiver<Line>,
    name: String,
    deadline: Instant,
    read: fn(Response) -> Option<T>,
    _result: PhantomData<T>,
}

impl<T> PendingResponse<T> {
    /// Waits for the answer.
    pub fn wait(self) -> Result<T, Failure> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let name = &self.name;
        let line = match self.answer.recv_timeout(left) {
            Ok(line) => line,
            Err(error) => panic!("{name} does not answer: {error}"),
        };
        match line.response {
            Response::Failed(failure) => Err(failure),
            response => match (self.read)(response.clone()) {
                Some(result) => Ok(result),
                None => panic!("{name} answers something else: {response:?}"),
            },
        }
    }
}

impl Contender {
    /// Starts a contender for locks of that kind on these servers.
    pub fn start(servers: &Servers, kind: LockKind) -> Self {
        Self::start_as(servers, &setup(servers, kind))
    }

    /// Starts a contender that is set up in this way.
    pub fn start_as(servers: &Servers, setup: &Setup) -> Self {
        let name = format!("contender-{}", setup.kind);
        let program = servers.bed().program(&name, &program(), &[]).expect("a contender starts");
        Self::set_up(program, setup)
    }

    /// Starts a contender whose wall clock is ahead of the others' by `offset_ms`, or behind them.
    pub fn start_with_clock(servers: &Servers, setup: &Setup, offset_ms: i64) -> Self {
        let name = format!("contender-{}", setup.kind);
        let (bed, path) = (servers.bed(), program());
        let program = bed.program_with_clock(&name, &path, &[]).expect("a contender starts");
        let contender = Self::set_up(program, setup);
        contender.program.jump_clock(offset_ms).expect("its clock can be set");
        contender
    }

    pub(crate) fn set_up(program: Program, setup: &Setup) -> Self {
        let name = program.name().to_owned();
        let (stdin, stdout) = program.pipes().expect("pipes that were not taken");
        let heard = Arc::<Inbox>::default();
        listen(stdout, Arc::clone(&heard));
        let contender =
            Self { program, stdin: Mutex::new(stdin), heard, last_id: AtomicU64::new(0) };
        contender.write(&serde_json::to_string(setup).expect("plain data"));
        contender.news(ANSWER_TIMEOUT, |response| match response {
            Response::Ready => Some(()),
            Response::Failed(failure) => panic!("{name} does not start: {failure:?}"),
            _ => None,
        });
        contender
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Takes a lock.
    pub fn lock(&self, request: &LockRequest) -> Result<AcquiredLock, Failure> {
        self.lock_later(request).wait()
    }

    /// Begins to take a lock.
    pub fn lock_later(&self, request: &LockRequest) -> PendingResponse<AcquiredLock> {
        let limit = Duration::from_millis(request.wait_ms);
        self.send(Command::Lock(request.clone()), limit, |response| match response {
            Response::Held(held) => Some(held),
            _ => None,
        })
    }

    /// Releases a hold and says how that ended.
    pub fn release(&self, handle: u64) -> Result<Outcome, Failure> {
        self.release_later(handle).wait()
    }

    /// Begins to release a hold.
    pub fn release_later(&self, handle: u64) -> PendingResponse<Outcome> {
        self.send(Command::Release { handle }, Duration::ZERO, |response| match response {
            Response::Released(outcome) => Some(outcome),
            _ => None,
        })
    }

    /// Drops the guard of a hold.
    pub fn drop_guard(&self, handle: u64) {
        self.done(Command::Drop { handle });
    }

    /// Looks whether a hold is lost.
    pub fn is_lost(&self, handle: u64) -> bool {
        let looked =
            self.send(Command::IsLost { handle }, Duration::ZERO, |response| match response {
                Response::Looked { lost } => Some(lost),
                _ => None,
            });
        looked.wait().unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    /// Adds one to the number in the file, unless the hold is lost: then false.
    pub fn effect(&self, handle: u64, file: &Path) -> Result<bool, Failure> {
        let command = Command::Effect { handle, file: file.to_owned() };
        let effect = self.send(command, Duration::ZERO, |response| match response {
            Response::Effected { done } => Some(done),
            _ => None,
        });
        effect.wait()
    }

    /// Reads the stock of a name, or replaces it, and shows the hold's token to its fence first if
    /// told so. None if the fence refuses that.
    pub fn stock(
        &self,
        handle: u64,
        name: &str,
        units: Option<i64>,
        fenced: bool,
    ) -> Result<Option<i64>, Failure> {
        self.stock_after(Command::Stock { handle, name: name.to_owned(), units, fenced })
    }

    /// Takes one unit out of stock in the lock's own transaction; what is left.
    pub fn sell_inside(&self, handle: u64, name: &str) -> Result<Option<i64>, Failure> {
        self.stock_after(Command::SellInside { handle, name: name.to_owned() })
    }

    /// Lets it look at a hold and add one to the number in the file, until the hold is lost;
    /// [`Contender::watched`] reports its outcome.
    pub fn watch(&self, handle: u64, file: &Path, pause: Duration) {
        let pause_us = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        self.done(Command::Watch { handle, file: file.to_owned(), pause_us });
    }

    /// Lets tasks of it contend, at most so long.
    pub fn contend(&self, contest: Contest, limit: Duration) -> PendingResponse<ContestResult> {
        self.send(Command::Contend(contest), limit, |response| match response {
            Response::Contended(contended) => Some(contended),
            _ => None,
        })
    }

    /// Waits until no release of it is under way.
    pub fn flush(&self) {
        self.done(Command::Flush);
    }

    /// Waits for the news that a hold is lost.
    pub fn lost(&self, handle: u64, limit: Duration) -> LossReport {
        self.news(limit, |response| match response {
            Response::Lost(lost) if lost.handle == handle => Some(*lost),
            _ => None,
        })
    }

    /// Takes a lock that is free or will be. A busy machine may make an answer come too late for
    /// it; then it is asked for again.
    #[track_caller]
    pub fn insist(&self, request: &LockRequest) -> AcquiredLock {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            match self.lock(request) {
                Ok(held) => return held,
                Err(failure) => assert!(Instant::now() < deadline, "{request:?}: {failure:?}"),
            }
        }
    }

    /// Whether it has reported that a hold is lost.
    pub fn has_told_of_loss(&self, handle: u64) -> bool {
        let open = self.heard.lock();
        open.news
            .iter()
            .any(|response| matches!(response, Response::Lost(lost) if lost.handle == handle))
    }

    /// Waits for the end of a watch.
    pub fn watched(&self, handle: u64, limit: Duration) -> WatchReport {
        self.news(limit, |response| match response {
            Response::Watched(watched) if watched.handle == handle => Some(*watched),
            _ => None,
        })
    }

    /// Stops it in its tracks (SIGSTOP). Returns an instant at which it stood still.
    pub fn freeze(&self) -> u64 {
        self.program.freeze().expect("it can be frozen");
        now_ns()
    }

    /// Lets it continue (SIGCONT). Returns an instant at which it still stood still.
    pub fn thaw(&self) -> u64 {
        let before = now_ns();
        self.program.thaw().expect("it can be thawed");
        before
    }

    /// Kills it (SIGKILL). Returns an instant before that.
    pub fn kill(&self) -> u64 {
        let before = now_ns();
        self.program.kill().expect("it can be killed");
        before
    }

    fn stock_after(&self, command: Command) -> Result<Option<i64>, Failure> {
        let stock = self.send(command, Duration::ZERO, |response| match response {
            Response::Stock { units } => Some(units),
            _ => None,
        });
        stock.wait()
    }

    fn done(&self, command: Command) {
        let done = self.send(command, Duration::ZERO, |response| match response {
            Response::Done => Some(()),
            _ => None,
        });
        done.wait().unwrap_or_else(|failure| panic!("{failure:?}"));
    }

    pub(crate) fn send<T>(
        &self,
        command: Command,
        limit: Duration,
        read: fn(Response) -> Option<T>,
    ) -> PendingResponse<T> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, answer) = channel();
        let mut open = self.heard.lock();
        assert!(!open.ended, "{} has ended:\n{}", self.program.name(), self.program.log_tail(20));
        open.pending.insert(id, sender);
        drop(open);
        self.write(&serde_json::to_string(&Request { id, command }).expect("plain data"));
        let deadline = Instant::now() + limit + ANSWER_TIMEOUT;
        let name = self.program.name().to_owned();
        PendingResponse { answer, name, deadline, read, _result: PhantomData }
    }

    fn write(&self, line: &str) {
        let mut stdin = self.stdin.lock().unwrap_or_else(PoisonError::into_inner);
        // A contender that has ended is noticed by the answer that does not come.
        let _ended = writeln!(stdin, "{line}");
    }

    /// Waits for something that it says unasked.
    fn news<T>(&self, limit: Duration, find: impl Fn(&Response) -> Option<T>) -> T {
        let deadline = Instant::now() + limit;
        let mut open = self.heard.lock();
        loop {
            if let Some(found) = open.news.iter().find_map(&find) {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let (name, log) = (self.program.name(), self.program.log_tail(20));
            assert!(!open.ended, "{name} has ended:\n{log}");
            assert!(!left.is_zero(), "{name} does not say what it should within {limit:?}\n{log}");
            let waited = self.heard.more.wait_timeout(open, left);
            open = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// How a contender of that kind is set up by default.
pub fn setup(servers: &Servers, kind: LockKind) -> Setup {
    setup_of(servers, kind, Variant::Usual)
}

/// How a contender is set up for a mechanism that is not the kind's usual one.
pub fn setup_of(servers: &Servers, kind: LockKind, variant: Variant) -> Setup {
    Setup {
        kind: kind.to_string(),
        variant,
        addresses: servers.addresses_of(&variant.lives_as(kind)),
        local_queue: true,
        warm_up: true,
        token_source: Some(TokenSource::Folder(servers.token_folder())),
    }
}

/// Cargo puts test programs into a folder beside the programs of their package.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("a program knows its path");
    let folder = test.parent().and_then(Path::parent).expect("a test program has a folder");
    folder.join("contender")
}

/// Hears what it says, until it ends.
fn listen(stdout: ChildStdout, heard: Arc<Inbox>) {
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            let Ok(text) = line else { break };
            let line: Line = match serde_json::from_str(&text) {
                Ok(line) => line,
                Err(error) => panic!("a contender says {text:?}: {error}"),
            };
            let mut open = heard.lock();
            match line.id {
                Some(id) => {
                    // The receiver was dropped if the test has ended.
                    let _gone = open.pending.remove(&id).map(|sender| sender.send(line));
                }
                None => open.news.push(line.response),
            }
            heard.more.notify_all();
        }
        let mut open = heard.lock();
        open.ended = true;
        open.pending.clear();
        heard.more.notify_all();
    });
}
