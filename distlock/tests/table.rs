//! The table of guarantees in the documentation is the code's.

use distlock::{HoldKind, LockKind, guarantees};

const PAGE: &str = include_str!("../../docs/locks.md");

/// The cells of each line of the first table whose head begins like that.
fn table(head: &str) -> Vec<Vec<String>> {
    let rows = PAGE.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    rows.take_while(|line| line.starts_with('|')).map(cells).collect()
}

fn cells(line: &str) -> Vec<String> {
    let inner = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')).expect("a line");
    inner.split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// The line of a kind, as the code has it. What a composite promises depends on its members.
fn row(kind: LockKind) -> Vec<String> {
    let promise = guarantees(kind);
    let columns = [
        promise.renewal.to_string(),
        promise.wake.to_string(),
        promise.owner_checked.to_string(),
        promise.idempotent.to_string(),
        promise.reentrant.to_string(),
        promise.fair.to_string(),
        promise.fencing.to_string(),
    ];
    let depends = promise.hold == HoldKind::WeakestMember;
    let columns = columns.map(|column| if depends { String::new() } else { column });
    [promise.hold.to_string()].into_iter().chain(columns).collect()
}

#[test]
fn the_documented_table_of_guarantees_is_the_one_of_the_code() {
    let mut documented = Vec::new();
    for line in table("| kind | hold |") {
        let (kinds, columns) = line.split_first().expect("a kind");
        for kind in kinds.split(", ") {
            let kind: LockKind = kind.parse().expect("a kind that exists");
            assert_eq!(columns, row(kind), "{kind}");
            documented.push(kind);
        }
    }
    assert_eq!(documented, LockKind::ALL);
}

#[test]
fn each_kind_has_its_section() {
    for kind in LockKind::ALL {
        assert!(PAGE.contains(&format!("\n### {kind}\n")), "{kind} has no section");
    }
}

/// The text of every Rust file below the repository's folders that have tests of locks.
fn sources(folder: &std::path::Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            *text += &std::fs::read_to_string(&path).expect("a source");
        }
    }
}

#[test]
fn each_test_that_the_page_names_is_there() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    for folder in ["src", "tests", "../conformance/tests"] {
        sources(&root.join(folder), &mut text);
    }
    // A test's name is a sentence: nothing else on the page has so many words joined.
    let is_name = |word: &str| {
        word.matches('_').count() > 3
            && word.bytes().all(|byte| byte.is_ascii_lowercase() || b"_0123456789".contains(&byte))
    };
    let words = PAGE.split('`').map(|word| word.rsplit("::").next().unwrap_or(word));
    let names: Vec<&str> = words.filter(|word| is_name(word)).collect();
    assert!(names.len() > 80, "{} names", names.len());
    let missing = names.into_iter().filter(|name| !text.contains(&format!("fn {name}(")));
    assert_eq!(missing.collect::<Vec<_>>(), [""; 0]);
}
