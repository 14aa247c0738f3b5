//! The public interface, as a list that a change has to change as well.
//!
//! It is read from the sources: the lint `unreachable_pub` makes sure that what is `pub` there can
//! be reached. Enums and traits are listed whole. Implementations of traits are not listed.
//! `UPDATE_DOCS=1` writes the list.

use std::fs;
use std::path::{Path, PathBuf};

const LIST: &str = "public-api.txt";

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("a file").path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, found);
        } else if path.file_name().is_some_and(|name| name != "tests.rs") {
            found.push(path);
        }
    }
}

/// The declarations of a source, one a line, each block of an implementation under its head.
fn declarations(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut lines = code.peekable();
    let (mut found, mut head) = (Vec::new(), None);
    while let Some(line) = lines.next() {
        let (indent, start) = (line.len() - line.trim_start().len(), line.trim());
        if line.starts_with("impl") {
            head = Some(whole(start, &mut lines));
        }
        if !start.starts_with("pub ") {
            continue;
        }
        let declaration = whole(start, &mut lines);
        if indent > 0 {
            found.extend(head.take());
        }
        found.push(format!("{}{declaration}", " ".repeat(indent.min(4))));
    }
    found
}

/// A declaration that begins so, without its body.
fn whole<'a>(start: &str, lines: &mut impl Iterator<Item = &'a str>) -> String {
    let mut declaration = start.to_owned();
    let begins = |words: &[&str]| words.iter().any(|word| start.starts_with(word));
    let is_list = begins(&["pub enum ", "pub trait ", "pub use "]);
    let ends: &[char] = if is_list {
        &[';', '}']
    } else if begins(&["impl"]) || start.contains("fn ") {
        &[';', '{', '}']
    } else {
        &[';', '{', ',', '}']
    };
    // A list ends with the brace below its first letter, a signature behind its parentheses.
    let is_done = |text: &str| {
        text.ends_with(ends) && closes(text, ('(', ')')) && (!is_list || closes(text, ('{', '}')))
    };
    while !is_done(&declaration) {
        let Some(next) = lines.next() else { break };
        declaration = format!("{declaration} {}", next.trim());
    }
    declaration.trim_end_matches(['{', ',']).trim_end().to_owned()
}

fn closes(text: &str, (open, close): (char, char)) -> bool {
    text.matches(open).count() == text.matches(close).count()
}

#[test]
fn a_signature_is_listed_to_its_end_under_the_head_of_its_block() {
    let source = [
        "impl<T> Locks<T>",
        "where",
        "    T: Send,",
        "{",
        "    pub fn scope(",
        "        wait: Duration,",
        "    ) -> Result<(), LockError> {",
        "    }",
        "}",
        "pub struct Request {",
        "    pub id: Uuid,",
        "}",
    ];
    let expected = [
        "impl<T> Locks<T> where T: Send,",
        "    pub fn scope( wait: Duration, ) -> Result<(), LockError>",
        "pub struct Request",
        "    pub id: Uuid",
    ];
    assert_eq!(declarations(&source.join("\n")), expected);
}

#[test]
fn the_public_interface_is_the_listed_one() {
    let mut files = Vec::new();
    sources(Path::new("src"), &mut files);
    let mut parts = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a source");
        let declared = declarations(&text);
        if !declared.is_empty() {
            let body = declared.join("\n");
            parts.push(format!("# {}\n{body}\n\n", file.display()));
        }
    }
    let list = parts.concat();
    assert!(list.contains("pub async fn try_lock"), "it finds what is there");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(LIST, list).expect("the list");
        return;
    }
    let known = fs::read_to_string(LIST).expect("the list; UPDATE_DOCS=1 writes it");
    let new = list.lines().filter(|line| !known.lines().any(|known| known == *line));
    let gone = known.lines().filter(|line| !list.lines().any(|now| now == *line));
    let changes: Vec<String> =
        new.map(|line| format!("+ {line}")).chain(gone.map(|line| format!("- {line}"))).collect();
    assert_eq!(known, list, "UPDATE_DOCS=1 writes the list\n{}", changes.join("\n"));
}

#[test]
fn the_oldest_supported_compiler_is_the_one_of_the_toolchain() {
    let file = "../rust-toolchain.toml";
    let toolchain = fs::read_to_string(file).expect("the toolchain's file");
    let oldest = env!("CARGO_PKG_RUST_VERSION");
    assert!(toolchain.contains(&format!("channel = \"{oldest}")), "{oldest} is not checked by CI");
}
