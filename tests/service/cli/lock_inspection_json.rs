//! The JSON of `seckill lock ls` and `show`, compared with its table in docs/inspector.md.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::lock_run::{Bench, until};
use super::run;

/// By path, the types that a value has there.
type Schema = BTreeMap<String, BTreeSet<String>>;

/// The table of the page under that heading.
fn documented() -> Schema {
    let page = include_str!("../../../docs/inspector.md");
    let (_, table) = page.split_once("\n## JSON\n").expect("a heading");
    let rows = table.split("\n## ").next().unwrap_or_default().lines();
    let rows = rows.filter(|row| row.starts_with("| `"));
    let schema = rows.map(|row| {
        let mut cells = row.split(" | ");
        let path = cells.next().expect("a path").trim_matches(['|', ' ', '`']).to_owned();
        let types = cells.next().expect("a type").split(" or ").map(str::to_owned);
        (path, types.collect())
    });
    schema.collect()
}

/// Adds what a value and its parts are.
fn add(schema: &mut Schema, path: &str, value: &Value) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if !path.is_empty() {
        schema.entry(path.to_owned()).or_default().insert(kind.to_owned());
    }
    match value {
        Value::Array(items) => items.iter().for_each(|it| add(schema, &format!("{path}[]"), it)),
        Value::Object(fields) => {
            for (name, field) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                add(schema, &format!("{path}{dot}{name}"), field);
            }
        }
        _ => {}
    }
}

/// What a command prints, whatever its exit code is.
fn json(line: &[&str], bench: &Bench) -> Value {
    let ended = run(line, &bench.env());
    serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"))
}

#[test]
fn every_field_of_the_json_is_on_the_page_with_its_type_and_no_other_is() {
    let mut bench = Bench::new();
    run(&["migrate"], &bench.env()).fine();
    let prefix = bench.name.clone();
    let mut running = Vec::new();
    for kind in ["redisson", "getset-timestamp", "mysql-table", "fair", "set-nx"] {
        bench.name = format!("{prefix} {kind}");
        let hold = format!("touch held-{kind}; sleep 600");
        running.push(bench.start(&["--kind", kind, "--lease", "5m"], &hold));
        bench.until_there(&format!("held-{kind}"));
    }
    bench.name = format!("{prefix} fair");
    running.push(bench.start(&["--kind", "fair", "--wait", "1m"], "true"));
    bench.redis::<()>(&["RPUSH", &format!("{prefix} list"), "x"]);

    let mut seen = Schema::new();
    let show = ["lock", "show", &bench.name, "--kind", "fair", "--json"];
    until("one waits", || {
        json(&show, &bench)["waiters"]["ids"].as_array().is_some_and(|ids| ids.len() == 1)
    });
    let shown = json(&show, &bench);
    let waiter = running.last().expect("it waits").id();
    assert_eq!(shown["waiters"]["tags"][0]["process"], waiter, "{shown}");
    add(&mut seen, "locks[]", &shown);
    let dead = "redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3";
    let ls = ["lock", "ls", "--json", "--prefix", &prefix, "--redlock-urls", dead];
    add(&mut seen, "", &json(&ls, &bench));
    // Only elements of arrays have a row, and arrays have none of their own.
    seen.retain(|path, types| {
        !(path.is_empty() || types.contains("array") || types.contains("object"))
    });
    assert_eq!(seen, documented());
    drop(running);
}
