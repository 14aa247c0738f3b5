use clap::ValueEnum as _;

use super::*;
use crate::fixtures::{figures, verdict_of};
use crate::fleet::JvmBug;

#[test]
fn every_bug_that_replicas_can_have_has_one_row_and_so_has_the_forgetful_database() {
    for bug in InjectedBug::value_variants() {
        let rows = BUG_CASES.iter().filter(|row| row.bug == Bug::Service(*bug)).count();
        assert_eq!(rows, 1, "{}", bug.name());
    }
    assert_eq!(BUG_CASES.iter().filter(|row| row.bug == Bug::Forgetful).count(), 1);
    assert_eq!(BUG_CASES.len(), InjectedBug::value_variants().len() + 1);
}

#[test]
fn each_command_of_the_bug_museum_is_of_one_bug_or_one_rung() {
    const OF_JVM: &str = "loadtest compare --replicas-of jvm --inject-jvm-bug ";
    let page = include_str!("../../../docs/museum.md");
    let command =
        |row: &str| row.split(" | ").nth(2).expect("a command").trim_matches('`').to_owned();
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains("loadtest "));
    let mut commands: Vec<String> = rows.map(command).collect();
    for command in &commands {
        let is_bug = command
            .strip_prefix("loadtest inject-bugs --only ")
            .is_some_and(|name| BUG_CASES.iter().any(|row| row.bug.name() == name));
        let is_rung = command
            .strip_prefix("loadtest learn ")
            .is_some_and(|slug| crate::ladder::RUNGS.iter().any(|rung| rung.slug == slug));
        let is_of_jvm = command
            .strip_prefix(OF_JVM)
            .and_then(|flags| flags.split(' ').next())
            .is_some_and(|name| JvmBug::from_str(name, false).is_ok());
        assert!(is_bug || is_rung || is_of_jvm, "{command}");
    }
    let rows = commands.len();
    commands.sort_unstable();
    commands.dedup();
    assert!(rows >= 15 && commands.len() == rows, "{rows} rows, {} commands", commands.len());
}

#[test]
fn with_the_bug_and_without_it_all_else_is_the_same() {
    for row in BUG_CASES {
        let (with_bug, sound) = (row.cell_plan(7, true), row.cell_plan(7, false));
        assert_eq!(with_bug.schedule, sound.schedule);
        // Where the bug is, and where the sound run is told to take its way.
        let split = |flags: &[String], flag: &str| match flags.iter().position(|it| it == flag) {
            Some(at) => (flags[at + 1].clone(), [&flags[..at], &flags[at + 2..]].concat()),
            None => (String::new(), flags.to_vec()),
        };
        let (bug, with_bug) = split(&with_bug.flags, "--inject-bug");
        let (way, sound) = split(&sound.flags, "--inject-bug-control");
        assert_eq!(with_bug, sound);
        let name = if row.bug == Bug::Forgetful { "" } else { row.bug.name() };
        assert_eq!((bug.as_str(), way.as_str()), (name, name));
    }
}

#[test]
fn a_fenced_run_without_recorded_tokens_shows_nothing_with_the_bug_or_without_it() {
    let row = |bug| BUG_CASES.into_iter().find(|row| row.bug == Bug::Service(bug)).expect("a row");
    let found = |bug, held| {
        let row = row(bug);
        let mut verdict = verdict_of(0, 0);
        for finding in &mut verdict.findings {
            if finding.rule == Rule::TokensRise {
                finding.held = held;
            }
        }
        row.found(&CellReport::of(CellSpec::plain(row.trial.axes), 100, figures(), verdict))
    };
    let unseen = found(InjectedBug::TokenFromRedis, None);
    assert!(unseen.invalid.iter().any(|why| why.contains("tokens")), "{unseen:?}");
    assert!(unseen.signs.is_empty() && unseen.wrong.is_empty(), "{unseen:?}");
    let seen = found(InjectedBug::TokenFromRedis, Some(true));
    assert!(seen.invalid.is_empty() && seen.wrong.is_empty(), "{seen:?}");
    assert_eq!(found(InjectedBug::TokenFromRedis, Some(false)).signs.len(), 1);
    assert!(
        found(InjectedBug::NoStockCondition, None).invalid.is_empty(),
        "nobody was to be fenced"
    );
}

#[test]
fn a_replica_that_dies_though_nothing_kills_it_is_found_and_not_merely_invalid() {
    let (row, text) = (&BUG_CASES[0], "replica r1 died\nits log".to_owned());
    let failed = CellReport::failed(row.trial, 1, text, std::time::Duration::ZERO);
    let found = |died| row.found(&CellReport { died, ..failed.clone() });
    assert_eq!(found(true).wrong, ["replica r1 died"]);
    assert!(found(true).signs.is_empty(), "that is no sign of the bug");
    assert_eq!(found(false).wrong, [""; 0], "it could not be run");
}
