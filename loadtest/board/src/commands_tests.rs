//! Commands and the lines that send them, without servers.

use std::collections::BTreeSet;

use super::*;
use crate::command_sources::{SCRIPTS, digest, forms, line_with};
use crate::race_logs::RaceLogs;

fn command(origin: CommandOrigin, words: &[&str]) -> ObservedCommand {
    let words = words.iter().map(|word| (*word).to_owned()).collect();
    ObservedCommand { at: Instant::now(), origin, words }
}

fn place(shown: Option<ShownCommand>) -> (String, String) {
    let shown = shown.expect("shown");
    let source = serde_json::to_value(shown.source.expect("a source")).expect("JSON");
    let path = source["path"].as_str().expect("a path").to_owned();
    (path, source["text"].as_str().expect("a text").to_owned())
}

#[test]
fn each_form_of_a_command_leads_to_the_only_line_that_sends_it() {
    assert!(forms().count() > 30);
    for (begin, lock, path, part) in forms() {
        assert!(line_with(path, part).is_some(), "{begin} ({lock}): {part} in {path}");
    }
}

#[test]
fn every_script_of_a_lock_is_known_by_its_digest() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lua/lock");
    let names = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .expect("the folder")
        .flatten()
        .map(|file| file.file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(files, SCRIPTS.iter().map(|(path, _)| names(path)).collect());
    assert_eq!(digest("return 1"), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
}

#[test]
fn a_script_is_named_and_each_command_in_it_has_its_line() {
    let index = SourceIndex::new("redisson");
    let mut sampler = Sampler::new(&index, Instant::now());
    let (_, code) =
        SCRIPTS.iter().find(|(path, _)| path.ends_with("redisson_release.lua")).unwrap();
    let call = ["EVALSHA", &digest(code), "1", "lock:voucher:1"];
    let shown = sampler.shown(&command(CommandOrigin::RedisClient, &call)).expect("shown");
    assert_eq!(shown.text, "EVALSHA redisson_release.lua 1 lock:voucher:1");
    let inner = command(CommandOrigin::RedisScript, &["PUBLISH", "channel", "0"]);
    let (path, text) = place(sampler.shown(&inner));
    assert_eq!(path, "lua/lock/redisson_release.lua");
    assert!(text.contains("call(ARGV["), "{text}");
}

#[test]
fn looks_for_deadlocks_are_not_shown() {
    let index = SourceIndex::new("redisson");
    let mut sampler = Sampler::new(&index, Instant::now());
    let (_, code) = SCRIPTS.iter().find(|(path, _)| path.ends_with("exchange_waits.lua")).unwrap();
    let call = ["EVALSHA", &digest(code), "1", "distlock_waits"];
    let in_script = |words| command(CommandOrigin::RedisScript, words);
    for look in [command(CommandOrigin::RedisClient, &call), in_script(&["TIME"])] {
        assert!(sampler.shown(&look).is_none(), "{look:?}");
    }
    let other = command(CommandOrigin::RedisClient, &["SET", "lock:voucher:1", "a"]);
    assert!(sampler.shown(&other).is_some());
}

#[test]
fn a_statement_and_a_plain_command_have_their_lines() {
    let index = SourceIndex::new("set-nx");
    let mut sampler = Sampler::new(&index, Instant::now());
    let commit = command(CommandOrigin::Replica(1), &["COMMIT"]);
    let (path, text) = place(sampler.shown(&commit));
    assert_eq!(
        (path.as_str(), text.as_str()),
        ("src/store/session.rs", "statements.push(\"COMMIT\".to_owned());")
    );
    let set = command(CommandOrigin::RedisClient, &["SET", "lock:voucher:1", "a", "NX", "PX", "9"]);
    assert_eq!(place(sampler.shown(&set)).0, "distlock/src/redis/set_nx.rs");
    let path = "/distlock/lock:voucher:1/_c_5e1d-lock-";
    let create = format!("create -e -s {path}");
    let create = command(CommandOrigin::ReplicaToZooKeeper(1), &[&create]);
    let (path, text) = place(sampler.shown(&create));
    assert_eq!(path, "distlock/src/zookeeper/contender.rs");
    assert!(text.contains("client.create(&path, owner, &mode)"), "{text}");
    let other = command(CommandOrigin::Replica(0), &["SHOW  STATUS"]);
    let shown = sampler.shown(&other).expect("shown");
    assert_eq!((shown.text.as_str(), shown.source), ("SHOW STATUS", None));
}

#[test]
fn commands_beyond_the_first_of_a_second_are_counted_and_old_ones_leave() {
    let (index, log) = (SourceIndex::new("none"), CommandLog::default());
    let mut sampler = Sampler::new(&index, Instant::now());
    let shown =
        (0..100).filter_map(|_| sampler.shown(&command(CommandOrigin::Replica(0), &["COMMIT"])));
    assert_eq!(shown.count(), MAX_PER_S);
    for _ in 0..=MAX_KEPT {
        log.push_text("COMMIT");
    }
    log.skip(5);
    let CommandSlice { commands: all, passed } = log.read(0);
    assert_eq!((all.len(), all[0].id), (MAX_KEPT, 1));
    assert_eq!(passed, 206, "those that have left and those that were skipped are counted");
    assert_eq!(log.read(200).commands.len(), 1, "only what the page does not have");
}

#[test]
fn the_first_command_of_a_name_is_shown_in_a_busy_second_too() {
    let index = SourceIndex::new("zookeeper");
    let mut sampler = Sampler::new(&index, Instant::now());
    let begun = Instant::now();
    let mut shown = |text: &str| {
        let origin = CommandOrigin::ReplicaToZooKeeper(0);
        let command = ObservedCommand { at: begun, origin, words: vec![text.to_owned()] };
        sampler.shown(&command).is_some()
    };
    assert_eq!((0..100).filter(|node| shown(&format!("create -e -s /a{node}"))).count(), MAX_PER_S);
    assert!(shown("getData -w /a1") && !shown("getData -w /a2"));
    let names = (0..100).filter(|number| shown(&format!("operation{number} /a"))).count();
    assert_eq!(names, MAX_NAMES - 2, "`create` and `getData` are names too");
}

#[test]
fn a_new_race_has_no_command_of_the_last_one() {
    let logs = RaceLogs::default();
    logs.commands[1].push_text("COMMIT");
    logs.begin("{}".to_owned());
    let CommandSlice { commands, passed } = logs.commands[1].read(0);
    assert_eq!((commands, passed), (Vec::new(), 0));
    logs.commands[1].push_text("COMMIT");
    assert_eq!(logs.commands[1].read(1).commands.len(), 1, "numbers go on");
}
