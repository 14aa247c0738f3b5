//! The dependencies that packages and layers may have.

use crate::tree::{File, Tree};

/// The product's layers, lowest first; each may know those before it.
const LAYERS: [&str; 5] = ["domain", "store", "sale", "http", "app"];

/// Each member, the members it may depend on, and those only its tests may.
const MEMBERS: [(&str, &[&str], &[&str]); 12] = [
    ("Cargo.toml", &["distlock"], &["testbed"]),
    ("conformance/Cargo.toml", &["distlock", "testbed"], &["loadtest-measure"]),
    ("distlock/Cargo.toml", &["distlock-macros"], &["testbed"]),
    ("distlock/macros/Cargo.toml", &[], &[]),
    (
        "loadtest/Cargo.toml",
        &[
            "loadtest-board",
            "loadtest-report",
            "loadtest-lab",
            "loadtest-judge",
            "loadtest-load",
            "loadtest-measure",
            "testbed",
        ],
        &["distlock"],
    ),
    (
        "loadtest/board/Cargo.toml",
        &["loadtest-report", "loadtest-lab", "loadtest-judge", "loadtest-load", "loadtest-measure"],
        &["testbed"],
    ),
    (
        "loadtest/report/Cargo.toml",
        &["loadtest-lab", "loadtest-judge", "loadtest-load", "loadtest-measure"],
        &[],
    ),
    (
        "loadtest/lab/Cargo.toml",
        &["loadtest-judge", "loadtest-load", "loadtest-measure", "testbed"],
        &[],
    ),
    ("loadtest/judge/Cargo.toml", &["loadtest-load", "loadtest-measure"], &["testbed"]),
    ("loadtest/load/Cargo.toml", &["loadtest-measure"], &[]),
    ("loadtest/measure/Cargo.toml", &["testbed"], &[]),
    ("testbed/Cargo.toml", &[], &[]),
];

/// The sources of the laboratory, from its lowest layer on.
pub(crate) const LABORATORY: [&str; 7] = [
    "loadtest/measure/src/",
    "loadtest/load/src/",
    "loadtest/judge/src/",
    "loadtest/lab/src/",
    "loadtest/report/src/",
    "loadtest/board/src/",
    "loadtest/src/",
];
/// Its files that speak to a database.
const LABORATORY_SQL: [&str; 4] = [
    "loadtest/measure/src/database_settings.rs",
    "loadtest/judge/src/audit.rs",
    "loadtest/src/bench/revoked.rs",
    "loadtest/lab/src/faults/galera.rs",
];

const POOLS: &str = "src/store/pools.rs";
const PRODUCT: [&str; 2] = ["src/", "distlock/src/"];

/// Where the laws say "only here": a law about a file that was renamed would hold of nothing.
pub(crate) fn places_exist(tree: &Tree) -> Vec<String> {
    let places = [
        "src/domain/",
        "src/store/",
        POOLS,
        "src/sale/critical_section.rs",
        "src/http/error.rs",
        "src/app.rs",
        "src/main.rs",
        "src/config.rs",
        "src/config/",
        "src/telemetry.rs",
        "distlock/src/redis/",
        "distlock/src/tower.rs",
        "distlock/src/kind.rs",
        "distlock/src/kinds.rs",
        LABORATORY_SQL[0],
        LABORATORY_SQL[1],
        "migrations/",
        "lua/",
        "docs/ARCHITECTURE.md",
    ];
    let places = [&places[..], &LABORATORY].concat();
    let exists = |place: &&str| tree.files.iter().any(|file| file.under(&[place]));
    let gone = places.iter().filter(|place| !exists(place));
    gone.map(|place| format!("{place} does not exist, but a law is about it")).collect()
}

pub(crate) fn members(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.ending(&["Cargo.toml"]) {
        let Some((_, product, tests)) = MEMBERS.iter().find(|(path, ..)| *path == file.path) else {
            found.push(file.at(1, "a member this law does not know: who may know it?"));
            continue;
        };
        let mut section = "";
        for (line, text) in file.lines() {
            if let Some(header) = text.trim().strip_prefix('[') {
                section = header.trim_end_matches(']');
            }
            let Some(member) = dependency(section, text) else { continue };
            let known = if section.contains("dev-dependencies") { tests } else { product };
            if !known.contains(&member) && !product.contains(&member) {
                found.push(file.at(line, &format!("may not depend on the member `{member}`")));
            }
        }
    }
    found
}

/// The member that this line of a manifest depends on, under its own name or another.
fn dependency<'a>(section: &str, text: &'a str) -> Option<&'a str> {
    if !section.contains("dependencies") || section.starts_with("workspace") {
        return None;
    }
    let is_member = |word: &&str| MEMBERS.iter().any(|(path, ..)| package(path) == *word);
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let words = text.split('#').next().unwrap_or_default().split(|c| !is_word(c));
    words.into_iter().find(is_member)
}

/// The name of the package with that manifest: its folders, joined.
fn package(manifest: &str) -> String {
    let folder = manifest.strip_suffix("/Cargo.toml");
    folder.map_or_else(|| "seckill".to_owned(), |folder| folder.replace('/', "-"))
}

pub(crate) fn layers_look_down(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (height, layer) in LAYERS.iter().enumerate() {
        let places = [format!("src/{layer}/"), format!("src/{layer}.rs")];
        for file in tree.rust(&[&places[0], &places[1]], &[]) {
            for (line, name) in own_modules(file) {
                if LAYERS[height + 1..].contains(&name) {
                    found.push(file.at(line, &format!("`{layer}` may not know `{name}`")));
                }
            }
        }
    }
    found
}

/// The modules named after `crate::` and `super::`, one by one or in braces.
fn own_modules(file: &File) -> Vec<(usize, &str)> {
    let code = file.code();
    let mut names = Vec::new();
    for (at, window) in code.windows(3).enumerate() {
        if !window[0].is_any(&["crate", "super"]) || !window[1].is("::") {
            continue;
        }
        names.push((window[2].line, window[2].text.as_str()));
        if !window[2].is("{") {
            continue;
        }
        let mut depth = 0_u32;
        for pair in code[at + 2..].windows(2) {
            depth += u32::from(pair[0].is("{"));
            depth -= u32::from(pair[0].is("}"));
            if depth == 0 {
                break;
            }
            if depth == 1 && pair[0].is_any(&["{", ","]) {
                names.push((pair[1].line, pair[1].text.as_str()));
            }
        }
    }
    names
}

pub(crate) fn locks(tree: &Tree) -> Vec<String> {
    let law = "only the sale and the composition root know `distlock`";
    let mut found =
        tree.find("distlock ::", &["src/domain/", "src/store/", "src/http/"], &[POOLS], law);
    // The service and its locks use one connection to Redis.
    let law = "of `distlock` the store knows the connection to Redis and the form of keys";
    let all = tree.find("distlock ::", &[POOLS], &[], law);
    let known =
        ["distlock :: RedisAddress", "distlock :: RedisConnection", "distlock :: RedisKeys"];
    let known = known.map(|known| tree.find(known, &[POOLS], &[], law)).concat();
    found.extend(all.into_iter().filter(|line| !known.contains(line)));
    found
}

pub(crate) fn domain_does_no_io(tree: &Tree) -> Vec<String> {
    let doers = [
        "sqlx ::",
        "redis ::",
        "tokio ::",
        "axum ::",
        "hyper ::",
        "std :: fs",
        "std :: net",
        "std :: io",
        "std :: process",
        "std :: env",
        "std :: thread",
    ];
    let law = "`domain` does no I/O";
    doers.iter().flat_map(|doer| tree.find(doer, &["src/domain/"], &[], law)).collect()
}

pub(crate) fn sql(tree: &Tree) -> Vec<String> {
    let allowed = [&["src/store/", "distlock/src/mysql/"], &LABORATORY_SQL[..]].concat();
    let mut found = Vec::new();
    for file in tree.rust(&[&PRODUCT[..], &LABORATORY].concat(), &allowed) {
        for token in file.code() {
            if token.string().is_some_and(looks_like_sql) {
                let law = "SQL stands only in `store`, `mysql` and `LABORATORY_SQL`";
                found.push(file.at(token.line, law));
            }
        }
    }
    let law = "only `LABORATORY_SQL` speaks to a database";
    found.extend(tree.find("sqlx ::", &LABORATORY, &allowed, law));
    found
}

fn looks_like_sql(text: &str) -> bool {
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let follow = |first: &str, second: &str| words.windows(2).any(|pair| pair == [first, second]);
    // Alone it is a command of Redis.
    (words.contains(&"SELECT") && text != "SELECT")
        || (words.contains(&"UPDATE") && words.contains(&"SET"))
        || follow("INSERT", "INTO")
        || follow("DELETE", "FROM")
        || follow("FOR", "UPDATE")
        || follow("START", "TRANSACTION")
        || follow("SET", "SESSION")
        || ["CREATE", "ALTER", "DROP"].iter().any(|verb| {
            ["TABLE", "DATABASE", "USER", "INDEX"].iter().any(|what| follow(verb, what))
        })
        || ["COMMIT", "ROLLBACK", "BEGIN"].contains(&text.trim())
}

pub(crate) fn redis(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.rust(&PRODUCT, &["src/store/", "distlock/src/redis/"]) {
        // After `::` it is a module of ours: `crate::redis::...`.
        for window in file.code().windows(3) {
            if !window[0].is("::") && window[1].is("redis") && window[2].is("::") {
                let law = "the crate `redis` stands only in `store` and in distlock's `redis`";
                found.push(file.at(window[1].line, law));
            }
        }
    }
    found
}

pub(crate) fn axum(tree: &Tree) -> Vec<String> {
    let law = "`axum` stands only in `http`, app.rs and main.rs";
    tree.find("axum ::", &PRODUCT, &["src/http/", "src/app.rs", "src/main.rs"], law)
}

pub(crate) fn status_codes(tree: &Tree) -> Vec<String> {
    let law = "status codes stand only in http/error.rs and http/success.rs, and in LockLayer";
    let places = ["src/http/error.rs", "src/http/success.rs", "distlock/src/tower.rs"];
    tree.find("StatusCode ::", &PRODUCT, &places, law)
}

pub(crate) fn environment(tree: &Tree) -> Vec<String> {
    let law = "the environment is read only by the configuration";
    let allowed = ["src/config.rs", "src/config/"];
    let reads = ["env :: var", "env :: vars", "env :: var_os", "env :: vars_os", "env :: {"];
    let mut found: Vec<String> =
        reads.iter().flat_map(|read| tree.find(read, &PRODUCT, &allowed, law)).collect();
    // clap reads it too: `#[arg(long, env)]`, `#[arg(env = "PORT")]`.
    for file in tree.rust(&PRODUCT, &allowed) {
        for line in file.lines_with("# [ arg (") {
            let arguments = file.code().into_iter().filter(|token| token.line >= line);
            let mut arguments = arguments.skip(4).take_while(|token| !token.is("]"));
            if arguments.any(|token| token.is("env")) {
                found.push(file.at(line, law));
            }
        }
    }
    found
}

/// Where globals are.
const TELEMETRY: [&str; 2] = ["src/telemetry.rs", "src/telemetry/traces/"];

pub(crate) fn globals(tree: &Tree) -> Vec<String> {
    let law = "no globals but telemetry's: state is handed down from app.rs";
    let mutable =
        ["OnceLock", "LazyLock", "OnceCell", "LazyCell", "Mutex", "RwLock", "Cell", "RefCell"];
    let places = [&PRODUCT[..], &LABORATORY].concat();
    let mut found = tree.find("static mut", &places, &[], law);
    for macro_call in ["lazy_static !", "thread_local !"] {
        found.extend(tree.find(macro_call, &places, &TELEMETRY, law));
    }
    for file in tree.rust(&places, &TELEMETRY) {
        let code = file.code();
        for (at, token) in code.iter().enumerate().filter(|(_, token)| token.is("static")) {
            let mut kind = code[at..].iter().take_while(|token| !token.is("="));
            // A script and its digest, or a file that is parsed, are a constant that the compiler
            // cannot work out.
            if kind.clone().any(|part| part.is_any(&["LuaScript", "TextTable"])) {
                continue;
            }
            if kind.any(|part| part.is_any(&mutable) || part.text.starts_with("Atomic")) {
                found.push(file.at(token.line, law));
            }
        }
    }
    found
}

/// A catch-all arm would let a new kind or writer slip through unseen by the compiler.
pub(crate) fn no_catch_all(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.rust(
        &["distlock/src/kind.rs", "distlock/src/kinds.rs", "src/sale/critical_section.rs"],
        &[],
    ) {
        for window in file.code().windows(3) {
            let starts_arm = window[0].is_any(&["{", "}", ",", "]"]);
            let takes_all = window[1].is_name() && !window[1].text.starts_with(char::is_uppercase);
            if starts_arm && takes_all && window[2].is("=>") {
                found.push(file.at(window[1].line, "name every variant: no catch-all arm here"));
            }
        }
    }
    found
}

/// One match per choice: code elsewhere asks a kind for its guarantees, not for its name.
pub(crate) fn kinds(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    let allowed = ["distlock/src/kind.rs", "distlock/src/kinds.rs"];
    for file in tree.rust(&PRODUCT, &allowed) {
        let code = file.code();
        let mut matches_ends = 0;
        for (at, window) in code.windows(5).enumerate() {
            if window[0].is("matches") && window[1].is("!") {
                let line = code[at..].iter().position(|token| token.is(";"));
                matches_ends = at + line.unwrap_or(0);
            }
            if !window[1].is("LockKind") || !window[2].is("::") || !window[3].is_name() {
                continue;
            }
            let compared = window[0].is_any(&["==", "!=", "|", "let"]);
            let is_pattern = window[4].is_any(&["=>", "|", "if", "==", "!="]);
            if compared || is_pattern || at < matches_ends {
                found.push(
                    file.at(
                        window[1].line,
                        "lock kinds are told apart only in kind.rs and kinds.rs",
                    ),
                );
            }
        }
    }
    found
}
