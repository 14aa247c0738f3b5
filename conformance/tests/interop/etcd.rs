//! The kind `etcd` and the mutex of etcd's Go package `concurrency` on one server. Its program is
//! `conformance/interop/etcd`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout};
use std::time::Duration;

use conformance::protocol::LockRequest;
use conformance::{Contender, Servers, WAIT_TIMEOUT, fresh_name};
use distlock::{
    Guard, LockError, LockKind, LockName, LockOptions, LockWaiters, Locks, Release, Token, locker,
};
use testbed::Program;

use crate::scene::in_a_runtime;

/// What both sides keep a lock for when their processes die, in seconds.
const TTL_S: u64 = 3;
/// Increments of each side.
const INCREMENTS: u32 = 60;
/// Tasks of this library that count.
const TASKS: u32 = 3;

pub(crate) const CHECKS: &[(&str, fn())] = &[
    ("a_lock_of_either_side_keeps_the_other_one_out", each_keeps_the_other_out),
    ("what_both_sides_count_is_complete", both_count),
    ("a_holder_of_either_side_that_is_killed_is_replaced", killed_holders_are_replaced),
];

/// A process with the mutex of the package.
struct GoPeer {
    program: Program,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl GoPeer {
    fn start() -> Self {
        let servers = Servers::shared();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let path = root.join("target/clients/go/etcdpeer");
        assert!(path.exists(), "`make peers` builds {}", path.display());
        let args = [servers.etcd().endpoint(), &TTL_S.to_string()];
        let program = servers.bed().program("etcdpeer", &path, &args).expect("it starts");
        let (commands, answers) = program.pipes().expect("pipes");
        Self { program, commands, answers: BufReader::new(answers) }
    }

    fn send(&mut self, command: &str) {
        writeln!(self.commands, "{command}").expect("it reads");
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        line.trim().to_owned()
    }

    fn ask(&mut self, command: &str) -> String {
        self.send(command);
        self.answer()
    }

    /// The create revision of the key of a lock that it was asked for.
    fn taken(&mut self) -> Token {
        let answer = self.answer();
        Token(answer.parse().unwrap_or_else(|_| panic!("no revision: {answer:?}")))
    }
}

fn name() -> LockName {
    LockName::new(fresh_name()).expect("a name")
}

/// Locks whose server keeps a dead holder's for the TTL of the other side.
async fn locks() -> Locks {
    let mut addresses = tokio::task::block_in_place(|| Servers::shared().addresses(LockKind::Etcd));
    addresses.set_ttl(Duration::from_secs(TTL_S));
    let backends = addresses.connect().await.expect("endpoints");
    Locks::new(locker(LockKind::Etcd, &backends).expect("a locker"))
}

async fn take(locks: &Locks, name: &LockName, wait: Duration) -> Result<Guard, LockError> {
    locks.lock(name, &LockOptions::new(wait, locks.guarantees().lease(WAIT_TIMEOUT))).await
}

fn each_keeps_the_other_out() {
    let _etcd = Servers::shared().etcd();
    in_a_runtime(async || {
        let (locks, mut peer, name) = (locks().await, GoPeer::start(), name());
        let ours = take(&locks, &name, Duration::ZERO).await.expect("it is free");
        assert_eq!(peer.ask(&format!("try {name}")), "busy");
        peer.send(&format!("lock {name}"));
        let none = LockWaiters::Ordered(vec![]);
        while locks.inspect(&name).await.expect("an answer").waiters == none {}
        let token = ours.token();
        assert_eq!(ours.release().await.expect("an answer"), Release::Released);
        let theirs = peer.taken();
        assert!(Some(theirs) > token, "{theirs:?} {token:?}");
        let refused = take(&locks, &name, Duration::ZERO).await.err();
        assert!(matches!(refused, Some(LockError::TimedOut { .. })), "{refused:?}");
        let waiter = tokio::spawn({
            let (locks, name) = (locks.clone(), name.clone());
            async move { take(&locks, &name, WAIT_TIMEOUT).await }
        });
        assert_eq!(peer.ask(&format!("unlock {name}")), "unlocked");
        let heir = waiter.await.expect("no panic").expect("it is free");
        assert!(heir.token() > Some(theirs));
        heir.release().await.expect("a release");
    });
}

/// In two steps, as the other side does.
fn increment(file: &Path) {
    let number: u32 = fs::read_to_string(file).expect("a file").trim().parse().expect("a number");
    fs::write(file, (number + 1).to_string()).expect("written");
}

fn both_count() {
    let file: PathBuf = Servers::shared().fresh_path("counter");
    fs::write(&file, "0").expect("written");
    let _etcd = Servers::shared().etcd();
    in_a_runtime(async || {
        let (mut peer, name) = (GoPeer::start(), name());
        peer.send(&format!("count {name} {} {INCREMENTS}", file.display()));
        let mut tasks = Vec::new();
        for _ in 0..TASKS {
            let (locks, name, file) = (locks().await, name.clone(), file.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..INCREMENTS / TASKS {
                    let guard = take(&locks, &name, WAIT_TIMEOUT).await.expect("the lock");
                    increment(&file);
                    guard.release().await.expect("a release");
                }
            }));
        }
        for task in tasks {
            task.await.expect("no panic");
        }
        assert_eq!(peer.answer(), "counted");
        assert_eq!(fs::read_to_string(&file).expect("a file"), (2 * INCREMENTS).to_string());
    });
}

fn killed_holders_are_replaced() {
    let _etcd = Servers::shared().etcd();
    in_a_runtime(async || {
        let (locks, mut peer, name) = (locks().await, GoPeer::start(), name());
        peer.send(&format!("lock {name}"));
        let theirs = peer.taken();
        peer.program.kill().expect("it is killed");
        let ours = take(&locks, &name, WAIT_TIMEOUT).await.expect("its lease ends");
        assert!(ours.token() > Some(theirs));
        ours.release().await.expect("a release");
    });
    let (holder, mut next, name) =
        (Contender::start(Servers::shared(), LockKind::Etcd), GoPeer::start(), fresh_name());
    let ours = holder.lock(&LockRequest::new(&name, WAIT_TIMEOUT)).expect("it is free");
    next.send(&format!("lock {name}"));
    holder.kill();
    assert!(next.taken() > Token(ours.token.expect("a token")));
}
