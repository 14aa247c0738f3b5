//! What a replica in Java is started with, and what it refuses.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PASSWORD: &str = "hunter2";
const DATABASE: &str = "mysql://shop:hunter2@127.0.0.1/sale";
const REDIS: &str = "redis://:hunter2@127.0.0.1";

fn jar() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../jvm/target/seckill.jar")
}

/// Runs `java` with these addresses.
fn java(arguments: &[&str], database: &str, redis: &str) -> Output {
    let mut java = Command::new("java");
    java.env("DATABASE_URL", database).env("REDIS_URL", redis).env("JWT_SECRET", "x".repeat(32));
    java.arg("-cp").arg(jar()).args(arguments).output().expect("java runs")
}

/// The sentence with which the replica refuses to start.
fn refusal(flags: &[&str], database: &str, redis: &str) -> String {
    let arguments = [&["seckill.SeckillApplication", "serve"], flags].concat();
    let output = java(&arguments, database, redis);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(!said.contains(PASSWORD), "{said}");
    said
}

#[test]
fn a_flag_that_the_textbook_does_not_have_is_refused_by_its_name() {
    let said = refusal(&["--writer", "grouped"], DATABASE, REDIS);
    assert!(said.contains("does not support --writer"), "{said}");
}

#[test]
fn a_bug_that_the_other_flags_leave_no_room_for_is_refused_with_what_it_needs() {
    for (bug, others, needed) in [
        ("self-invocation", ["--lock-order", "inside"], "needs --lock-order outside"),
        ("no-stock-condition", ["--guards", "off"], "needs --guards on"),
    ] {
        let flags = [&["--lab", "--inject-bug", bug][..], &others].concat();
        let said = refusal(&flags, DATABASE, REDIS);
        assert!(said.contains(&format!("--inject-bug {bug} {needed}")), "{said}");
    }
}

#[test]
fn an_address_that_the_textbook_cannot_use_is_refused_by_its_variable() {
    let database_form = "DATABASE_URL must be mysql://USER:PASSWORD@HOST[:PORT]/NAME, with one";
    let redis_form = "REDIS_URL must be redis://[USER:PASSWORD@]HOST[:PORT][/NUMBER], with one";
    for (database, redis, sentence) in [
        ("mysql://shop:hunter2@a:3306,b:3306/sale", REDIS, database_form),
        ("mysql://shop:hunter2@127.0.0.1", REDIS, database_form),
        ("mysql://shop:hunter2^@127.0.0.1/sale", REDIS, database_form),
        ("postgres://shop:hunter2@127.0.0.1/sale", REDIS, "postgres:// of DATABASE_URL"),
        (DATABASE, "rediss://:hunter2@127.0.0.1", "rediss:// of REDIS_URL"),
        (DATABASE, "redis+sentinel://:hunter2@a,b/main", "redis+sentinel:// of REDIS_URL"),
        (DATABASE, "redis://:hunter2@a:6379,b:6379", redis_form),
        (DATABASE, "redis://:hunter2@127.0.0.1/main", redis_form),
        (DATABASE, "", "REDIS_URL must be set"),
    ] {
        let said = refusal(&[], database, redis);
        assert!(said.contains(sentence), "{said}");
    }
}

#[test]
fn an_address_without_a_port_has_the_usual_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("Ports.java");
    let text = "class Ports {
        public static void main(String[] flags) throws Exception {
            var options = seckill.Options.parse(flags, System.getenv());
            System.out.print(options.database() + \" \" + options.redis());
        }
    }";
    std::fs::write(&program, text).expect("written");
    let program = program.to_str().expect("text");
    for (database, redis, expected) in [
        (DATABASE, REDIS, "127.0.0.1:3306/sale 127.0.0.1:6379"),
        ("mysql://u@h:4/sale?ssl-mode=disabled", "redis://h:5/7", "h:4/sale h:5/7"),
    ] {
        let output = java(&[program], database, redis);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, expected, "{}", String::from_utf8_lossy(&output.stderr));
    }
}
