//! How tests are named: situation and expectation, in the code's own words.

use crate::style::LAWS;
use crate::tree::{File, Tree};

const MIN_WORDS: usize = 3;

/// Words that hide which thing of the code acts, and words for which there is a precise one:
/// reported, distinguished, continues, admits.
const VAGUE: [&str; 28] = [
    "anybody",
    "befell",
    "come",
    "comes",
    "everybody",
    "go_on",
    "goes",
    "gone",
    "he",
    "her",
    "him",
    "himself",
    "his",
    "in_vain",
    "let_in",
    "lets_in",
    "nobody",
    "nobodys",
    "ones_own",
    "she",
    "somebody",
    "somebodys",
    "tell",
    "tells",
    "told",
    "who",
    "whoever",
    "whom",
];

pub(crate) fn are_sentences(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in &tree.files {
        for function in file.functions().into_iter().filter(|function| function.is_test) {
            if function.name.split('_').count() < MIN_WORDS {
                let what = format!("the test `{}` says no sentence", function.name);
                found.push(file.at(function.line, &what));
            }
        }
    }
    found
}

pub(crate) fn are_precise(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in &tree.files {
        for (line, name) in names(file) {
            let words = format!("_{name}_");
            for vague in VAGUE.iter().filter(|vague| words.contains(&format!("_{vague}_"))) {
                let what = format!("the test `{name}`: for \"{vague}\" name the thing of the code");
                found.push(file.at(line, &what));
            }
        }
    }
    found
}

/// Tests by attribute, the laws of the tree, and the checks of suites, which are named by strings.
fn names(file: &File) -> Vec<(usize, String)> {
    let functions = file.functions().into_iter().filter(|function| function.is_test);
    let mut found: Vec<_> = functions.map(|function| (function.line, function.name)).collect();
    for window in file.tokens().windows(4) {
        let [name, colon, value, path] = window else { continue };
        let is_law = file.under(&LAWS) && name.is_name() && path.is("::");
        let is_check = name.is("name") && value.in_test;
        match value.string() {
            Some(check) if is_check && colon.is(":") => found.push((value.line, check.to_owned())),
            None if is_law && colon.is(":") && name.text.contains('_') => {
                found.push((name.line, name.text.clone()));
            }
            _ => {}
        }
    }
    found
}
