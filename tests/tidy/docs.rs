//! What documents say of the tests.

use crate::style::LAWS;
use crate::tree::{File, Tree, has_extension};

/// The pages that name the test of each flaw and of each report, and that of each fault.
const PAGES: [&str; 2] = ["docs/locks/", "docs/faults.md"];
/// The most lines of the first page, and the most words of the map.
const README_LINES: usize = 200;
const ARCHITECTURE_WORDS: usize = 2500;
/// What each record of a decision says, in this order.
const RECORD: [&str; 4] = ["Date: ", "## Context", "## Decision", "## Consequences"];
const CONTENTS: &str = "docs/SUMMARY.md";
const KINDS: &str = "docs/locks/guarantees.md";
const RECORDS: &str = "docs/decisions/";
pub(crate) const GLOSSARY: &str = "docs/glossary.md";
/// The column of the glossary that names what to search for.
const GLOSSARY_CODE: usize = 3;
/// A name with so many underscores is a sentence, which only tests are called by.
const SENTENCE: usize = 3;

/// A quoted name with this many underscores is a test, except those of metrics and settings.
const LONG_SENTENCE: usize = 5;
const METRICS: [&str; 4] = ["seckill_", "distlock_", "haproxy_", "innodb_"];
const DESCRIPTIONS: &str = "src/telemetry/descriptions.rs";
/// What Prometheus appends to the name of a histogram.
const SERIES: [&str; 3] = ["_bucket", "_sum", "_count"];

/// Every test that a page, or a comment in Rust, quotes is there.
pub(crate) fn quoted_tests_exist(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.ending(&[".md", ".rs"]).filter(|file| !file.under(&LAWS)) {
        let mut in_fence = false;
        for (line, text) in file.lines() {
            in_fence ^= text.trim_start().starts_with("```");
            if in_fence || (file.is_rust() && !text.trim_start().starts_with("//")) {
                continue;
            }
            for code in text.split('`').skip(1).step_by(2) {
                let (place, test) = match code.split_once("::") {
                    Some((place, test)) if is_name(place) && is_sentence(test) => {
                        (Some(place), test)
                    }
                    _ if is_long_sentence(code) => (None, code),
                    _ => continue,
                };
                if !tree.files.iter().any(|file| holds(file, place, test)) {
                    found.push(file.at(line, &format!("there is no test `{code}`")));
                }
            }
        }
    }
    found
}

/// Every test that the pages name is there, and in the file that it names.
pub(crate) fn named_tests_exist(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.ending(&[".md"]).filter(|file| file.under(&PAGES)) {
        for (line, row) in file.lines().filter(|(_, row)| row.starts_with('|')) {
            for (place, test) in named(row) {
                if !tree.files.iter().any(|file| holds(file, place, test)) {
                    let place = place.unwrap_or("the tree");
                    found.push(file.at(line, &format!("there is no test `{test}` in {place}")));
                }
            }
        }
    }
    found
}

pub(crate) fn first_pages_are_short(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in &tree.files {
        let (count, most, of) = match &file.path[..] {
            "README.md" => (file.text.lines().count(), README_LINES, "lines"),
            "docs/ARCHITECTURE.md" => {
                (file.text.split_whitespace().count(), ARCHITECTURE_WORDS, "words")
            }
            _ => continue,
        };
        if count > most {
            found.push(file.at(1, &format!("{count} {of}, of {most} at most")));
        }
    }
    found
}

/// The table of contents of the site links once to each page; it lists by itself the decisions, and
/// the kinds of locks that the table of guarantees links to.
pub(crate) fn site_has_every_page(tree: &Tree) -> Vec<String> {
    let contents = tree.files.iter().find(|file| file.path == CONTENTS);
    let contents = contents.map_or("", |file| file.text.as_str());
    let kinds = tree.files.iter().find(|file| file.path == KINDS);
    let is_kind = |name: &str| {
        let page = name.trim_start_matches("locks/");
        kinds.is_some_and(|file| {
            file.lines()
                .any(|(_, row)| row.starts_with("| [") && row.contains(&format!("]({page}) |")))
        })
    };
    let mut found = Vec::new();
    let is_page = |file: &&File| file.under(&["docs/"]) || file.path.ends_with("/README.md");
    for file in tree.ending(&[".md"]).filter(is_page).filter(|file| !file.is_vendored()) {
        let link = match file.path.strip_prefix("docs/") {
            Some(name) => name.to_owned(),
            None => format!("../{}", file.path),
        };
        let by_itself = file.path == CONTENTS
            || (file.under(&[RECORDS]) && !link.ends_with("/README.md"))
            || is_kind(&link);
        match contents.matches(&format!("({link})")).count() {
            0 if !by_itself => found.push(file.at(1, &format!("{CONTENTS} does not link to it"))),
            0 | 1 => {}
            count => found.push(file.at(1, &format!("{CONTENTS} links to it {count} times"))),
        }
    }
    found
}

/// Each record of a decision has its four parts, and the index links to it.
pub(crate) fn decisions_are_complete(tree: &Tree) -> Vec<String> {
    let index_path = format!("{RECORDS}README.md");
    let index = tree.files.iter().find(|file| file.path == index_path);
    let index = index.map_or("", |file| file.text.as_str());
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| file.under(&[RECORDS]) && file.path != index_path) {
        let name = file.path.trim_start_matches(RECORDS);
        if !index.contains(&format!("({name})")) {
            found.push(file.at(1, "the index of decisions does not link to it"));
        }
        let mut lines = file.lines();
        for part in RECORD {
            if !lines.any(|(_, line)| line.starts_with(part)) {
                found.push(file.at(1, &format!("lacks `{part}`, or has it in another order")));
                break;
            }
        }
    }
    found
}

/// Every name that the glossary gives for a term stands in a file that is no page.
pub(crate) fn terms_are_in_the_code(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| file.path == GLOSSARY) {
        for (line, row) in file.lines().filter(|(_, row)| row.starts_with("| ")) {
            let code = row.split('|').nth(GLOSSARY_CODE).unwrap_or_default();
            for name in code.split('`').skip(1).step_by(2) {
                let name = name.rsplit("::").next().unwrap_or(name);
                let is_there =
                    |file: &File| !has_extension(&file.path, "md") && file.text.contains(name);
                if !tree.files.iter().any(is_there) {
                    found.push(file.at(line, &format!("`{name}` is in no file of the code")));
                }
            }
        }
    }
    found
}

/// Every metric that an alert rule or the dashboard names is described in the code.
pub(crate) fn monitored_metrics_are_described(tree: &Tree) -> Vec<String> {
    let described = tree.file(DESCRIPTIONS).map_or("", |file| &file.text);
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| file.under(&["deploy/monitoring/"])) {
        for (line, text) in file.lines() {
            let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            for word in words.filter(|word| METRICS[..2].iter().any(|own| word.starts_with(own))) {
                let name = SERIES.iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
                if !described.contains(&format!("\"{name}\"")) {
                    found.push(file.at(line, &format!("no metric `{name}` is described")));
                }
            }
        }
    }
    found
}

/// The tests of a line, each with its file or module: `` `file`: `test`, `test` `` or
/// `` `file::test` ``. A file that is named without a test has to exist as well.
fn named(row: &str) -> Vec<(Option<&str>, &str)> {
    let (mut found, mut place) = (Vec::new(), None);
    let parts: Vec<&str> = row.split('`').collect();
    for pair in parts.chunks(2).map(|pair| (pair[0], pair.get(1))).collect::<Vec<_>>().windows(2) {
        let [(before, Some(code)), (after, _)] = pair else { continue };
        if before.contains(';') || before.contains('|') {
            place = None;
        }
        match code.split_once("::") {
            Some((module, test)) if is_sentence(test) => found.push((Some(module), test)),
            _ if is_sentence(code) => found.push((place, code)),
            _ if after.starts_with(':') && is_name(code) => {
                place = Some(code);
                found.push((place, ""));
            }
            _ => {}
        }
    }
    found
}

fn is_name(code: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    !code.is_empty() && code.chars().all(fits)
}

fn is_sentence(code: &str) -> bool {
    is_name(code) && code.matches('_').count() >= SENTENCE
}

fn is_long_sentence(code: &str) -> bool {
    let is_metric = METRICS.iter().any(|prefix| code.starts_with(prefix));
    is_name(code) && code.matches('_').count() >= LONG_SENTENCE && !is_metric
}

/// Whether the file is in that place and has a function, or a check of a suite, of that name.
fn holds(file: &File, place: Option<&str>, test: &str) -> bool {
    let is_there = place.is_none_or(|place| {
        file.path.ends_with(&format!("/{place}.rs")) || file.path.contains(&format!("/{place}/"))
    });
    let marks = [format!("fn {test}("), format!("\"{test}\"")];
    let has = |mark: &String| file.text.contains(mark.as_str());
    file.is_rust() && is_there && (test.is_empty() || marks.iter().any(has))
}
