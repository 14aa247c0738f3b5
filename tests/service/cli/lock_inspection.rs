//! `seckill lock ls`, `show`, `free` and `wait-for`.

use distlock::{Backend, HoldKind, LockKind, guarantees};
use serde_json::Value;

use super::lock_run::{Bench, times};
use super::{CommandOutput, run};
use crate::every_kind::servers_of;

/// A command that holds its lock until it is ended.
const HOLD: &str = "touch held; sleep 60";

fn kinds() -> impl Iterator<Item = LockKind> {
    LockKind::ALL.into_iter().filter(|kind| kind.backend() != Backend::Process)
}

fn flags(kind: LockKind) -> Vec<String> {
    let mut flags = vec!["--kind".to_owned(), kind.as_str().to_owned()];
    flags.extend(servers_of(kind));
    flags
}

/// One of the commands about the bench's lock.
fn lock(bench: &Bench, command: &str, flags: &[&str]) -> CommandOutput {
    run(&[&["lock", command, &bench.name], flags].concat(), &bench.env())
}

fn json(output: CommandOutput) -> Value {
    serde_json::from_str(&output.fine()).expect("JSON")
}

fn migrated() -> Bench {
    let bench = Bench::new();
    run(&["migrate"], &bench.env()).fine();
    bench
}

#[test]
fn a_held_lock_of_every_kind_is_shown_and_waited_for() {
    let mut bench = migrated();
    let prefix = bench.name.clone();
    for kind in kinds() {
        bench.name = format!("{prefix} {kind}");
        let flags = flags(kind);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        assert_eq!(lock(&bench, "wait-for", &flags).code, Some(0), "{kind} is free");
        let held = format!("touch held-{kind}; sleep 60");
        let holder = bench.start(&flags, &held);
        bench.until_there(&format!("held-{kind}"));
        let seen = json(lock(&bench, "show", &[&flags[..], &["--json"]].concat()));
        let busy = lock(&bench, "wait-for", &[&flags[..], &["--timeout", "0"]].concat());
        if guarantees(kind).hold == HoldKind::Transaction && seen["state"] == "unknown" {
            // MariaDB shows it only while another one waits.
            assert!(busy.stderr.contains("not known to be free"), "{busy:?}");
            assert!(busy.stderr.contains("only while another waits"), "{busy:?}");
            assert_eq!(busy.code, Some(75), "{busy:?}");
        } else {
            assert_eq!(busy.code, Some(75), "{kind}: {busy:?}");
            assert_eq!(seen["state"], "held", "{kind}: {seen}");
            assert_eq!(seen["holders"].as_array().map(Vec::len), Some(1), "{kind}: {seen}");
            let holder = &seen["holders"][0];
            assert_eq!(holder["owner"].is_null(), holder["tag"].is_null(), "{kind}: {seen}");
            assert!(holder["tag"].is_null() || holder["tag"]["label"] == "sh", "{kind}: {seen}");
            assert!(busy.stderr.contains("still held by "), "{busy:?}");
        }
        drop(holder);
    }
}

#[test]
fn locks_of_all_kinds_are_listed_once_each_and_one_that_is_none_is_damaged() {
    let bench = migrated();
    let own = |kind: LockKind| format!("{} {kind}", bench.name);
    let mut running = Vec::new();
    let mut servers: Vec<String> = Vec::new();
    // Two that share a form of keys, and one of each other place.
    for kind in ["lua-release", "redisson", "fair", "read-write", "mysql-table", "zookeeper"] {
        let kind: LockKind = kind.parse().expect("a kind");
        let held = bench.path(&format!("held-{kind}"));
        let name = own(kind);
        let mut line = vec!["lock".to_owned(), "run".to_owned(), "--name".to_owned(), name];
        line.extend(flags(kind));
        servers.extend(servers_of(kind));
        let script = format!("touch '{}'; sleep 60", held.display());
        line.extend(["--", "sh", "-c", &script].map(str::to_owned));
        running.push(bench.start_line(&line));
        bench.until_there(&format!("held-{kind}"));
    }
    bench.redis::<()>(&["RPUSH", &format!("{} list", bench.name), "x"]);
    let mut servers: Vec<&str> = servers.iter().map(String::as_str).collect();
    let ls = ["lock", "ls", "--json", "--prefix", &bench.name];
    // How some kinds are taken does not matter.
    servers.extend(["--lock-replication", "1", "--redlock-restart-delay-ms", "10000"]);
    let listed = json(run(&[&ls[..], &servers].concat(), &bench.env()));
    let mut rows: Vec<(String, String, String)> = Vec::new();
    for row in listed["locks"].as_array().expect("rows") {
        let name = row["name"].as_str().expect("a name").rsplit(' ').next().expect("an end");
        let kinds = row["kinds"].to_string();
        rows.push((name.to_owned(), kinds, row["state"].as_str().expect("a state").to_owned()));
    }
    for (name, kinds, state) in &rows {
        let wanted = if name == "list" { "damaged" } else { "held" };
        assert_eq!(state, wanted, "{rows:?}");
        assert!(name == "list" || kinds.contains(name.as_str()), "{rows:?}");
    }
    assert_eq!(rows.len(), 7, "{rows:?}");
    let unlisted = listed["unlisted"].to_string();
    assert!(unlisted.contains("mysql-named") && unlisted.contains("hashes"), "{unlisted}");

    let text = run(&[&ls[..2], &ls[3..], &servers].concat(), &bench.env()).fine();
    assert!(text.contains("setnx-expire|set-nx|owner-check|lua-release"), "{text}");
    assert!(text.contains("mysql-named is not listed: "), "{text}");
    assert!(text.contains("sh on ") && text.contains(", asked "), "no holder is named: {text}");
    for secret in [&bench.place.redis_url, &bench.place.database_url] {
        assert!(!text.contains(&super::password(secret)), "{text}");
    }
}

#[test]
fn a_lock_is_freed_by_force_for_a_reason_only_and_the_next_one_enters() {
    let bench = Bench::new();
    let holder = bench.start(&[], HOLD);
    bench.until_there("held");
    let next = bench.start(&["--wait", "50s", "--lease", "1m"], "date +%s%N > entered");

    lock(&bench, "free", &["--yes"]).refused(Some(&bench.place), "--reason <REASON>");
    lock(&bench, "free", &["--yes", "--reason", " "]).refused(Some(&bench.place), "must be 1 to");
    let why = "host db3 is gone";
    lock(&bench, "free", &["--reason", why]).refused(Some(&bench.place), "; --yes frees it");
    let unseen = ["--reason", why, "--yes", "--log", "warn"];
    lock(&bench, "free", &unseen).refused(Some(&bench.place), "must let audit=info through");
    assert_eq!(json(lock(&bench, "show", &["--json"]))["state"], "held", "nothing was freed");
    assert!(!bench.path("entered").exists());

    let seen = json(lock(&bench, "show", &["--json"]));
    let owner = seen["holders"][0]["owner"].as_str().expect("an owner").to_owned();
    let words = ["lock", "free", &bench.name, "--reason", why, "--yes"];
    let freed = run(&words, &[&bench.env()[..], &[("SUDO_USER", "ann")]].concat());
    assert_eq!(freed.code, Some(0), "{freed:?}");
    let lines: Vec<_> = freed.stderr.lines().filter(|line| line.contains("audit")).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, outcome) in lines.into_iter().zip(["begun", "done"]) {
        for part in [why, &owner, &bench.name, "free_lock", outcome, "actor", "@", "login="] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }
    assert_eq!(next.end().code, Some(0));
    assert_eq!(times(&bench.path("entered")).len(), 1);
    let ended = holder.end();
    assert_eq!(ended.code, Some(76), "{ended:?}");
}

#[test]
fn a_lock_that_is_not_held_and_a_key_that_is_none_are_left_alone() {
    let bench = Bench::new();
    let ended = lock(&bench, "free", &["--reason", "none", "--yes"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("is not held"), "{ended:?}");
    bench.redis::<()>(&["RPUSH", &bench.name, "x"]);
    let ended = lock(&bench, "free", &["--reason", "none", "--yes"]);
    assert_eq!(ended.code, Some(78), "{ended:?}");
    assert_eq!(bench.redis::<u32>(&["LLEN", &bench.name]), 1, "it is as it was");
    assert_eq!(lock(&bench, "wait-for", &[]).code, Some(78));
}

#[test]
fn what_is_free_or_not_listed_says_where_else_to_look() {
    let mut bench = Bench::new();
    bench.name = format!("nightly {}", bench.name);
    let holder = bench.start(&["--kind", "fair"], HOLD);
    bench.until_there("held");
    let shown = lock(&bench, "show", &[]).fine();
    assert!(shown.contains("state:   free") && shown.contains("reads all kinds"), "{shown}");
    let fair = lock(&bench, "show", &["--kind", "fair"]).fine();
    assert!(fair.contains("state:   held") && !fair.contains("reads all kinds"), "{fair}");
    let none = ["lock", "ls", "--prefix", "lock:none"];
    let none = run(&none, &bench.env()).fine();
    assert!(none.contains("begins with `lock:none`; --prefix '' lists all"), "{none}");
    let all = run(&["lock", "ls", "--prefix", &bench.name], &bench.env()).fine();
    assert!(all.contains("fair") && !all.contains("no lock is held"), "{all}");
    drop(holder);
}

#[test]
fn waiting_for_a_lock_ends_when_it_is_free() {
    let bench = Bench::new();
    let holder = bench.start(&[], "touch held; until [ -e enough ]; do sleep 0.01; done");
    bench.until_there("held");
    let waits = bench.start_line(&["lock", "wait-for", &bench.name].map(str::to_owned));
    let late = lock(&bench, "wait-for", &["--timeout", "1500ms"]);
    assert_eq!(late.code, Some(75), "{late:?}");
    let told = format!("waits for {}: still held by ", bench.name);
    assert!(late.stderr.contains(&told) && late.stderr.contains("sh on "), "{late:?}");
    std::fs::write(bench.path("enough"), "").expect("a file");
    assert_eq!(holder.end().code, Some(0));
    assert_eq!(waits.end().code, Some(0));
}

#[test]
fn missing_and_unreachable_servers_are_named() {
    run(&["lock", "ls"], &[]).refused(None, "no server is given");
    run(&["lock", "show", "a"], &[]).refused(None, "needs --redis-url (REDIS_URL)");
    run(&["lock", "show", "a", "--kind", "local"], &[]).refused(None, "keeps no other process out");
    let nobody = [("REDIS_URL", "redis://:hush@127.0.0.1:1/0")];
    for command in [&["lock", "ls"][..], &["lock", "show", "a"], &["lock", "wait-for", "a"]] {
        let ended = run(command, &nobody);
        assert_eq!(ended.code, Some(69), "{ended:?}");
        assert!(!ended.stderr.contains("hush"), "{ended:?}");
    }
    let bench = Bench::new();
    let named = run(&["lock", "ls", "--kind", "mysql-named"], &bench.env());
    assert_eq!(named.code, Some(80), "{named:?}");
    assert!(named.stderr.contains("hashes of names"), "{named:?}");
}

#[test]
fn every_exit_code_of_these_commands_is_in_their_help_and_on_their_page() {
    let page = include_str!("../../../docs/inspector.md");
    for (command, codes) in [
        ("ls", &[0, 1, 2, 69, 78, 80][..]),
        ("free", &[0, 1, 2, 69, 78]),
        ("wait-for", &[0, 2, 69, 75, 78]),
    ] {
        let help = run(&["lock", command, "--help"], &[]).fine();
        let (_, listed) = help.split_once("Exit codes:").expect("the codes");
        for code in codes {
            assert!(listed.contains(&format!("\n  {code:<5}")), "{code} is not in {listed}");
            assert!(page.contains(&format!("\n| {code} |")), "{code} is not in the page");
        }
    }
}

#[test]
fn a_waiter_names_the_holder_each_second_and_in_its_time_out() {
    let bench = Bench::new();
    let holder = bench.start(&[], HOLD);
    bench.until_there("held");
    let wait = || bench.run(&["--wait", "2500ms"], "true");
    let is_naming = |line: &&str| line.contains("waits for a held lock");
    let mut refused = wait();
    // A process that stands still has no second in which to name it.
    for _ in 0..2 {
        if refused.stderr.lines().filter(is_naming).count() < 2 {
            refused = wait();
        }
    }
    assert_eq!(refused.code, Some(75), "{refused:?}");
    let lines: Vec<&str> = refused.stderr.lines().filter(is_naming).collect();
    assert_eq!(lines.len(), 2, "{refused:?}");
    let process = format!("process {}", holder.id());
    for part in ["sh on ", &process, "lease ", &bench.name] {
        assert!(lines.iter().all(|line| line.contains(part)), "no {part} in {lines:?}");
    }
    let last = refused.stderr.lines().last().expect("a sentence");
    assert!(last.contains("last seen: ") && last.contains(&process), "{last}");
    // A filter of one's own has no addition.
    let silent = bench.run(&["--wait", "1500ms", "--log", "warn,seckill=info"], "true");
    assert_eq!(silent.code, Some(75), "{silent:?}");
    assert_eq!(silent.stderr.lines().count(), 1, "{silent:?}");
}
