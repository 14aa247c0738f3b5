//! Scripts, migrations, documents, and files that nothing uses.

use std::collections::BTreeSet;

use crate::layers::LABORATORY;
use crate::tree::{File, Tree};

/// Scripts of sysbench, which no Redis runs.
const BENCHES: [&str; 1] = ["loadtest/benches/"];

pub(crate) fn lua_has_headers(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.ending(&[".lua"]).filter(|file| !file.under(&BENCHES)) {
        let header = file.lines().map(|(_, text)| text).take_while(|text| text.starts_with("--"));
        let header = header.collect::<Vec<_>>().join("\n");
        for word in ["Purpose", "KEYS", "ARGV", "Returns"] {
            if !header.contains(word) {
                found.push(file.at(1, &format!("the opening comment does not say: {word}")));
            }
        }
    }
    found
}

pub(crate) fn lua_is_used(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.ending(&[".lua"]).filter(|file| !file.under(&BENCHES)) {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        if !is_named_in_code(tree, &format!("/{name}")) {
            found.push(file.at(1, "no Rust file includes this script"));
        }
    }
    found
}

/// Whether a string of the program (not of these laws) contains `text`.
fn is_named_in_code(tree: &Tree, text: &str) -> bool {
    let strings = |file: &File| {
        file.tokens().iter().any(|token| token.string().is_some_and(|inner| inner.contains(text)))
    };
    tree.rust(&[&["src/", "distlock/src/"], &LABORATORY[..]].concat(), &[]).any(strings)
}

/// Data that `deploy/` gives to a client of the database is none.
fn migrations(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.ending(&[".sql"]).filter(|file| !file.path.starts_with("deploy/"))
}

pub(crate) fn migrations_are_single_statements(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in migrations(tree) {
        if !file.text.starts_with("--") {
            found.push(file.at(1, "a migration opens with a comment that says what it is for"));
        }
        let bare = without_comments_and_strings(&file.text);
        let statements: Vec<&str> =
            bare.split(';').map(str::trim).filter(|statement| !statement.is_empty()).collect();
        // A row that must be there, and may be there already, is as good as a table.
        let verbs = ["CREATE", "ALTER", "DROP", "RENAME", "INSERT IGNORE INTO"];
        let is_ddl = |text: &str| verbs.iter().any(|verb| text.to_uppercase().starts_with(verb));
        // DDL commits by itself: a file of two statements that fails half way cannot be run again.
        if statements.len() != 1 || !statements.iter().all(|text| is_ddl(text)) {
            let count = statements.len();
            found.push(
                file.at(1, &format!("not one statement that may run twice ({count} statements)")),
            );
        }
    }
    found
}

fn without_comments_and_strings(sql: &str) -> String {
    let mut bare = String::new();
    let mut rest = sql;
    while let Some(at) = rest.find(['\'', '-']) {
        bare.push_str(&rest[..at]);
        let (end, skipped) = match &rest.as_bytes()[at..] {
            [b'-', b'-', ..] => ('\n', 2),
            [b'\'', ..] => ('\'', 1),
            _ => ('-', 0),
        };
        let after = &rest[at + skipped..];
        rest = after.split_once(end).map_or("", |(_, rest)| rest);
    }
    bare + rest
}

/// A file without a number stops every migration, and a folder that no code names is skipped.
pub(crate) fn migrations_are_used(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in migrations(tree) {
        let (folder, name) = file.path.rsplit_once('/').unwrap_or_default();
        let (number, words) = name.split_once('_').unwrap_or_default();
        if number.parse::<u32>().is_err() || words.len() <= ".sql".len() {
            found.push(file.at(1, "the migrator refuses it: it is not named <number>_<words>.sql"));
        }
        if !is_named_in_code(tree, folder) {
            found.push(file.at(1, "no Rust file gives its folder to the migrator"));
        }
    }
    found
}

/// A Rust file that no `mod` names is not even compiled.
pub(crate) fn modules_are_declared(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| file.is_rust()) {
        let Some((root, inside)) = file.path.split_once("src/") else { continue };
        let inside =
            inside.strip_suffix("/mod.rs").or(inside.strip_suffix(".rs")).unwrap_or(inside);
        let name = inside.rsplit('/').next().unwrap_or(inside);
        if inside.starts_with("bin/") || inside == "main" || inside == "lib" {
            continue;
        }
        let source = format!("{root}src/");
        let file_name = file.path.rsplit('/').next().unwrap_or_default();
        let declares = |other: &File| {
            other.tokens().windows(3).any(|window| {
                let declared = window[0].is("mod") && window[1].is(name);
                let by_path = window[0].is("path") && window[2].string() == Some(file_name);
                declared || by_path
            })
        };
        if !tree.rust(&[&source], &[]).any(declares) {
            found.push(file.at(1, "no `mod` declares this file, so it is not compiled"));
        }
    }
    found
}

/// Where a file of others comes from, and under which terms, stands beside it.
pub(crate) fn vendored_files_have_a_source(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| file.is_vendored()) {
        let (folder, name) = file.path.rsplit_once('/').unwrap_or_default();
        if matches!(name, "LICENSE" | "README.md") {
            continue;
        }
        let beside = |name: &str| {
            let path = format!("{folder}/{name}");
            tree.files.iter().find(|other| other.path == path)
        };
        if beside("LICENSE").is_none() {
            found.push(file.at(1, "the terms of its authors (LICENSE) are not beside it"));
        }
        if !beside("README.md").is_some_and(|readme| readme.text.contains(name)) {
            found.push(file.at(1, "the README.md beside it does not say where it comes from"));
        }
    }
    found
}

pub(crate) fn architecture_names_every_folder(tree: &Tree) -> Vec<String> {
    let page = "docs/ARCHITECTURE.md";
    let text = tree.ending(&[page]).map(|file| file.text.as_str()).collect::<String>();
    let mut folders = BTreeSet::new();
    for file in tree.files.iter().filter(|file| !file.path.starts_with('.')) {
        for (at, _) in file.path.match_indices('/') {
            let folder = &file.path[..=at];
            let is_top = folder.matches('/').count() == 1;
            let is_module = folder.contains("src/") && !folder.ends_with("src/");
            if is_top || is_module {
                folders.insert(folder);
            }
        }
    }
    let unnamed = folders.into_iter().filter(|folder| !text.contains(folder));
    unnamed.map(|folder| format!("{page}:1: does not say what {folder} is for")).collect()
}
