//! The tree's own laws, each a test over its source files.
//!
//! A law that is not run is forgotten, and a law that cannot fail is none: each one here brings
//! samples that break it and samples that keep it, and the last test tries them all.

#[path = "tidy/assets.rs"]
mod assets;
#[path = "tidy/blocks.rs"]
mod blocks;
#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/docs.rs"]
mod docs;
#[path = "tidy/languages.rs"]
mod languages;
#[macro_use]
#[path = "tidy/law.rs"]
mod law;
#[path = "tidy/layers.rs"]
mod layers;
#[path = "tidy/links.rs"]
mod links;
#[path = "tidy/prose.rs"]
mod prose;
#[path = "tidy/rust.rs"]
mod rust;
#[path = "tidy/style.rs"]
mod style;
#[path = "tidy/tree.rs"]
mod tree;
#[path = "tidy/words.rs"]
mod words;

use std::sync::LazyLock;

use law::Law;
use tree::Tree;

static REPOSITORY: LazyLock<Tree> = LazyLock::new(Tree::of_the_repository);

laws! {
    every_place_a_law_names_exists: layers::places_exist,
    breaks: [("README.md", "")],
    keeps: [];

    tests_that_the_pages_of_locks_and_faults_name_exist: docs::named_tests_exist,
    breaks: [
        ("docs/locks/a.md", "| a report | `redlock`: `a_test_that_nobody_wrote` |"),
        ("docs/locks/a.md", "| a report | `redlock`: `of_it_a_b`; `tulips::a_test_that_is_gone` |"),
        ("docs/locks/a.md", "| a report | `tulips`: all of it |"),
        ("docs/faults.md", "| 1 | a fault | `redlock::a_test_that_nobody_wrote` |"),
    ],
    keeps: [("docs/locks/a.md", "| a report | `Guard::lost`; cannot be ours |\nIn `a_b_c_d`.")];

    the_words_of_the_glossary_are_in_the_code: docs::terms_are_in_the_code,
    breaks: [("docs/glossary.md", "| lock | exclusion | `Guard`, `Locks::gone` | x | x |")],
    keeps: [("docs/glossary.md", "| lock | `exclusion` | - | `RLock` | x |")];

    the_first_pages_are_short: docs::first_pages_are_short,
    breaks: [
        ("README.md", "x\n".repeat(201)),
        ("docs/ARCHITECTURE.md", "x ".repeat(2501)),
    ],
    keeps: [("README.md", "x\n".repeat(200)), ("docs/a.md", "x ".repeat(2501))];

    the_site_has_every_page: docs::site_has_every_page,
    breaks: [("docs/locks/a.md", ""), ("docs/decisions/README.md", "")],
    keeps: [("docs/SUMMARY.md", ""), ("docs/decisions/0001-a.md", ""), ("README.md", "")];

    each_decision_says_when_and_why: docs::decisions_are_complete,
    breaks: [
        ("docs/decisions/0001-a.md", "Date: x\n## Context\n## Decision\n## Consequences"),
        ("docs/decisions/0001-a.md", "## Context\n## Decision"),
    ],
    keeps: [("docs/decisions/README.md", "# Decisions")];

    links_between_documents_lead_somewhere: links::links_resolve,
    breaks: [
        ("docs/a.md", "See [there](b.md)."),
        ("docs/a.md", "# One\n[below](#two)"),
        ("docs/a.md", "# One\n```\n# two\n```\n[below](a.md#two)"),
        ("docs/a.md", "![a picture](../a.png)"),
    ],
    keeps: [
        ("docs/a.md", "# One `b`: two\n# Two\n# Two\n[a](#one-b-two) [b](../docs/a.md#two-1)"),
        ("docs/a.md", "<a id=\"here\"></a>[a](#here), `[b](c)`, [c](https://example.com/#d)"),
        ("docs/a.md", "```\n[a](b.md)\n```"),
    ];

    pages_in_english_and_in_chinese_agree: languages::pairs_agree,
    breaks: [
        ("docs/locks/a.md", ""),
        ("docs/zh/a.md", ""),
        ("docs/locks/a.md", languages::sample("## 乙", "### 乙")),
        ("docs/locks/a.md", languages::sample("- 一。\n", "")),
        ("docs/locks/a.md", languages::sample("| a | 是 |\n", "")),
        ("docs/locks/a.md", languages::sample("是", "否")),
        ("docs/locks/a.md", languages::sample("2 ms", "3 ms")),
        ("docs/locks/a.md", languages::sample("SET", "GET")),
        ("docs/locks/a.md", languages::sample("make a", "make b")),
        ("docs/locks/a.md", languages::sample("(#乙)", "(../../locks/a.md#b)")),
        ("docs/locks/a.md", languages::sample("第二个持有者同时进入", "a second holder in")),
        ("docs/locks/a.md", languages::sample("乙)。", "乙)。so a second holder is in")),
        ("docs/locks/a.md", languages::sample("[English]", "\n\n\n[English]")),
    ],
    keeps: [("docs/locks/a.md", languages::sample("", "")), ("docs/a.md", "")];

    pages_that_files_name_exist: links::named_pages_exist,
    breaks: [
        ("src/a.rs", "//! See docs/lost.md."),
        ("Dockerfile", "# docs/lost.md; docs/a"),
    ],
    keeps: [("docs/a.md", "`docs/a.md`; mydocs/a"), ("tests/tidy.rs", "docs/lost.md")];

    members_depend_only_on_the_members_they_may_know: layers::members,
    breaks: [
        ("distlock/Cargo.toml", "[dependencies]\ntestbed.workspace = true"),
        ("distlock/Cargo.toml", "[dependencies.tools]\npath = \"../loadtest\""),
        ("loadtest/Cargo.toml", "[dev-dependencies]\nseckill = { path = \"..\" }"),
        ("loadtest/lab/Cargo.toml", "[dependencies]\nloadtest-report.workspace = true"),
        ("loadtest/judge/Cargo.toml", "[dev-dependencies]\nloadtest-lab.workspace = true"),
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

    no_circle_of_modules_has_a_folder_in_it: circles::folders_are_in_no_circle,
    breaks: [
        ("src/a.rs", "pub use b::X;\n>>> src/a/b.rs\nfn f() { crate::c::f() }\n\
            >>> src/c.rs\nuse crate::{d::Y, a::{b::Z as W}};\n"),
        ("src/lib.rs", "pub use a::X as Y;\n>>> src/a.rs\nuse crate::c::Z;\n\
            >>> src/a/b.rs\nmod b;\n>>> src/c.rs\nuse crate::Y;"),
        ("src/x.rs", "mod a;\n>>> src/x/a.rs\nuse super::c::Z;\n\
            >>> src/x/a/b.rs\nmod b;\n>>> src/x/c.rs\nuse super::a::Y;"),
    ],
    keeps: [
        ("src/x.rs", "mod b;\n>>> src/x/b.rs\nuse super::c;\n>>> src/x/c.rs\nuse super::b;"),
        ("src/a.rs", "mod b;\n>>> src/a/b.rs\nuse crate::c::X;\n>>> src/c.rs\n\
            #[cfg(test)]\nuse crate::a::b;"),
    ];

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
        ("loadtest/judge/src/verdict.rs", "fn f() { sqlx::query(x); }"),
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
        ("distlock/src/kinds.rs", "use crate::redis::lua_release;"),
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
        ("distlock/src/kind.rs", "fn f() { match k { LockKind::None => 1, _ => 2 } }"),
        (
            "src/sale/critical_section.rs",
            "fn f() { match k { Writer::Single => { 1 } other => 2 } }"
        ),
    ],
    keeps: [(
        "src/sale/critical_section.rs",
        "fn f() { match k { W::Single(_) => 1, W::Grouped(n) => n } }"
    )];

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

    types_are_named_by_nouns: words::types_are_nouns,
    breaks: [
        ("newcomer/src/a.rs", "struct Held;"),
        ("newcomer/src/a.rs", "enum Waiting {}"),
        ("newcomer/src/a.rs", "#[cfg(test)] mod tests { trait Others {} }"),
    ],
    keeps: [("newcomer/src/a.rs", "struct HeldLock; struct Housekeeping; enum Seed {}")];

    no_two_types_of_a_crate_share_a_name: words::types_have_no_twins,
    breaks: [("newcomer/src/a.rs", "mod a { struct Place; } mod b { enum Place {} }")],
    keeps: [("newcomer/src/a.rs", "mod a { struct Error; } mod b { struct Error; struct A; }")];

    prose_names_and_counts: words::prose_is_precise,
    breaks: [
        ("newcomer/src/a.rs", "/// It waits, in vain,\n/// for an answer.\nfn f() {}"),
        ("newcomer/a.lua", "-- Purpose: tell\n-- whoever waits"),
        ("newcomer/a.md", "One of them\nis himself."),
        ("newcomer/a.md", "| a | nobody's |"),
        ("src/a.rs", "fn f() { say(\"whoever waits\") }"),
    ],
    keeps: [
        ("newcomer/src/a.rs", "fn f() { say(nobody, \"x\") } // `nobody` is a name"),
        ("newcomer/a.md", "```\nnobody\n```\nThe holder `whoever am i` waits."),
    ];

    sentences_have_at_most_30_words: words::sentences_are_short,
    breaks: [
        ("newcomer/src/a.rs", format!("//! {}\n//! {}.", "a ".repeat(20), "b ".repeat(11))),
        ("newcomer/a.md", format!("- {}", "word ".repeat(31))),
        ("newcomer/a.md", format!("一。{}`x`。", "字".repeat(80))),
    ],
    keeps: [
        ("newcomer/src/a.rs", format!("//! {}.\n//!\n//! {}", "a ".repeat(20), "b ".repeat(20))),
        ("newcomer/a.md", format!("- {}\n- {}", "word ".repeat(30), "word ".repeat(30))),
        ("newcomer/a.md", format!("One `{}`. Two.", "x ".repeat(31))),
        ("newcomer/a.md", format!("{0}`x y`。{0} Redis。", "字".repeat(79))),
    ];

    summaries_of_documentation_stand_alone: words::summaries_stand_alone,
    breaks: [("newcomer/src/a.rs", "/// The same, later.\nfn f() {}")],
    keeps: [("newcomer/src/a.rs", "/// Locks.\n///\n/// It waits.\nfn f() {}")];

    metrics_have_units_and_descriptions: words::metrics_follow_the_conventions,
    breaks: [
        ("src/a.rs", "fn f() { counter!(\"seckill_orders\"); }"),
        ("src/telemetry.rs", "fn f() { metrics::histogram!(\"seckill_order_time\") }"),
        ("src/telemetry.rs", "fn f() { gauge!(\"seckill_places_total\") }"),
    ],
    keeps: [("src/telemetry.rs", "fn f() { gauge!(\"seckill_places\"); }")];

    the_architecture_page_names_every_folder: assets::architecture_names_every_folder,
    breaks: [("docs/ARCHITECTURE.md", ""), ("src/store/mod.rs", "")],
    keeps: [("docs/ARCHITECTURE.md", "docs/ is this")];
}

#[test]
fn each_law_catches_its_bad_samples_and_accepts_the_good_ones() {
    for Law { name, check, breaks, keeps } in all_laws() {
        for (path, text) in breaks {
            let findings = check(&Tree::of(path, &text));
            assert!(!findings.is_empty(), "{name} does not see what is wrong in {path}:\n{text}");
        }
        for (path, text) in keeps {
            let findings = check(&Tree::of(path, &text));
            assert!(findings.is_empty(), "{name} is wrong about {path}:\n{text}\n{findings:?}");
        }
    }
}
