//! The command line itself.

use std::path::Path;

use tempfile::TempDir;

use super::run;
use crate::support::SECRET;

const REDIS: &str = "redis://127.0.0.1:1";

#[test]
fn the_help_lists_every_command_and_the_variable_of_each_setting() {
    for args in [&["--help"][..], &["-h"], &["help"]] {
        let help = run(args, &[]).fine();
        for command in ["serve", "migrate", "token", "probe", "dead-letters", "locks", "lock"] {
            assert!(help.contains(&format!("\n  {command} ")), "{command} is not in {help}");
            let own = run(&[command, "--help"], &[]).fine();
            assert!(own.contains("Usage: seckill"), "{own}");
        }
    }
    assert!(run(&["--help"], &[]).fine().contains("Exit codes: 0"));
    let serve = run(&["serve", "--help"], &[]).fine();
    for name in ["DATABASE_URL", "REDIS_URL", "JWT_SECRET", "PORT", "RUST_LOG"] {
        assert!(serve.contains(&format!("[env: {name}")), "{name} is not in {serve}");
    }
    assert!(serve.contains("--lab") && serve.contains("[default: redisson]"), "{serve}");
    let version = run(&["--version"], &[]).fine();
    let profile = concat!(" (", env!("BUILD_PROFILE"), ")");
    assert!(version.starts_with("seckill 0.") && version.contains(profile), "{version}");
}

#[test]
fn the_help_does_not_show_the_secrets_of_the_environment() {
    let env = [
        ("DATABASE_URL", "mysql://u:hush-1@h/d"),
        ("REDIS_URL", "redis://:hush-2@h/0"),
        ("JWT_SECRET", "hush-3-hush-3-hush-3-hush-3-hush"),
    ];
    for command in ["serve", "migrate", "token"] {
        let help = run(&[command, "--help"], &env).fine();
        assert!(!help.contains("hush"), "{help}");
    }
}

#[test]
fn without_a_command_the_help_is_shown_as_an_error() {
    let ended = run(&[], &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    assert!(ended.stderr.contains("Usage: seckill"), "{}", ended.stderr);
}

#[test]
fn a_wrong_command_line_is_one_sentence() {
    let servers =
        ["--database-url", "mysql://u:p@127.0.0.1:1/d", "--redis-url", "redis://127.0.0.1:1"];
    let cases: [(&[&str], &str); 17] = [
        (&["sell"], "unrecognized subcommand 'sell'"),
        (&["serve", "--frob"], "unexpected argument '--frob'"),
        (&["serve", "extra"], "unexpected argument 'extra'"),
        (&["serve", "--port"], "a value is required for '--port"),
        (&["serve", "--port", "99999"], "99999"),
        (&["serve", "--bind", "localhost"], "'localhost' for '--bind"),
        (&["serve", "--bind", "127.0.0.1:1", "--port", "1"], "exclude each other"),
        (&["serve", "--lock", "mutex"], "[possible values: none, local, setnx-expire"),
        (&["serve", "--lock-scope", "shop"], "[possible values: user, voucher]"),
        (&["serve", "--lease-ms", "0"], "0 is not in 10..=3600000"),
        (&["serve", "--db-pool", "1"], "1 is not in 2..=1000"),
        (&["serve", "--lock-pool", "1"], "1 is not in 2..=1000"),
        (&["serve", "--on-lost", "go"], "[possible values: stop, ignore]"),
        (&["locks", "--frob"], "unexpected argument '--frob'"),
        (&["serve", "--replica-id", "two words"], "1 to 64 visible ASCII characters"),
        (&["serve", "--token-ttl-s", "59"], "59 is not in 60..=2592000"),
        (&["serve", "--dev", "--dev"], "cannot be used multiple times"),
    ];
    for (args, why) in cases {
        let args: Vec<&str> = args.iter().copied().chain(servers).collect();
        run(&args, &[]).refused(None, why);
    }
    run(&["serve"], &[]).refused(None, "--database-url <DATABASE_URL> --redis-url <REDIS_URL>");
    run(&["migrate"], &[]).refused(None, "--database-url");
    run(&["token", "--users", "0"], &[]).refused(None, "0 is not in 1..=1000000");
    run(&["probe", "--address", "nowhere"], &[]).refused(None, "'nowhere' for '--address");
}

/// Of different kinds two may be in at once under one name.
#[test]
fn the_help_of_a_command_under_a_lock_says_that_a_name_belongs_to_one_kind() {
    for help in ["--help", "-h"] {
        let help = run(&["lock", "run", help], &[]).fine();
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let rule = "All users of a name must use the same kind";
        assert!(words.contains(rule), "{words}");
    }
}

#[test]
fn a_missing_or_unknown_dead_letter_name_is_answered_with_the_valid_names() {
    let database = ["--database-url", "mysql://u:p@127.0.0.1:1/d"];
    let redis = ["--redis-url", REDIS];
    for (verb, servers) in [("drop", &database[..]), ("replay", &[database, redis].concat())] {
        let letters =
            |which: &[&str]| run(&[&["dead-letters", verb], which, servers].concat(), &[]);
        letters(&[]).refused(None, "<LETTERS|--all>");
        for wrong in ["foo", "shop/1-0", "7/", "/"] {
            letters(&[wrong]).refused(None, "must be a ticket (a UUID of version 7) or an entry");
        }
        letters(&["7/1712345678901-0", "--all"]).refused(None, "cannot be used with");
    }
}

/// What is down must not look as if it had too much to do.
#[test]
fn a_command_says_why_it_cannot_reach_the_database() {
    let address = "mysql://seckill:hush-1@127.0.0.1:1/shop";
    let env = [("DATABASE_URL", address), ("JWT_SECRET", SECRET), ("REDIS_URL", REDIS)];
    let folder = TempDir::new().expect("a folder");
    let out = folder.path().join("tokens");
    let out = out.to_str().expect("UTF-8");
    let commands: [&[&str]; 5] = [
        &["migrate"],
        &["token", "--out", out],
        &["dead-letters", "list"],
        &["dead-letters", "replay", "--all"],
        &["dead-letters", "drop", "--all"],
    ];
    for command in commands {
        let ended = run(command, &env);
        for secret in ["hush-1", address] {
            assert!(!ended.stderr.contains(secret), "{ended:?}");
        }
        assert!(ended.stderr.contains(" DATABASE_URL: "), "{ended:?}");
        ended.refused(None, "Connection refused");
    }
    assert!(!Path::new(out).exists(), "nothing to write, nothing written");
}

#[test]
fn a_misspelled_word_is_answered_with_the_closest_one() {
    let lock_run = ["lock", "run", "--name", "a"];
    let cases: [(&[&str], &str); 4] = [
        (&["--kind", "redison", "--", "true"], "; did you mean redisson? (see --help)"),
        (&["--kin", "redisson", "--", "true"], "; did you mean --kind? (see --help)"),
        (&["--kind", "bolt", "--", "true"], "etcd, nats] (see --help)"),
        (&["--frob", "--", "true"], "'--frob' found (see --help)"),
    ];
    for (args, why) in cases {
        run(&[&lock_run[..], args].concat(), &[]).refused(None, why);
    }
    run(&["migrat"], &[]).refused(None, "; did you mean migrate? (see --help)");
}

#[test]
fn the_help_of_serve_lists_each_injected_bug_once() {
    let help = run(&["serve", "--help"], &[]).fine();
    for bug in ["release-before-commit", "get-then-del", "lying-audit"] {
        assert_eq!(help.matches(&format!("- {bug}:")).count(), 1, "{bug} in {help}");
    }
}

#[test]
fn a_probe_of_a_closed_port_fails_with_a_sentence() {
    let ended = run(&["probe", "--address", "127.0.0.1:1"], &[]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("127.0.0.1:1 does not answer"), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1);
}
