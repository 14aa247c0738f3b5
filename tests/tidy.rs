//! The tree's own laws, each a test over its source files.
//!
//! A law that is not run is forgotten, and a law that cannot fail is none: each one here brings
//! samples that break it and samples that keep it, and the last test tries them all.

#[path = "tidy/assets.rs"]
mod assets;
#[path = "tidy/docs.rs"]
mod docs;
#[path = "tidy/layers.rs"]
mod layers;
#[path = "tidy/rust.rs"]
mod rust;
#[path = "tidy/style.rs"]
mod style;
#[path = "tidy/tree.rs"]
mod tree;

use std::sync::LazyLock;

use tree::Tree;

static REPOSITORY: LazyLock<Tree> = LazyLock::new(Tree::of_the_repository);

/// A file of a sample: its path and its text.
type Sample = (&'static str, String);

struct Law {
    name: &'static str,
    /// Findings, each as `path:line: what`.
    check: fn(&Tree) -> Vec<String>,
    breaks: Vec<Sample>,
    keeps: Vec<Sample>,
}

/// Makes a test of every law, and the list of all laws.
macro_rules! laws {
    ($($name:ident: $check:path,
        breaks: [$(($bad_path:expr, $bad:expr)),+ $(,)?],
        keeps: [$(($good_path:expr, $good:expr)),* $(,)?];
    )+) => {
        $(#[test]
        fn $name() {
            let findings = $check(&REPOSITORY);
            assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
        })+

        fn all_laws() -> Vec<Law> {
            vec![$(Law {
                name: stringify!($name),
                check: $check,
                breaks: vec![$(($bad_path, $bad.into())),+],
                keeps: vec![$(($good_path, $good.into())),*],
            }),+]
        }
    };
}

laws! {
    every_place_a_law_names_exists: layers::places_exist,
    breaks: [("README.md", "")],
    keeps: [];

    tests_that_the_pages_of_locks_and_faults_name_exist: docs::named_tests_exist,
    breaks: [
        ("docs/locks.md", "| a report | `red`: `a_test_that_nobody_wrote` |"),
        ("docs/locks.md", "| a report | `red`: `of_it_a_b`; `tulips::a_test_that_is_gone` |"),
        ("docs/locks.md", "| a report | `tulips`: all of it |"),
        ("docs/laboratory.md", "| 1 | a fault | `red::a_test_that_nobody_wrote` |"),
    ],
    keeps: [("docs/locks.md", "| a report | `Guard::lost`; cannot be ours |\nIn `a_b_c_d`.")];

    members_depend_only_on_the_members_they_may_know: layers::members,
    breaks: [
        ("distlock/Cargo.toml", "[dependencies]\ntestbed.workspace = true"),
        ("distlock/Cargo.toml", "[dependencies.tools]\npath = \"../loadtest\""),
        ("loadtest/Cargo.toml", "[dev-dependencies]\nseckill = { path = \"..\" }"),
        ("testbed/Cargo.toml", "[target.'cfg(unix)'.dependencies]\ndistlock = \"0.1\""),
        ("newcomer/Cargo.toml", "[package]"),
    ],
    keeps: [
        ("distlock/Cargo.toml", "[dependencies]\nredis = \"1\""),
        ("distlock/Cargo.toml", "[dev-dependencies]\ntestbed.workspace = true"),
    ];

    layers_know_only_those_below_them: layers::layers_look_down,
    breaks: [
        ("src/domain/order.rs", "use crate::store::orders;"),
        ("src/store/mod.rs", "use crate::{domain::Id, sale::{Receipt}};"),
        ("src/sale/mod.rs", "fn f() { super::http::answer() }"),
    ],
    keeps: [("src/http/mod.rs", "use crate::{domain, sale::{app, Receipt}, store};")];

    only_the_sale_and_the_root_know_the_lock_library: layers::locks,
    breaks: [
        ("src/http/orders.rs", "use distlock::Guard;"),
        ("src/store/pools.rs", "use distlock::Guard;"),
    ],
    keeps: [
        ("src/sale/mod.rs", "use distlock::Guard;"),
        ("src/store/pools.rs", "pub use distlock::RedisConnection;"),
    ];

    the_domain_does_no_io: layers::domain_does_no_io,
    breaks: [
        ("src/domain/order.rs", "#[derive(sqlx::FromRow)] struct Order;"),
        ("src/domain/order.rs", "fn f() { std::fs::read(\"x\"); }"),
    ],
    keeps: [("src/domain/order.rs", "/// Like `tokio::time`.\nuse time::OffsetDateTime;")];

    sql_stands_only_where_the_database_is_spoken_to: layers::sql,
    breaks: [
        ("src/http/orders.rs", "const Q: &str = \"SELECT id FROM orders\";"),
        ("src/sale/single.rs", "fn f() { run(r#\"update x; UPDATE t SET a = 1\"#) }"),
        ("loadtest/src/judge/verdict.rs", "fn f() { sqlx::query(x); }"),
    ],
    keeps: [
        ("src/store/orders.rs", "const Q: &str = \"SELECT id FROM orders\";"),
        ("src/sale/single.rs", "/// After SELECT.\nconst WHY: &str = \"no answer to COMMIT\";"),
        ("src/http/orders.rs", "#[cfg(test)]\nmod tests { const Q: &str = \"SELECT 1\"; }"),
    ];

    redis_stands_only_where_redis_is_spoken_to: layers::redis,
    breaks: [
        ("src/app.rs", "use redis::Client;"),
        ("distlock/src/local.rs", "fn f() { redis::cmd(\"GET\"); }"),
    ],
    keeps: [
        ("src/store/codes.rs", "use redis::Script;"),
        ("distlock/src/registry.rs", "use crate::redis::lua_release;"),
    ];

    axum_stands_only_in_http_and_the_root: layers::axum,
    breaks: [("src/sale/mod.rs", "use axum::Json;")],
    keeps: [("src/http/mod.rs", "use axum::Json;")];

    status_codes_stand_only_in_the_table_of_errors: layers::status_codes,
    breaks: [("src/http/orders.rs", "fn f() -> StatusCode { StatusCode::CREATED }")],
    keeps: [
        ("src/http/error.rs", "fn f() -> StatusCode { StatusCode::CREATED }"),
        ("src/http/orders.rs", "fn f(status: StatusCode) {}"),
    ];

    the_environment_is_read_only_by_the_configuration: layers::environment,
    breaks: [
        ("src/app.rs", "fn f() { std::env::var(\"PORT\"); }"),
        ("src/main.rs", "struct Args {\n#[arg(long, env = \"PORT\")] port: u16 }"),
    ],
    keeps: [
        ("src/config.rs", "fn f() { std::env::var(\"PORT\"); }"),
        ("src/config/serve.rs", "struct Args {\n#[arg(long, env = \"PORT\")] port: u16 }"),
        ("src/main.rs", "fn f() { std::env::args(); env!(\"CARGO_PKG_VERSION\") }"),
    ];

    nothing_but_telemetry_is_global: layers::globals,
    breaks: [
        ("src/store/pools.rs", "static POOL: OnceLock<Pool> = OnceLock::new();"),
        ("distlock/src/local.rs", "fn f() { static N: AtomicU64 = AtomicU64::new(0); }"),
        ("src/app.rs", "static POOL: LazyLock<Pool> = LazyLock::new(f);"),
    ],
    keeps: [
        ("src/telemetry.rs", "static N: AtomicU64 = AtomicU64::new(0);"),
        ("src/http/pages.rs", "static NAMES: [&'static str; 1] = [\"a\"];"),
        ("distlock/src/redis/a.rs", "static TAKE: LazyLock<LuaScript> = LazyLock::new(f);"),
    ];

    choices_name_every_variant: layers::no_catch_all,
    breaks: [
        ("distlock/src/registry.rs", "fn f() { match k { LockKind::None => 1, _ => 2 } }"),
        ("src/sale/mod.rs", "fn f() { match k { Writer::Single => { 1 } other => 2 } }"),
    ],
    keeps: [("src/sale/mod.rs", "fn f() { match k { W::Single(_) => 1, W::Grouped(n) => n } }")];

    lock_kinds_are_told_apart_only_in_the_registry: layers::kinds,
    breaks: [
        ("src/sale/mod.rs", "fn f() { match k { LockKind::Local => 1, x => 2 } }"),
        ("src/config.rs", "fn f() { if self.lock == LockKind::None { g() } }"),
        ("src/config.rs", "fn f() { g(matches!(kind, LockKind::None)); }"),
    ],
    keeps: [("src/config.rs", "fn f() { Config { lock: LockKind::None, wait: 1 } }")];

    files_have_at_most_400_lines: style::files_are_short,
    breaks: [("static/page.js", "x;\n".repeat(401))],
    keeps: [
        ("static/page.js", "x;\n".repeat(400)),
        ("README.md", "x\n".repeat(401)),
        ("static/vendor/plot.js", "x;\n".repeat(401)),
    ];

    lines_have_at_most_100_columns: style::lines_are_short,
    breaks: [("lua/sale/take.lua", format!("-- {}", "x".repeat(98)))],
    keeps: [
        ("lua/sale/take.lua", "x".repeat(100)),
        ("src/lib.rs", format!("// https://example.com/{}", "x".repeat(98))),
        ("static/vendor/plot.js", "x".repeat(101)),
    ];

    functions_have_at_most_70_lines: style::functions_are_short,
    breaks: [("src/a.rs", format!("fn f()\n{{{}}}", "x;\n".repeat(69)))],
    keeps: [("src/a.rs", format!("fn f()\n{{{}}}", "x;\n".repeat(68)))];

    functions_take_at_most_five_parameters: style::parameters_are_few,
    breaks: [("src/a.rs", "fn f<F: Fn(u8, u8) -> u8>(&self, a: F, b: u8, c: u8, d: u8, e: u8) {}")],
    keeps: [("src/a.rs", "fn f(a: HashMap<u8, u8>, b: (u8, u8), c: u8, d: u8, e: u8,) {}")];

    tests_are_named_by_sentences: style::test_names_are_sentences,
    breaks: [
        ("tests/buy.rs", "#[test]\nfn buying() {}"),
        ("src/a.rs", "mod tests { fn a() {} #[tokio::test] async fn it_works() {} }"),
    ],
    keeps: [("tests/buy.rs", "fn helper() {}\n#[test]\nfn nobody_buys_twice() {}")];

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

    every_file_of_others_says_where_it_comes_from: assets::vendored_files_have_a_source,
    breaks: [("static/vendor/plot.js", "x")],
    keeps: [("static/plot.js", "x"), ("static/vendor/LICENSE", "MIT")];

    every_source_file_is_declared: assets::modules_are_declared,
    breaks: [("src/orphan.rs", ""), ("distlock/src/mysql/mod.rs", "")],
    keeps: [("src/main.rs", ""), ("tests/buy.rs", "")];

    the_architecture_page_names_every_folder: assets::architecture_names_every_folder,
    breaks: [("docs/ARCHITECTURE.md", ""), ("src/store/mod.rs", "")],
    keeps: [("docs/ARCHITECTURE.md", "docs/ is this")];
}

#[test]
fn each_law_catches_a_planted_violation_and_lets_the_rest_pass() {
    for Law { name, check, breaks, keeps } in all_laws() {
        for (path, text) in breaks {
            let findings = check(&Tree::of(path, text.clone()));
            assert!(!findings.is_empty(), "{name} does not see what is wrong in {path}:\n{text}");
        }
        for (path, text) in keeps {
            let findings = check(&Tree::of(path, text.clone()));
            assert!(findings.is_empty(), "{name} is wrong about {path}:\n{text}\n{findings:?}");
        }
    }
}
