//! The tree as the laws see it: the files git would commit, the Rust sources cut into tokens.

use std::path::Path;
use std::process::Command;

use crate::rust::{self, Function, Token};

/// Every file of the repository, or the one file of a sample.
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
}

/// One text file; `tokens` is empty unless it is Rust.
pub(crate) struct File {
    /// From the repository's root, with forward slashes.
    pub(crate) path: String,
    pub(crate) text: String,
    tokens: Vec<Token>,
}

impl Tree {
    /// Committed files and those that could be; what git ignores, and links, are left out.
    pub(crate) fn of_the_repository() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .expect("git lists the files of the tree");
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        let paths = String::from_utf8(listed.stdout).expect("paths are UTF-8");
        let mut files = Vec::new();
        for path in paths.split_terminator('\0') {
            let place = root.join(path);
            if place.is_symlink() || !place.is_file() {
                continue;
            }
            let bytes = std::fs::read(place).expect("a listed file can be read");
            files.push(File::new(path, String::from_utf8_lossy(&bytes).into_owned()));
        }
        Self { files }
    }

    /// The files of a sample. The first has this path; a line `>>> path` begins each further one.
    pub(crate) fn of(path: &str, text: &str) -> Self {
        let mut parts = text.split(">>> ");
        let mut files = vec![File::new(path, parts.next().unwrap_or_default().to_owned())];
        for part in parts {
            let (path, text) = part.split_once('\n').unwrap_or((part, ""));
            files.push(File::new(path, text.to_owned()));
        }
        Self { files }
    }

    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// The Rust files under `within`, without those under `except`. A directory ends in `/`.
    pub(crate) fn rust(&self, within: &[&str], except: &[&str]) -> impl Iterator<Item = &File> {
        let wanted = |file: &&File| file.is_rust() && file.under(within) && !file.under(except);
        self.files.iter().filter(wanted)
    }

    /// Findings, one for every place where the product's code contains the tokens of `pattern`.
    pub(crate) fn find(
        &self,
        pattern: &str,
        within: &[&str],
        except: &[&str],
        law: &str,
    ) -> Vec<String> {
        self.rust(within, except)
            .flat_map(|file| file.lines_with(pattern).into_iter().map(|line| file.at(line, law)))
            .collect()
    }

    pub(crate) fn ending(&self, suffixes: &[&str]) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| suffixes.iter().any(|end| file.path.ends_with(end)))
    }
}

impl File {
    fn new(path: &str, text: String) -> Self {
        let tokens = if has_extension(path, "rs") { rust::tokens(path, &text) } else { Vec::new() };
        Self { path: path.to_owned(), text, tokens }
    }

    pub(crate) fn is_rust(&self) -> bool {
        has_extension(&self.path, "rs")
    }

    pub(crate) fn under(&self, places: &[&str]) -> bool {
        places.iter().any(|place| match place.strip_suffix('/') {
            Some(_) => self.path.starts_with(place),
            None => self.path == *place,
        })
    }

    /// Whether others wrote it: then it is kept as it was published.
    pub(crate) fn is_vendored(&self) -> bool {
        self.path.contains("/vendor/")
    }

    /// A finding, as compilers print them.
    pub(crate) fn at(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path)
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// All tokens, those of tests included.
    pub(crate) fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// The tokens of the product: nothing under `#[cfg(test)]`, no file of tests.
    pub(crate) fn code(&self) -> Vec<&Token> {
        self.tokens.iter().filter(|token| !token.in_test).collect()
    }

    /// The lines on which the tokens of `pattern`, separated by blanks, follow one another.
    pub(crate) fn lines_with(&self, pattern: &str) -> Vec<usize> {
        let pattern: Vec<&str> = pattern.split(' ').collect();
        self.code()
            .windows(pattern.len())
            .filter(|window| window.iter().zip(&pattern).all(|(token, text)| token.is(text)))
            .map(|window| window[0].line)
            .collect()
    }

    pub(crate) fn functions(&self) -> Vec<Function> {
        rust::functions(&self.tokens)
    }
}

pub(crate) fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}
