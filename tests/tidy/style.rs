//! Sizes, and what must not be left in the tree.

use crate::layers::LABORATORY;
use crate::tree::{File, Tree};

const MAX_FILE_LINES: usize = 400;
const MAX_FUNCTION_LINES: usize = 70;
const MAX_COLUMNS: usize = 100;
const MAX_PARAMETERS: usize = 5;

const MAX_CLIENT_LINES: usize = 400;

/// The library of each client, and the end of its files' names.
const CLIENTS: [(&str, &str); 3] =
    [("clients/go/", ".go"), ("clients/node/src/", ".ts"), ("clients/python/src/", ".py")];
/// What lies beside a client's library: tests, and programs with folders of their own.
const BESIDE_CLIENTS: [&str; 2] = ["clients/go/contender/", "clients/go/generate/"];

/// What people write by hand and read as code; prose and data have no limits.
const CODE: [&str; 14] = [
    ".rs",
    ".lua",
    ".sql",
    ".js",
    ".mjs",
    ".ts",
    ".py",
    ".go",
    ".css",
    ".html",
    ".sh",
    "Makefile",
    "Dockerfile",
    ".ci/run",
];

/// How a program begins that Go has generated.
const GENERATED: &str = "// Code generated ";

/// The laws and their samples of what is forbidden.
pub(crate) const LAWS: [&str; 2] = ["tests/tidy.rs", "tests/tidy/"];

pub(crate) fn files_are_short(tree: &Tree) -> Vec<String> {
    let own = tree.ending(&CODE).filter(|file| !file.is_vendored());
    let long = own.filter(|file| file.text.lines().count() > MAX_FILE_LINES);
    long.map(|file| {
        let lines = file.text.lines().count();
        file.at(MAX_FILE_LINES + 1, &format!("{lines} lines, of {MAX_FILE_LINES} at most"))
    })
    .collect()
}

pub(crate) fn clients_are_small(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (folder, end) in CLIENTS {
        let is_library = |file: &&File| {
            let is_test = file.path.ends_with("_test.go") || file.under(&BESIDE_CLIENTS);
            file.under(&[folder]) && !is_test && !file.text.starts_with(GENERATED)
        };
        let files: Vec<&File> = tree.ending(&[end]).filter(is_library).collect();
        let lines: usize = files.iter().map(|file| lines_of_code(file)).sum();
        if let Some(file) = files.first().filter(|_| lines > MAX_CLIENT_LINES) {
            let what = format!("{folder} has {lines} lines of code, of {MAX_CLIENT_LINES} at most");
            found.push(file.at(1, &what));
        }
    }
    found
}

/// Neither blank lines nor those of comments, which Python's documentation is as well.
fn lines_of_code(file: &File) -> usize {
    let extension = file.path.rsplit_once('.').map(|(_, extension)| extension);
    let (mark, begin, end) =
        if extension == Some("py") { ("#", "\"\"\"", "\"\"\"") } else { ("//", "/*", "*/") };
    let mut in_comment = false;
    let is_code = |line: &&str| {
        let rest = line.trim();
        let opened = if in_comment { Some(rest) } else { rest.strip_prefix(begin) };
        in_comment = opened.is_some_and(|text| !text.contains(end));
        opened.is_none() && !rest.is_empty() && !rest.starts_with(mark)
    };
    file.text.lines().filter(is_code).count()
}

pub(crate) fn lines_are_short(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    let is_written = |file: &&File| !file.is_vendored() && !file.text.starts_with(GENERATED);
    for file in tree.ending(&CODE).filter(is_written) {
        for (line, text) in file.lines() {
            let columns = text.chars().count();
            if columns > MAX_COLUMNS && !text.contains("://") {
                found.push(file.at(line, &format!("{columns} columns, of {MAX_COLUMNS} at most")));
            }
        }
    }
    found
}

pub(crate) fn functions_are_short(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in &tree.files {
        for function in file.functions() {
            let (name, lines) = (&function.name, function.lines);
            if lines > MAX_FUNCTION_LINES {
                let what = format!("`{name}` has {lines} lines, of {MAX_FUNCTION_LINES} at most");
                found.push(file.at(function.line, &what));
            }
        }
    }
    found
}

pub(crate) fn parameters_are_few(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in &tree.files {
        for function in file.functions() {
            let (name, count) = (&function.name, function.parameters);
            if count > MAX_PARAMETERS {
                let what =
                    format!("`{name}` takes {count}, of {MAX_PARAMETERS} at most: a struct?");
                found.push(file.at(function.line, &what));
            }
        }
    }
    found
}

pub(crate) fn nothing_is_unfinished(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in &tree.files {
        for pair in file.tokens().windows(3) {
            let leftover = pair[0].is_any(&["todo", "unimplemented", "dbg"]) && pair[1].is("!");
            let skipped = pair[0].is("#") && pair[1].is("[") && pair[2].is("ignore");
            if leftover || skipped {
                found.push(file.at(pair[0].line, "unfinished, ignored or left from debugging"));
            }
        }
        if file.under(&LAWS) {
            continue;
        }
        for (line, text) in file.lines() {
            for marker in ["TODO", "FIXME", "XXX"] {
                let note = text.split_once(marker).map(|(_, note)| note);
                if note.is_some_and(|note| note.split_whitespace().count() < 2) {
                    found.push(file.at(line, &format!("{marker} without saying what")));
                }
            }
        }
    }
    found
}

pub(crate) fn no_machine_paths(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| !file.under(&LAWS)) {
        for (line, text) in file.lines().filter(|(_, text)| names_a_machine_path(text)) {
            found.push(file.at(line, &format!("a path of one machine: {}", text.trim())));
        }
    }
    found
}

/// Whether a path into a user's home or work folder begins in this line.
fn names_a_machine_path(text: &str) -> bool {
    ["/home/", "/root/", "/Users/", "/work/", "/mnt/"].iter().any(|place| {
        text.match_indices(place).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || "._-*}~".contains(c))
        })
    })
}

pub(crate) fn no_bare_unwrap(tree: &Tree) -> Vec<String> {
    let law = "`unwrap()` outside of tests: return the error, or `expect(\"why it cannot be\")`";
    let places = [&["src/", "distlock/src/", "testbed/src/"], &LABORATORY[..]].concat();
    tree.find(". unwrap ( )", &places, &[], law)
}
