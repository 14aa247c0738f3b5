//! The web page, embedded in the binary.

use axum::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, Method, Uri};
use axum::response::{IntoResponse, Response};
use rust_embed::{EmbeddedFile, RustEmbed};

use super::error::ApiError;
use super::success::not_modified;

#[derive(RustEmbed)]
#[folder = "static/"]
struct PageFiles;

/// A file of the page, or 404. Browsers revalidate it each time.
pub(super) async fn file(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let path = match uri.path() {
        "/" => "index.html",
        path => path.trim_start_matches('/'),
    };
    let Some(file) = PageFiles::get(path) else { return ApiError::NotFound.into_response() };
    if method != Method::GET && method != Method::HEAD {
        return ([(ALLOW, "GET,HEAD")], ApiError::MethodNotAllowed).into_response();
    }
    let tag = tag(&file);
    if headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        return not_modified();
    }
    let kind = match file.metadata.mimetype() {
        text if text.starts_with("text/") => format!("{text}; charset=utf-8"),
        other => other.to_owned(),
    };
    let headers = [(CONTENT_TYPE, kind), (ETAG, tag), (CACHE_CONTROL, "no-cache".to_owned())];
    (headers, file.data).into_response()
}

fn tag(file: &EmbeddedFile) -> String {
    use std::fmt::Write;
    let mut tag = String::from("\"");
    for byte in &file.metadata.sha256_hash()[..16] {
        // Writing to a string does not fail.
        let _infallible = write!(tag, "{byte:02x}");
    }
    tag + "\""
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::PageFiles;

    type Texts = BTreeMap<String, String>;

    fn text_of(file: &str) -> String {
        let file = PageFiles::get(file).expect("a file of the page");
        String::from_utf8(file.data.into_owned()).expect("text")
    }

    fn texts() -> BTreeMap<String, Texts> {
        serde_json::from_str(&text_of("strings.json")).expect("texts by language")
    }

    /// The pieces between quotes of these files that have the form of a key.
    fn keys_between(quotes: char, files: &[String]) -> BTreeSet<String> {
        let is_word = |word: &str| {
            let is_letter = |letter: char| letter.is_ascii_lowercase() || letter == '_';
            !word.is_empty() && word.chars().all(|one| is_letter(one) || one.is_ascii_digit())
        };
        let is_key = |piece: &&str| {
            piece.split_once('.').is_some_and(|(group, name)| is_word(group) && is_word(name))
        };
        let pieces = files.iter().flat_map(|file| file.split(quotes));
        pieces.filter(is_key).map(str::to_owned).collect()
    }

    #[test]
    fn each_text_of_the_page_is_in_english_and_in_chinese_with_the_same_values() {
        let texts = texts();
        let (english, chinese) = (&texts["en"], &texts["zh"]);
        let values = |text: &str| -> BTreeSet<String> {
            let begun = text.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
            begun.map(|(name, _)| name.to_owned()).collect()
        };
        for (key, text) in english {
            let other = chinese.get(key).unwrap_or_else(|| panic!("{key} is missing in Chinese"));
            assert_eq!(values(text), values(other), "{key}");
        }
        // The name of the other language, and sentences side by side.
        let no_words = ["language.other", "buying.sentences"];
        let is_han = |c: char| ('\u{4e00}'..='\u{9fff}').contains(&c);
        for (key, text) in chinese {
            assert_eq!(!text.contains(is_han), no_words.contains(&key.as_str()), "{key}: {text}");
        }
        let own = chinese.keys().filter(|key| !english.contains_key(*key));
        let own: Vec<_> = own.filter(|key| !key.starts_with("problem.")).collect();
        assert!(own.is_empty(), "missing in English: {own:?}");
    }

    #[test]
    fn each_key_that_the_page_uses_has_a_text_and_each_text_is_used() {
        let english = &texts()["en"];
        let names: Vec<_> = PageFiles::iter().collect();
        let ending = |end: &str| -> Vec<String> {
            names.iter().filter(|name| name.ends_with(end)).map(|name| text_of(name)).collect()
        };
        let (scripts, markup) = (ending(".js"), ending(".html"));
        let mut used = keys_between('\'', &scripts);
        used.extend(keys_between('"', &markup));
        used.retain(|key| !key.starts_with("seckill."));
        // Keys that are made of a code, of the tables of words.js.
        let words = text_of("words.js");
        for (group, table) in [("refused", "REFUSED"), ("settle", "SETTLED")] {
            let table = words.split_once(&format!("const {table} = {{")).expect("a table").1;
            let rows = table.split("};").next().unwrap_or_default().lines();
            for (code, _) in rows.filter_map(|row| row.trim().split_once(": '")) {
                used.extend([format!("{group}.{code}"), format!("{group}.{code}_title")]);
            }
        }
        let missing: Vec<_> = used.iter().filter(|key| !english.contains_key(*key)).collect();
        assert!(missing.is_empty(), "no text: {missing:?}");
        let is_composed = |key: &str| {
            let group = key.split('.').next().unwrap_or_default();
            scripts.iter().any(|script| script.contains(&format!("`{group}.${{")))
        };
        let unused = english.keys().filter(|key| key.contains('.') && !used.contains(*key));
        let unused: Vec<_> = unused.filter(|key| !is_composed(key)).collect();
        assert!(unused.is_empty(), "in no file of the page: {unused:?}");
    }
}
