//! Laws of packages, layers and modules.

use crate::law::{Law, laws};
use crate::{REPOSITORY, circles, layers};

laws! {
    every_place_a_law_names_exists: layers::places_exist,
    breaks: [("README.md", "")],
    keeps: [];

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

    layers_depend_only_on_lower_ones: layers::layers_look_down,
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

    sql_is_only_in_the_store_and_in_the_locks_of_mysql: layers::sql,
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

    redis_is_used_only_by_the_store_and_the_lock_library: layers::redis,
    breaks: [
        ("src/app.rs", "use redis::Client;"),
        ("distlock/src/local.rs", "fn f() { redis::cmd(\"GET\"); }"),
    ],
    keeps: [
        ("src/store/codes.rs", "use redis::Script;"),
        ("distlock/src/kinds.rs", "use crate::redis::lua_release;"),
    ];

    axum_is_used_only_in_http_and_the_root: layers::axum,
    breaks: [("src/sale/mod.rs", "use axum::Json;")],
    keeps: [("src/http/mod.rs", "use axum::Json;")];

    status_codes_are_used_only_in_the_table_of_errors: layers::status_codes,
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
        ("loadtest/report/src/a.rs", "static TEXTS: LazyLock<TextTable> = LazyLock::new(f);"),
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

    lock_kinds_are_matched_only_in_the_registry: layers::kinds,
    breaks: [
        ("src/sale/mod.rs", "fn f() { match k { LockKind::Local => 1, x => 2 } }"),
        ("src/config.rs", "fn f() { if self.lock == LockKind::None { g() } }"),
        ("src/config.rs", "fn f() { g(matches!(kind, LockKind::None)); }"),
    ],
    keeps: [("src/config.rs", "fn f() { Config { lock: LockKind::None, wait: 1 } }")];
}
