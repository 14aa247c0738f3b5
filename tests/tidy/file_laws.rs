//! Laws of files and functions: sizes, leftovers, scripts and migrations.

use crate::law::{Law, laws};
use crate::{REPOSITORY, assets, style};

laws! {
    files_have_at_most_400_lines: style::files_are_short,
    breaks: [("static/page.js", "x;\n".repeat(401))],
    keeps: [
        ("static/page.js", "x;\n".repeat(400)),
        ("README.md", "x\n".repeat(401)),
        ("static/vendor/plot.js", "x;\n".repeat(401)),
    ];

    lines_have_at_most_100_columns: style::lines_are_short,
    breaks: [("lua/sale/read.lua", format!("-- {}", "x".repeat(98)))],
    keeps: [
        ("lua/sale/read.lua", "x".repeat(100)),
        ("src/lib.rs", format!("// https://example.com/{}", "x".repeat(98))),
        ("static/vendor/plot.js", "x".repeat(101)),
    ];

    functions_have_at_most_70_lines: style::functions_are_short,
    breaks: [("src/a.rs", format!("fn f()\n{{{}}}", "x;\n".repeat(69)))],
    keeps: [("src/a.rs", format!("fn f()\n{{{}}}", "x;\n".repeat(68)))];

    functions_take_at_most_five_parameters: style::parameters_are_few,
    breaks: [("src/a.rs", "fn f<F: Fn(u8, u8) -> u8>(&self, a: F, b: u8, c: u8, d: u8, e: u8) {}")],
    keeps: [("src/a.rs", "fn f(a: HashMap<u8, u8>, b: (u8, u8), c: u8, d: u8, e: u8,) {}")];

    nothing_is_unfinished_or_ignored: style::nothing_is_unfinished,
    breaks: [
        ("src/a.rs", "fn f() { todo!() }"),
        ("tests/a.rs", "#[test]\n#[ignore = \"slow\"]\nfn a_b_c() { dbg!(1); }"),
        ("static/page.js", "// TODO"),
    ],
    keeps: [("static/page.js", "// TODO: remember the chosen voucher")];

    no_file_names_a_path_of_one_machine: style::no_machine_paths,
    breaks: [("docs/run.md", "cd /home/me/seckill"), ("src/a.rs", "const P: &str = \"/root/x\";")],
    keeps: [("docs/run.md", "https://example.com/home/ and app/work/")];

    nothing_unwraps_outside_of_tests: style::no_bare_unwrap,
    breaks: [("src/a.rs", "#[cfg(test)]\nuse x::y;\nfn f() { g().unwrap(); }")],
    keeps: [
        ("src/a.rs", "/// `x.unwrap()`\nfn f() { g().expect(\"checked\"); }"),
        ("src/a.rs", "#[cfg(test)]\nmod tests { fn f() { g().unwrap(); } }"),
        ("src/a/tests.rs", "fn f() { g().unwrap(); }"),
    ];

    every_script_says_what_it_does: assets::lua_has_headers,
    breaks: [("lua/lock/free.lua", "-- Purpose: x\n-- KEYS: -\n-- ARGV: -\nreturn 1 -- Returns")],
    keeps: [
        ("lua/lock/free.lua", "-- Purpose: x\n-- KEYS: -\n-- ARGV: -\n-- Returns: 1\nx()"),
        ("loadtest/benches/order.lua", "function event() end"),
    ];

    every_script_is_used: assets::lua_is_used,
    breaks: [("lua/lock/free.lua", "")],
    keeps: [("loadtest/benches/order.lua", "")];

    every_migration_is_one_commented_ddl_statement: assets::migrations_are_single_statements,
    breaks: [
        ("migrations/0001_a.sql", "CREATE TABLE a (id INT);"),
        ("migrations/0001_a.sql", "-- Two.\nCREATE TABLE a (id INT); CREATE TABLE b (id INT);"),
        ("migrations/0001_a.sql", "-- Data.\nINSERT INTO a VALUES (1);"),
    ],
    keeps: [
        ("migrations/0001_a.sql", "-- One; - one.\nCREATE TABLE a (id INT COMMENT 'x;y');"),
        ("migrations/0001_a.sql", "-- A row that must be there.\nINSERT IGNORE INTO a VALUES (1);"),
        ("deploy/demo.sql", "-- Data.\nINSERT INTO a VALUES (1); INSERT INTO a VALUES (2);"),
    ];

    every_migration_is_used: assets::migrations_are_used,
    breaks: [("migrations/first.sql", ""), ("migrations/0001_users.sql", "")],
    keeps: [];

    every_vendored_file_names_its_source: assets::vendored_files_have_a_source,
    breaks: [("static/vendor/plot.js", "x")],
    keeps: [("static/plot.js", "x"), ("static/vendor/LICENSE", "MIT")];

    every_source_file_is_declared: assets::modules_are_declared,
    breaks: [("src/orphan.rs", ""), ("distlock/src/mysql/mod.rs", "")],
    keeps: [("src/main.rs", ""), ("tests/buy.rs", "")];
}
