//! `seckill lock run --at-least-for`, `--skip-if-held` and `--skip-exit-code`.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use distlock::{LockKind, RenewalKind, guarantees};

use super::lock_run::{Bench, LUA};
use crate::every_kind::servers_of;

#[test]
fn a_command_that_ends_early_leaves_its_lock_held_for_the_rest_of_the_time() {
    // All at once: the time is twice a lease that no process stands still for.
    thread::scope(|scope| {
        for kind in LockKind::ALL {
            scope.spawn(move || assert_left_held(kind));
        }
    });
}

fn assert_left_held(kind: LockKind) {
    let least = Duration::from_secs(12);
    let mut flags = vec!["--kind".to_owned(), kind.to_string()];
    flags.extend(servers_of(kind));
    let plain: Vec<&str> = flags.iter().map(String::as_str).collect();
    let flags = [&plain[..], &["--at-least-for", "12s"]].concat();
    if guarantees(kind).renewal != RenewalKind::Yes {
        if guarantees(kind).is_on_a_server() {
            let bench = Bench::new();
            let why = "--at-least-for needs a lock with a lease that is renewed (redisson, ";
            bench.run(&flags, "true").refused(Some(&bench.place), why);
        }
        return;
    }
    let bench = Bench::new();
    let began = Instant::now();
    bench.run(&[&flags[..], &["--lease", "6s"]].concat(), "true").fine();
    bench.run(&[&plain[..], &["--wait", "60s"]].concat(), "true").fine();
    assert!(began.elapsed() >= least, "{kind}: {:?}", began.elapsed());
}

#[test]
fn the_server_keeps_the_lock_of_a_program_that_has_ended() {
    let bench = Bench::new();
    let flags = ["--at-least-for", "1h", "--lease", "1s"];
    bench.run(&flags, "true").fine();
    let left_ms: u64 = bench.redis(&["PTTL", &bench.name]);
    assert!((3_540_000..=3_600_000).contains(&left_ms), "{left_ms}");
    assert_eq!(bench.run(&["--wait", "0"], "touch entered").code, Some(75));
    assert!(!bench.path("entered").exists());
}

#[test]
fn a_command_that_failed_keeps_no_lock() {
    let bench = Bench::new();
    let flags = ["--at-least-for", "1h", "--wait", "0"];
    assert_eq!(bench.run(&flags, "exit 3").code, Some(3));
    bench.run(&flags, "true").fine();
}

#[test]
fn a_lock_that_is_held_is_skipped_at_once_with_the_name_of_its_holder() {
    for kind in [&LUA[..], &["--kind", "redisson"], &["--kind", "mysql-table"]] {
        let bench = Bench::new();
        let holder = bench.start(kind, "touch held; while [ ! -e done ]; do sleep 0.01; done");
        bench.until_there("held");
        for (code, extra) in
            [(75, &[][..]), (0, &["--skip-exit-code", "0"]), (33, &["--skip-exit-code", "33"])]
        {
            let flags = [kind, &["--skip-if-held"], extra].concat();
            let asked = Instant::now();
            let ended = bench.run(&flags, "touch entered");
            assert!(asked.elapsed() < Duration::from_secs(8), "the usual wait is 10 s");
            assert_eq!(ended.code, Some(code), "{ended:?}");
            let said = format!("{}{}", ended.stdout, ended.stderr);
            let (_, holder) = said.split_once("still held by another owner after").expect("why");
            assert!(holder.contains(" ms (") && holder.contains(", lease "), "{ended:?}");
            assert_eq!(ended.stderr.contains("seckill: "), code != 0, "{ended:?}");
        }
        assert!(!bench.path("entered").exists());
        fs::write(bench.path("done"), "").expect("written");
        holder.end().fine();
        bench.run(&[kind, &["--skip-if-held"]].concat(), "true").fine();
    }
}

/// Another number would hide a failure of the command.
#[test]
fn the_skip_exit_code_replaces_no_code_of_the_command() {
    let bench = Bench::new();
    let flags = ["--once-per", "1h", "--skip-exit-code", "0"];
    for code in [75, 79, 3] {
        assert_eq!(bench.run(&flags, &format!("exit {code}")).code, Some(code));
    }
    bench.run(&flags, "touch ran").fine();
    fs::remove_file(bench.path("ran")).expect("it ran");
    let skipped = bench.run(&flags, "touch ran");
    assert_eq!(skipped.code, Some(0), "{skipped:?}");
    assert!(!bench.path("ran").exists(), "{skipped:?}");
    assert!(format!("{skipped:?}").contains("a run began "), "{skipped:?}");
}
