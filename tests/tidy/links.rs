//! Links between documents, checked without a network.

use crate::prose::without_code;
use crate::tree::{File, Tree, has_extension};

/// Every relative link of a Markdown page leads to a file, and its anchor to a heading of it.
pub(crate) fn links_resolve(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.ending(&[".md"]).filter(|file| !file.is_vendored()) {
        for (line, text) in prose(&file.text) {
            for target in targets(&without_code(text)) {
                if let Some(why) = why_broken(tree, file, target) {
                    found.push(file.at(line, &format!("the link `{target}` {why}")));
                }
            }
        }
    }
    found
}

/// Every page of `docs/` that another file names by its path exists.
pub(crate) fn named_pages_exist(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| !file.is_vendored() && !is_law(file)) {
        for (line, text) in file.lines() {
            for page in pages(text) {
                if !exists(tree, page) {
                    found.push(file.at(line, &format!("the page `{page}` does not exist")));
                }
            }
        }
    }
    found
}

/// The samples of the laws name pages that are not there.
fn is_law(file: &File) -> bool {
    file.path == "tests/tidy.rs" || file.path.starts_with("tests/tidy/")
}

fn pages(text: &str) -> impl Iterator<Item = &str> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/' | '.');
    text.match_indices("docs/").filter_map(move |(at, _)| {
        let rest = &text[at..];
        let end = rest.find(|c| !is_path(c)).unwrap_or(rest.len());
        rest[..end].split_inclusive(".md").next().filter(|page| has_extension(page, "md"))
    })
}

fn exists(tree: &Tree, path: &str) -> bool {
    let folder = format!("{}/", path.trim_end_matches('/'));
    tree.files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
}

fn why_broken(tree: &Tree, from: &File, target: &str) -> Option<&'static str> {
    let is_absolute = ["http://", "https://", "mailto:"].iter().any(|s| target.starts_with(s));
    if is_absolute {
        return None;
    }
    let (path, anchor) = resolve(&from.path, target);
    if !exists(tree, &path) {
        return Some("leads to no file of the tree");
    }
    let page = tree.files.iter().find(|file| file.path == path && has_extension(&path, "md"));
    let is_there = page.is_none_or(|page| anchor.is_empty() || anchors(page).contains(&anchor));
    (!is_there).then_some("has an anchor that no heading there has")
}

/// The path from the root that a link on the page `from` leads to, and the anchor there.
pub(crate) fn resolve(from: &str, link: &str) -> (String, String) {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    if path.is_empty() {
        return (from.to_owned(), anchor.to_owned());
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    (parts.join("/"), anchor.to_owned())
}

/// The anchors of a page in their order: its headings as GitHub and mdBook name them, and those
/// set by hand.
pub(crate) fn anchors(page: &File) -> Vec<String> {
    let mut found = Vec::<String>::new();
    for (_, text) in prose(&page.text) {
        if let Some(heading) = text.strip_prefix('#') {
            let slug = slug(heading.trim_start_matches('#').trim());
            let earlier = found.iter().filter(|other| is_numbered(other, &slug)).count();
            found.push(if earlier == 0 { slug } else { format!("{slug}-{earlier}") });
        }
        found.extend(
            text.split("<a id=\"")
                .skip(1)
                .filter_map(|rest| rest.split_once('"').map(|(id, _)| id.to_owned())),
        );
    }
    found
}

/// Whether it is this slug, or this slug with a number, as headings of one text have.
fn is_numbered(anchor: &str, slug: &str) -> bool {
    let number = anchor.strip_prefix(slug).map(|rest| rest.trim_start_matches('-'));
    number.is_some_and(|number| number.chars().all(|c| c.is_ascii_digit()))
}

fn slug(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

/// The lines outside of fenced code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((index + 1, line))
    })
}

/// What the links and images of a line lead to.
pub(crate) fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
}
