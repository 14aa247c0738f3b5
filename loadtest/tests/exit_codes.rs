//! Bad usage ends with exit code 2 and one sentence on standard error, never with a panic.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

const GOOD_LINE: &str = r#"{"user_id":"17","token":"a.b.c"}"#;

fn loadtest(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_loadtest"))
        .args(arguments)
        .output()
        .expect("the built program")
}

/// Asserts exit code 2 and exactly one line that is one sentence, and gives it.
fn one_sentence(arguments: &[&str]) -> String {
    let output = loadtest(arguments);
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
    assert!(stderr.starts_with("loadtest: ") && stderr.ends_with(".\n"), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    stderr
}

fn token_file(folder: &Path, text: &str) -> String {
    let path = folder.join("tokens.jsonl");
    std::fs::write(&path, text).expect("written");
    path.display().to_string()
}

/// A loopback port without a listener.
fn closed_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").port()
}

fn run<'a>(target: &'a str, tokens: &'a str) -> Vec<&'a str> {
    vec!["run", "--target", target, "--tokens", tokens, "--voucher", "1"]
}

#[test]
fn a_wrong_flag_or_value_is_bad_usage() {
    for arguments in [
        &["compare", "--no-such-flag"][..],
        &["compare", "--locks", "zookeeper-of-doom"],
        &["compare", "--scopes", "planet"],
        &["compare", "--guards", "maybe"],
        &["compare", "--replicas", "many"],
        &["compare", "--db", "sqlite"],
        &["compare", "--inject-bug", "tulips"],
        &["compare", "--inject-bug", "tulips"],
        &["run", "--target", "http://127.0.0.1:1"],
        &["run", "--target", "http://a", "--tokens", "t", "--voucher", "0"],
        &[
            "run",
            "--target",
            "http://a",
            "--tokens",
            "t",
            "--voucher",
            "1",
            "--audit-url",
            "http://a",
        ],
        &["up", "--replicas", "0"],
        &["up", "--lock", "padlock"],
        &["up", "--scope", "planet"],
        &["up", "--guards", "maybe"],
        &["up", "--crowd", "0"],
        &["up", "--crowd", "100001"],
        &["bench", "--rows", "tulips"],
        &["bench", "--rounds", "0"],
        &["bench", "--seconds", "many"],
        &["up", "--port", "70000"],
        &["nonsense"],
    ] {
        one_sentence(arguments);
    }
}

#[test]
fn no_command_at_all_shows_the_help_and_is_bad_usage() {
    let output = loadtest(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("Usage:"));
}

#[test]
fn an_unreachable_target_is_one_sentence_that_names_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tokens = token_file(folder.path(), GOOD_LINE);
    let target = format!("http://127.0.0.1:{}", closed_port());
    let sentence = one_sentence(&run(&target, &tokens));
    assert!(sentence.contains(&target), "{sentence}");
}

#[test]
fn a_target_that_is_no_http_address_is_one_sentence() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tokens = token_file(folder.path(), GOOD_LINE);
    for target in ["https://example.org", "127.0.0.1:8080", "http://a/path"] {
        let sentence = one_sentence(&run(target, &tokens));
        assert!(sentence.contains("is no target"), "{sentence}");
    }
}

#[test]
fn a_broken_token_file_is_one_sentence_that_names_the_line() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tokens = token_file(folder.path(), &format!("{GOOD_LINE}\n{{broken\n"));
    let sentence = one_sentence(&run("http://127.0.0.1:1", &tokens));
    assert!(sentence.contains(&tokens) && sentence.contains("line 2"), "{sentence}");
}

#[test]
fn a_missing_token_file_is_one_sentence_that_names_it() {
    let sentence = one_sentence(&run("http://127.0.0.1:1", "/nonexistent/tokens.jsonl"));
    assert!(sentence.contains("/nonexistent/tokens.jsonl"), "{sentence}");
}

#[test]
fn a_history_that_cannot_be_looked_at_is_one_sentence_that_names_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for path in [folder.path(), Path::new("/nonexistent/load.jsonl.zst")] {
        let path = path.display().to_string();
        let sentence = one_sentence(&["check", &path]);
        assert!(sentence.contains(&path), "{sentence}");
    }
}

#[test]
fn a_missing_program_is_one_sentence_that_names_it() {
    for command in ["compare", "up"] {
        let sentence = one_sentence(&[command, "--seckill", "/nonexistent/seckill"]);
        assert!(sentence.contains("/nonexistent/seckill"), "{sentence}");
    }
}

#[test]
fn a_fault_that_the_program_cannot_have_is_refused_with_what_to_do() {
    let program = env!("CARGO_BIN_EXE_loadtest");
    let cell = ["matrix", "--faults", "failpoint", "--guards", "on", "--seckill", program];
    let sentence = one_sentence(&cell);
    for words in ["the fault failpoint needs", "has none", "--features failpoints"] {
        assert!(sentence.contains(words), "{sentence}");
    }
}

#[test]
fn a_port_in_use_is_one_sentence_that_names_it() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let program = env!("CARGO_BIN_EXE_loadtest");
    let sentence = one_sentence(&["up", "--port", &port, "--seckill", program]);
    assert!(sentence.contains(&port), "{sentence}");
}

#[test]
fn a_queue_with_a_lock_or_without_guards_is_refused_before_any_server_starts() {
    let program = env!("CARGO_BIN_EXE_loadtest");
    for wrong in [["--lock", "zookeeper"], ["--scope", "voucher"], ["--guards", "off"]] {
        let mut arguments = vec!["up", "--mode", "queued", "--seckill", program];
        arguments.extend(wrong);
        let sentence = one_sentence(&arguments);
        assert!(sentence.contains("--mode queued takes no lock"), "{sentence}");
    }
}

#[test]
fn a_comparison_or_load_beyond_its_bounds_is_one_sentence() {
    let program = env!("CARGO_BIN_EXE_loadtest");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let here = folder.path().display().to_string();
    for wrong in [["--replicas", "0"], ["--work-ms", "100000"], ["--json", &here]] {
        let mut arguments = vec!["compare", "--seckill", program];
        arguments.extend(wrong);
        one_sentence(&arguments);
    }
    let tokens = token_file(folder.path(), GOOD_LINE);
    for wrong in [["--users", "2"], ["--requests-per-user", "0"], ["--connections", "1"]] {
        let mut arguments = run("http://127.0.0.1:1", &tokens);
        arguments.extend(wrong);
        one_sentence(&arguments);
    }
}

#[test]
fn the_last_of_two_fleets_counts_as_make_compare_jvm_gives_them() {
    let program = env!("CARGO_BIN_EXE_loadtest");
    for (fleets, refusal) in [
        (["mixed", "jvm"], "JVM ones have --inject-jvm-bug"),
        (["jvm", "mixed"], "an even number of --replicas"),
    ] {
        let mut arguments = vec!["compare", "--seckill", program, "--replicas", "3"];
        arguments.extend(["--inject-bug", "lying-audit"]);
        arguments.extend(fleets.iter().flat_map(|fleet| ["--replicas-of", fleet]));
        let sentence = one_sentence(&arguments);
        assert!(sentence.contains(refusal), "{fleets:?}: {sentence}");
    }
}

#[test]
fn conflicting_flags_of_a_load_are_one_sentence_that_names_them() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tokens = token_file(folder.path(), GOOD_LINE);
    let cases: [(&[&str], &str); 14] = [
        (&["--arrival", "poisson"], "--rate"),
        (&["--rate", "5"], "--rate"),
        (&["--arrival", "constant", "--rate", "0"], "--rate"),
        (&["--arrival", "flash", "--rate", "5"], "--duration"),
        (&["--arrival", "flash", "--rate", "20000", "--duration", "9"], "--rate"),
        (&["--arrival", "trace"], "--trace"),
        (&["--trace", "/nonexistent/trace"], "--arrival trace"),
        (&["--arrival", "trace", "--trace", "/nonexistent/trace"], "/nonexistent/trace"),
        (&["--mix", "sold-out"], "--requests or --duration"),
        (&["--mix", "once", "--requests-per-user", "2"], "--requests-per-user"),
        (&["--hang-up-share", "1.5"], "--hang-up-share"),
        (&["--zipf", "-1"], "--zipf"),
        (&["--duration", "-1"], "--duration"),
        (&["--voucher", "2,1"], "--voucher"),
    ];
    for (wrong, named) in cases {
        let mut arguments = run("http://127.0.0.1:1", &tokens);
        arguments.extend(wrong);
        let sentence = one_sentence(&arguments);
        assert!(sentence.contains(named), "{wrong:?}: {sentence}");
    }
}

#[test]
fn help_names_every_command_and_the_exit_codes() {
    let output = loadtest(&["--help"]);
    assert!(output.status.success());
    let help = String::from_utf8(output.stdout).expect("text");
    for word in ["run", "compare", "up", "Exit codes"] {
        assert!(help.contains(word), "{word} in {help}");
    }
}

#[test]
fn a_closed_output_pipe_changes_no_exit_code() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let errors = writer.try_clone().expect("a pipe");
    drop(reader);
    for arguments in [&["matrix", "--list"][..], &["bench", "--list"], &["inject-bugs", "--list"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_loadtest"));
        let (writer, errors) = (writer.try_clone(), errors.try_clone());
        command.stdout(writer.expect("a pipe")).stderr(errors.expect("a pipe"));
        let status = command.args(arguments).status().expect("the built program");
        assert_eq!(status.code(), Some(0), "{arguments:?}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_loadtest"));
    let status = command.arg("--no-such-flag").stderr(errors).status().expect("the built program");
    assert_eq!(status.code(), Some(2));
}

#[test]
fn former_names_of_commands_and_flags_still_work() {
    let lists: [&[&str]; 3] = [
        &["plants", "--list"],
        &["matrix", "--list", "--circumstances", "short-work", "--path", "direct"],
        &["matrix", "--list", "--story", "--plants", "none", "--plant-seeds", "1"],
    ];
    for arguments in lists {
        let mut command = Command::new(env!("CARGO_BIN_EXE_loadtest"));
        let output = command.args(arguments).output().expect("the built program");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    }
}
