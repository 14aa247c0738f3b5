//! How the soak counts its runs, with a program that plays `loadtest`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

const SOAK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo_soak.sh");

/// Runs the soak of two stories, a comparison and two bugs, without busy processes.
fn soak(folder: &Path, program: &str) -> Output {
    let loadtest = folder.join("loadtest");
    fs::write(&loadtest, format!("#!/bin/sh\n{program}\n")).expect("a program");
    fs::set_permissions(&loadtest, fs::Permissions::from_mode(0o755)).expect("executable");
    let counts = [("STORY", "2"), ("COMPARE", "1"), ("SMOKE", "0"), ("BUG_SEEDS", "1")];
    Command::new(SOAK)
        .arg(folder.join("reports"))
        .envs(counts)
        .envs([("BUSY", "0"), ("LONGEST_RUN_S", "2")])
        .env("LOADTEST", &loadtest)
        .output()
        .expect("the soak")
}

/// What the soak prints last, of a program that does this for the second story.
fn last_line(second_story: &str) -> (String, Option<i32>) {
    let folder = tempfile::tempdir().expect("a folder");
    let program = format!(
        "case \"$*\" in *--list) echo 'lying-audit: x; y'; echo 'no-watchdog: x; y' ;; \
         *'--seed 2 '*) {second_story} ;; esac"
    );
    let output = soak(folder.path(), &program);
    let text = String::from_utf8(output.stdout).expect("text");
    let last = text.lines().last().expect("a line").to_owned();
    (last, output.status.code())
}

#[test]
fn only_a_red_run_without_a_real_load_is_invalid_and_all_else_is_a_surprise() {
    let no_load = "echo 'Red: x: y. The measurement is in doubt, not the product: this was no \
                   real load.'";
    for (second_story, counted, code) in [
        ("exit 0", "0 surprises, 0 invalid", 0),
        // One of five is more than two of a hundred.
        (&*format!("{no_load}; exit 1"), "0 surprises, 1 invalid", 1),
        ("echo 'Red: x. The product is in doubt: the load was real.'; exit 1", "1 surprises", 1),
        ("echo 'Red: x. The measurement is in doubt.'; exit 1", "1 surprises, 0 invalid", 1),
        (&*format!("{no_load}; exit 2"), "1 surprises, 0 invalid", 1),
        ("kill -SEGV $$", "1 surprises, 0 invalid", 1),
        (&*format!("trap \"{no_load}; exit 1\" TERM; sleep 9 & wait"), "1 surprises", 1),
    ] {
        let (last, exit) = last_line(second_story);
        assert!(last.starts_with("5 runs beside 0 busy processes"), "{second_story}: {last}");
        assert!(last.contains(counted), "{second_story}: {last}");
        assert_eq!(exit, Some(code), "{second_story}: {last}");
    }
}
