//! Files that are not whole, or say what no history says.

use std::path::{Path, PathBuf};
use std::process::Command;

use loadtest_load::history::{Completion, Event, Mark};

use crate::tape::{Tape, check, write};

struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    async fn legal(&self) -> PathBuf {
        let path = self.file("legal.jsonl.zst");
        write(&[Tape::legal()], &path).await;
        path
    }

    /// The history with its text changed.
    async fn changed(&self, change: impl FnOnce(String) -> String) -> PathBuf {
        let whole = std::fs::read(self.legal().await).expect("there");
        let text = String::from_utf8(zstd::decode_all(&whole[..]).expect("zstd")).expect("text");
        let path = self.file("changed.jsonl.zst");
        let bytes = zstd::encode_all(change(text).as_bytes(), 1).expect("compressed");
        std::fs::write(&path, bytes).expect("written");
        path
    }
}

fn joined<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Why a history that is not whole is bad.
async fn why_bad(path: &Path) -> String {
    let judgement = check(path).await;
    assert!(!judgement.ok, "{}", path.display());
    judgement.failed_because.join("; ")
}

#[tokio::test]
async fn a_history_that_is_cut_off_anywhere_is_bad() {
    let scratch = Scratch::new();
    let whole = std::fs::read(scratch.legal().await).expect("there");
    let cut = scratch.file("cut.jsonl.zst");
    for length in [0, 1, 10, 300, whole.len() / 2, whole.len() - 100, whole.len() - 1] {
        std::fs::write(&cut, &whole[..length]).expect("written");
        let why = why_bad(&cut).await;
        assert!(why.contains("cut off"), "{length}: {why}");
    }
}

#[tokio::test]
async fn a_history_without_its_last_lines_is_bad() {
    let scratch = Scratch::new();
    for lines in [1, 2, 100] {
        let drop_last = |text: String| {
            let kept = text.lines().count() - lines;
            joined(text.lines().take(kept))
        };
        let why = why_bad(&scratch.changed(drop_last).await).await;
        assert!(why.contains("cut off") && why.contains("ends it"), "{why}");
    }
}

#[tokio::test]
async fn a_history_with_a_line_taken_out_added_or_doubled_is_bad() {
    let scratch = Scratch::new();
    for (kind, expected) in [
        ("begin", "no header"),
        ("invoke", "not under way"),
        ("ok", "lines, of which"),
        ("order", "orders, but"),
        ("account", "lines, of which"),
    ] {
        let start = format!(r#"{{"e":"{kind}""#);
        let out = |text: String| {
            let at = text.lines().position(|line| line.starts_with(&start)).expect(kind);
            let kept = text.lines().enumerate().filter(|(number, _)| *number != at);
            joined(kept.map(|(_, line)| line))
        };
        let why = why_bad(&scratch.changed(out).await).await;
        assert!(why.contains(expected), "{kind}: {why}");
    }
    for kind in ["begin", "invoke", "ok", "account", "audit", "end"] {
        let start = format!(r#"{{"e":"{kind}""#);
        let twice = |text: String| {
            let line = text.lines().find(|line| line.starts_with(&start)).expect(kind).to_owned();
            text.replacen(&format!("{line}\n"), &format!("{line}\n{line}\n"), 1)
        };
        let why = why_bad(&scratch.changed(twice).await).await;
        assert!(why.contains("is broken"), "{kind}: {why}");
    }
}

#[tokio::test]
async fn a_lock_that_was_held_when_its_request_was_not_there_makes_a_history_bad() {
    let scratch = Scratch::new();
    let path = scratch.file("held.jsonl.zst");
    for (from, until, good) in [(0, 0, true), (0, 1, false), (1, 0, false)] {
        let mut tape = Tape::legal();
        let n = tape.with_code("201")[9];
        let h = |end: &Completion<'_>| Some([end.t + from, end.t + until]);
        tape.answer(n, |end| Event::Ok(Completion { h: h(&end), ..end }));
        write(&[tape], &path).await;
        if good {
            assert!(check(&path).await.ok);
        } else {
            assert!(why_bad(&path).await.contains("held its lock while it was not there"));
        }
    }
}

#[tokio::test]
async fn a_voucher_that_was_not_read_at_the_end_is_bad() {
    let scratch = Scratch::new();
    let path = scratch.file("unread.jsonl.zst");
    write(&[Tape { read: false, ..Tape::legal() }], &path).await;
    let why = why_bad(&path).await;
    assert!(why.contains("was not read at the end"), "{why}");
}

#[tokio::test]
async fn a_history_without_requests_shows_nothing_and_is_bad() {
    let scratch = Scratch::new();
    let path = scratch.file("idle.jsonl.zst");
    let (events, rows) = (Vec::new(), Vec::new());
    write(&[Tape { events, rows, ..Tape::legal() }], &path).await;
    assert!(why_bad(&path).await.contains("has no requests"));
}

#[tokio::test]
async fn a_history_in_which_no_request_reached_the_sale_shows_nothing_and_is_bad() {
    let scratch = Scratch::new();
    let path = scratch.file("refused.jsonl.zst");
    let mut tape = Tape { rows: Vec::new(), ..Tape::legal() };
    for code in ["201", "sold_out", "already_ordered"] {
        for n in tape.with_code(code) {
            tape.refuses(n, "overloaded");
        }
    }
    write(&[tape], &path).await;
    let why = why_bad(&path).await;
    assert_eq!(
        why.split(" (").next(),
        Some("condition not met: requests reached the sale"),
        "{why}"
    );
}

#[tokio::test]
async fn a_history_of_a_voucher_without_units_shows_nothing_and_is_bad() {
    let scratch = Scratch::new();
    let path = scratch.file("empty.jsonl.zst");
    let mut tape = Tape { offered: 0, granted: 0, rows: Vec::new(), ..Tape::legal() };
    for code in ["201", "already_ordered"] {
        for n in tape.with_code(code) {
            tape.refuses(n, "sold_out");
        }
    }
    write(&[tape], &path).await;
    let why = why_bad(&path).await;
    assert_eq!(why, "condition not met: it had units to sell (voucher 1: 0 units)");
}

#[tokio::test]
async fn a_history_with_many_unknown_outcomes_is_bad_without_hang_ups_or_a_fault() {
    let scratch = Scratch::new();
    let path = scratch.file("lost.jsonl.zst");
    let legal = Tape::legal();
    let answered: Vec<u32> = legal.with_code("201").into_iter().take(50).collect();
    let (mut lost, mut left) = (legal.clone(), legal);
    for n in answered {
        lost.loses(n);
        left.hangs_up(n);
    }
    let mut struck = lost.clone();
    write(&[lost], &path).await;
    let why = why_bad(&path).await;
    assert_eq!(
        why.split(" (").next(),
        Some("condition not met: few outcomes are unknown"),
        "{why}"
    );
    write(&[left], &path).await;
    assert!(check(&path).await.ok);
    let mark = Mark { t: 1, what: "fault".into(), name: "kill".into(), ..Mark::default() };
    struck.events.insert(0, Event::Mark(mark));
    write(&[struck], &path).await;
    assert!(check(&path).await.ok, "a fault takes answers away");
}

#[tokio::test]
async fn a_line_is_any_json_object_however_it_is_written() {
    let scratch = Scratch::new();
    let rewritten = |text: String| {
        let spaced = text.lines().map(|line| {
            let (kind, rest) = line.split_once(',').expect("two members");
            let kind = kind.replacen('{', "", 1).replacen("\"e\":", " \"\\u0065\" :\t", 1);
            let members = rest.strip_suffix('}').expect("an object");
            format!(" {{ {members} , {kind} }} ")
        });
        let lines: Vec<String> = spaced.collect();
        joined(lines.iter().map(String::as_str))
    };
    let judgement = check(&scratch.changed(rewritten).await).await;
    assert!(judgement.ok, "{:?}", judgement.failed_because);
    assert_eq!(judgement.requests, 3000);
}

#[tokio::test]
async fn a_check_that_does_not_end_in_time_is_bad() {
    let scratch = Scratch::new();
    let (file, database) = (scratch.legal().await, None);
    let deadline = std::time::Duration::ZERO;
    let check = loadtest_judge::check::Check { file, database, deadline };
    let judgement = check.run().await.expect("judged");
    assert!(!judgement.ok);
    assert!(judgement.failed_because[0].contains("did not end within"), "{judgement:?}");
}

fn loadtest(arguments: &[&str]) -> (Option<i32>, String, String) {
    let program = env!("CARGO_BIN_EXE_loadtest");
    let output = Command::new(program).args(arguments).output().expect("the built program");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn the_command_ends_with_0_1_or_2_and_names_rule_request_and_reason() {
    let scratch = Scratch::new();
    let good = scratch.legal().await;
    let json = scratch.file("judgement.json");
    let (good, json) = (good.display().to_string(), json.display().to_string());
    let (code, stdout, _) = loadtest(&["check", &good, "--json", &json]);
    assert_eq!(code, Some(0), "{stdout}");
    assert!(stdout.contains("Verdict: good"), "{stdout}");
    let text = std::fs::read_to_string(&json).expect("written");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&report["ok"], &report["requests"]), (&true.into(), &3000.into()));

    let mut tape = Tape::legal();
    let n = tape.with_code("201")[9];
    let order = tape.end_of(n).o.expect("an order");
    tape.drops_row(order);
    tape.answer(n, |end| Event::Ok(Completion { h: Some([end.t, end.t]), ..end }));
    let bad = scratch.file("bad.jsonl.zst");
    write(&[tape.clone()], &bad).await;
    let (code, stdout, _) = loadtest(&["check", &bad.display().to_string(), "--json", &json]);
    assert_eq!(code, Some(1), "{stdout}");
    let request = format!("request {n} of user {}", tape.user_of(n));
    let held = format!("order {order}; its lock ");
    for word in ["Verdict: BAD", &request, &held, &format!("order {order} was acknowledged")] {
        assert!(stdout.contains(word), "{word} in {stdout}");
    }
    let text = std::fs::read_to_string(&json).expect("written");
    assert!(text.contains("\"ok\": false"), "{text}");

    let mut tape = Tape::legal();
    let mark = |phase: &'static str, detail: &'static str| {
        let (t, what, name) = (1_234_567_890, "fault".into(), "freeze".into());
        Event::Mark(Mark { t, what, name, phase: phase.into(), detail: detail.into() })
    };
    tape.events.extend([mark("begin", ""), mark("witness", "r2 was in state T")]);
    let marked = scratch.file("marked.jsonl.zst");
    write(&[tape], &marked).await;
    let (code, stdout, _) = loadtest(&["check", &marked.display().to_string()]);
    assert_eq!(code, Some(0), "{stdout}");
    let told =
        "   1234 ms  fault freeze, begin\n     1234 ms  fault freeze, witness: r2 was in state T";
    assert!(stdout.contains(told), "{stdout}");

    let (code, stdout, stderr) = loadtest(&["check", "/nonexistent/history"]);
    assert_eq!((code, stdout.as_str(), stderr.lines().count()), (Some(2), "", 1), "{stderr}");
}
