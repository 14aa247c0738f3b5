//! The page's texts: none outside the tables, and none that nothing shows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use loadtest_lab::fixtures::story;

use super::{SCRIPT, TEMPLATES, render};
use crate::Report;
use crate::html::page::Page;
use crate::tests::report;
use crate::text::STRINGS;

/// Names and units that are the same in every language.
const NAMES: [&str; 1] = ["ms"];

/// The page of a report as it is without JavaScript: the English, without keys.
pub(crate) fn shown(report: &Report) -> String {
    let html = render(&Page::of(report)).expect("a page");
    let html = html.split_once("<script type=\"application/json\" id=\"strings\">");
    let (before, rest) = html.expect("the table of texts");
    let (_, after) = rest.split_once("id=\"plots\"").expect("the data");
    let html = format!("{before}<script type=\"application/json\" id=\"plots\"{after}");
    let mut keyed = Vec::new();
    let mut out = String::new();
    for part in html.split_inclusive('>') {
        let (text, tag) = part.split_at(part.rfind('<').unwrap_or(part.len()));
        out.push_str(text);
        let is_text = ["<span data-t", "<span lang=\"en\""].iter().any(|it| tag.starts_with(it));
        if tag.starts_with("<span") {
            keyed.push(is_text);
        }
        let drop = is_text || tag == "</span>" && keyed.pop() == Some(true);
        if !drop {
            out.push_str(&without_keys(tag));
        }
    }
    out
}

/// A tag without attributes that are for the script.
fn without_keys(tag: &str) -> String {
    let mut parts = tag.split(" data-t");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let value = part.split_once('=').map_or("", |(_, value)| value);
        out.push_str(match value.chars().next() {
            Some(quote @ ('"' | '\'')) => value[1..].split_once(quote).map_or("", |it| it.1),
            _ => &value[value.find([' ', '>']).unwrap_or(value.len())..],
        });
    }
    out
}

fn keys() -> BTreeSet<String> {
    let table: BTreeMap<String, BTreeMap<String, String>> =
        serde_json::from_str(STRINGS).expect("a table");
    table["en"].keys().cloned().collect()
}

/// The text without what stands between these marks.
fn without(text: &str, begin: &str, end: &str) -> String {
    let mut parts = text.split(begin);
    let mut rest = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        rest.push(' ');
        rest.push_str(part.split_once(end).map_or("", |(_, after)| after));
    }
    rest
}

/// What a reader sees of a template besides its values.
fn visible(template: &str) -> String {
    let mut rest = template.to_owned();
    for (begin, end) in [("{#", "#}"), ("{{", "}}"), ("{%", "%}"), ("<", ">")] {
        rest = without(&rest, begin, end);
    }
    rest
}

/// Words of at least two letters.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    words.filter(|word| word.len() > 1 && word.chars().all(char::is_alphabetic))
}

/// The strings in quotes, of either kind.
fn literals(text: &str) -> Vec<&str> {
    let of = |quote: char| text.split(quote).skip(1).step_by(2);
    of('"').chain(of('\'')).collect()
}

#[test]
fn without_javascript_the_page_is_english_and_has_no_button_for_its_language() {
    let html = render(&Page::of(&report(story()))).expect("a page");
    assert!(html.starts_with("<!doctype html>\n<html lang=\"en\">"), "{html:.60}");
    assert!(html.contains("id=\"language\" hidden>"));
    let body = shown(&report(story()));
    let (_, body) = body.split_once("<main>").expect("the body");
    let (body, _) = body.split_once("</main>").expect("its end");
    let is_chinese = |c: &char| ('\u{4e00}'..='\u{9fff}').contains(c);
    assert_eq!(body.chars().find(is_chinese), None);
}

#[test]
fn a_template_has_no_text_of_its_own() {
    for (name, template) in TEMPLATES {
        let text = visible(template);
        let own: Vec<&str> = words(&text).filter(|word| !NAMES.contains(word)).collect();
        assert_eq!(own, Vec::<&str>::new(), "{name}");
        for attribute in ["aria-label=\"", " title=\"", "alt=\"", "placeholder=\""] {
            for value in template.split(attribute).skip(1) {
                assert!(value.starts_with("{{ "), "{name}: {attribute}{value:.30}");
            }
        }
    }
    let found = |template: &str| words(&visible(template)).count();
    assert_eq!(found("<p class=\"hint\">{{ t(\"why\") }} <b>p99</b></p>"), 0);
    assert_eq!(found("<p>Why {{ page.count }}</p>"), 1);
}

#[test]
fn a_value_that_a_template_shows_is_no_text_of_its_own() {
    let keys = keys();
    for (name, template) in TEMPLATES {
        let bare = without(&without(template, "{#", "#}"), "<", ">");
        for value in bare.split("{{").skip(1).filter_map(|part| Some(part.split_once("}}")?.0)) {
            for literal in literals(value).into_iter().filter(|it| words(it).next().is_some()) {
                assert!(keys.contains(literal), "{name}: {literal}");
            }
        }
    }
}

#[test]
fn a_script_shows_only_texts_of_the_table() {
    let own = &SCRIPT[1..];
    for script in own {
        for place in ["textContent = ", "label: ", "innerText = ", "'aria-label', ", "title = "] {
            for value in script.split(place).skip(1) {
                assert!(!value.starts_with(['\'', '"', '`']), "{place}{value:.30}");
            }
        }
    }
    assert!(own.concat().contains("label: t("), "what is shown is looked for");
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("one").path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    folders.iter().flat_map(|folder| files_of(folder)).chain(files).collect()
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    if folder.ends_with("vendor") { Vec::new() } else { files(folder) }
}

#[test]
fn every_text_of_the_table_is_shown_somewhere_and_every_key_is_in_the_table() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let is_source = |path: &PathBuf| {
        let name = path.to_string_lossy();
        let ending = path.extension().and_then(|it| it.to_str()).unwrap_or_default();
        ["rs", "html", "js"].contains(&ending) && !name.contains("tests")
    };
    let sources = files(&folder).into_iter().filter(is_source);
    let sources: Vec<String> =
        sources.map(|path| fs::read_to_string(path).expect("a source")).collect();
    let sources = sources.concat();
    let keys = keys();
    // A number of things has two texts.
    let counted = |key: &str| key.trim_end_matches(['_', 'n', '1', '2', '3', '4', '5']).to_owned();
    let quoted = |key: &str| ['"', '\''].map(|quote| format!("{quote}{key}{quote}"));
    for key in &keys {
        let all = [quoted(key), quoted(&counted(key))].concat();
        let is_number = key.starts_with("number_");
        assert!(is_number || all.iter().any(|it| sources.contains(it)), "nothing shows {key}");
    }
    for call in ["Text::of(\"", "Fact::new(\"", " t(\"", "(t(\"", " t('", "data-t-label=\""] {
        for part in sources.split(call).skip(1) {
            let key = part.split(['"', '\'']).next().unwrap_or_default();
            let is_made = key.is_empty() || key.starts_with("{{");
            assert!(is_made || keys.contains(key), "{call}{key}");
        }
    }
}
