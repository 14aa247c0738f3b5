//! What documents say of the tests.

use crate::tree::{File, Tree};

/// The pages that name the test of each flaw and of each report, and that of each fault.
const PAGES: [&str; 2] = ["docs/locks.md", "docs/laboratory.md"];
/// A name with so many underscores is a sentence, which only tests are called by.
const SENTENCE: usize = 3;

/// Every test that the pages name is there, and in the file that it names.
pub(crate) fn named_tests_exist(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| PAGES.contains(&&file.path[..])) {
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

/// Whether the file is in that place and has a function, or a check of a suite, of that name.
fn holds(file: &File, place: Option<&str>, test: &str) -> bool {
    let is_there = place.is_none_or(|place| {
        file.path.ends_with(&format!("/{place}.rs")) || file.path.contains(&format!("/{place}/"))
    });
    let marks = [format!("fn {test}("), format!("\"{test}\"")];
    let has = |mark: &String| file.text.contains(mark.as_str());
    file.is_rust() && is_there && (test.is_empty() || marks.iter().any(has))
}
