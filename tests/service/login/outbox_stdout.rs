//! The outbox on stdout, while the reader of the pipe is gone or has stopped.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::libc::O_NONBLOCK;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;
use testbed::{Replica, ReplicaSpec};

use crate::breakable::readiness;
use crate::caller::Caller;
use crate::fleet::SECKILL;
use crate::support::{Answer, Place, SECRET, eventually, servers};

/// The login codes that an address is let through at once.
const OF_ADDRESS: usize = 3;

/// More than a replica without requests takes to stop.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// Copies the pipe to the log, where the replica's address is looked for, until it is killed.
const SCRIPT: &str = r#"cat <"$PIPE" & echo "$!" >"$PIPE.reader"; exec "$0" "$@" >"$PIPE""#;

/// A replica whose stdout is that pipe.
fn spec(place: &Place, pipe: &Path) -> ReplicaSpec {
    ReplicaSpec::new("outbox-stdout", "/bin/sh")
        .args(["-c", SCRIPT, SECKILL])
        .args(["serve", "--bind", "127.0.0.1:0", "--drain-delay-ms", "0"])
        .args(["--limit-codes-address".to_owned(), OF_ADDRESS.to_string()])
        .env("PIPE", pipe.to_string_lossy())
        .env("DATABASE_URL", &place.database_url)
        .env("REDIS_URL", &place.redis_url)
        .env("REDIS_TIMEOUT_MS", place.redis_timeout_ms())
        .env("JWT_SECRET", SECRET)
        .env("LOGIN_CODE_OUTBOX", "-")
}

/// Opens the end that a gateway reads, without a wait for the other end.
fn reader(pipe: &Path) -> File {
    OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(pipe).expect("a reader")
}

async fn ask(url: &str, phone: usize) -> Answer {
    let caller = Caller::new(url);
    let body = json!({"phone": format!("1380000000{phone}")}).to_string();
    caller.send(caller.raw((Method::POST, "/api/login/codes"), body)).await
}

/// A replica with its pipe and the process that reads it.
async fn start(folder: &Path) -> (Replica, PathBuf, Pid) {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let pipe = folder.join("stdout");
    mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).expect("a pipe");
    let spec = spec(&place, &pipe);
    let starting = tokio::task::spawn_blocking(|| servers().bed.replica(spec));
    let replica = starting.await.expect("no panic").expect("a replica");
    assert!(readiness(replica.base_url()).await.0);
    let reader_pid = fs::read_to_string(folder.join("stdout.reader")).expect("its pid");
    (replica, pipe, Pid::from_raw(reader_pid.trim().parse().expect("a pid")))
}

/// Stops the reader of a pipe, and fills it.
async fn stop_and_fill(reader_pid: Pid, pipe: &Path) {
    kill(reader_pid, Signal::SIGSTOP).expect("the reader");
    // It may be about to read.
    eventually("the reader has stopped", async || {
        let stat = fs::read_to_string(format!("/proc/{reader_pid}/stat")).expect("its state");
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    })
    .await;
    let mut writer =
        OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(pipe).expect("a writer");
    for bytes in [512, 1] {
        let full = loop {
            if let Err(error) = writer.write(&[b'\n'; 512][..bytes]) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_has_stopped_holds_up_no_login_and_no_shutdown() {
    let folder = TempDir::new().unwrap();
    let (replica, pipe, reader_pid) = start(folder.path()).await;
    let url = replica.base_url();
    for _ in 0..2 {
        stop_and_fill(reader_pid, &pipe).await;
        // The second one waits behind the first.
        for _ in 0..2 {
            assert_eq!(ask(url, 1).await.problem(503), "login_unavailable");
        }
        let (ready, reasons) = readiness(url).await;
        assert!(!ready && reasons.contains("has waited for its reader"), "{reasons}");
        kill(reader_pid, Signal::SIGCONT).expect("the reader");
        eventually("it is ready again", async || readiness(url).await.0).await;
    }
    ask(url, 2).await.expect(202);

    stop_and_fill(reader_pid, &pipe).await;
    assert_eq!(ask(url, 1).await.problem(503), "login_unavailable");
    let stopped =
        tokio::task::spawn_blocking(move || replica.stop(ENDS_WITHIN)).await.expect("no panic");
    kill(reader_pid, Signal::SIGKILL).expect("the reader");
    assert!(stopped.expect("an orderly stop").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_without_reader_uses_up_no_codes_and_makes_the_replica_not_ready() {
    let folder = TempDir::new().unwrap();
    let (replica, pipe, reader_pid) = start(folder.path()).await;
    let url = replica.base_url();
    kill(reader_pid, Signal::SIGKILL).expect("the reader");
    eventually("the pipe has no reader", async || {
        OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(&pipe).is_err()
    })
    .await;
    // The first may be asked for before the replica has noticed.
    for _ in 0..2 * OF_ADDRESS {
        assert_eq!(ask(url, 1).await.problem(503), "login_unavailable");
    }
    eventually("it is not ready", async || {
        let (ready, reasons) = readiness(url).await;
        !ready && reasons.contains("login codes cannot be written")
    })
    .await;

    let mut gateway = reader(&pipe);
    eventually("it is ready again", async || readiness(url).await.0).await;
    for phone in 0..OF_ADDRESS {
        ask(url, phone).await.expect(202);
    }
    assert_eq!(ask(url, 9).await.problem(429), "too_many_requests");
    let mut bytes = [0; 4096];
    let length = gateway.read(&mut bytes).expect("the lines");
    let text = std::str::from_utf8(&bytes[..length]).expect("text");
    let codes = text.lines().filter(|line| line.contains("login_code")).count();
    assert_eq!(codes, OF_ADDRESS, "{text}");
}
