//! Texts as markup: the English, and beside it what the script writes the other language from.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::HtmlEscape;
use serde_json::{Value, json};

use crate::text::{Text, in_chinese, is_figure, translated, translation};

/// The entries of the table that a page has texts of: it needs no others.
#[derive(Debug, Clone, Default)]
pub(super) struct UsedTranslations(Arc<Mutex<BTreeMap<&'static str, &'static str>>>);

impl UsedTranslations {
    /// Adds what the script needs for that text.
    pub(super) fn add(&self, text: &Text) {
        match text {
            Text::Plain(_) => {}
            Text::English(text) => self.add_english(text),
            Text::Key(_, values) => values.iter().for_each(|(_, value)| self.add(value)),
            Text::Joined(_, all) => all.iter().for_each(|text| self.add(text)),
        }
    }

    fn add_english(&self, text: &str) {
        if let Some((english, values)) = translation(text) {
            let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            used.insert(english, translated(english));
            drop(used);
            for (_, value) in values {
                self.add_english(value);
            }
        } else if text.contains("; ") {
            text.split("; ").for_each(|clause| self.add_english(clause));
        }
    }

    /// JSON of the entries so far.
    pub(super) fn table(&self) -> String {
        let used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        json!(*used).to_string()
    }
}

/// The text for the inside of an element.
pub(super) fn markup(text: &Text) -> String {
    match text {
        Text::Plain(text) => escaped(text),
        Text::English(text) => english(text),
        // A key needs no quotes, which counts in a page of many texts.
        Text::Key(key, values) if values.is_empty() => {
            format!("<span data-t={key}>{}</span>", inside(text))
        }
        _ => format!("<span data-t='{}'>{}</span>", data(text), inside(text)),
    }
}

/// The text without its keys, where an element around it has them.
pub(super) fn inside(text: &Text) -> String {
    escaped(&text.to_string())
}

/// What the script reads of a text, for an attribute in single quotes: a key, or JSON.
pub(super) fn data(text: &Text) -> String {
    let data = match text {
        Text::Key(key, values) if values.is_empty() => key.to_string(),
        text => value(text).to_string(),
    };
    data.replace('&', "&amp;").replace('\'', "&#39;").replace('<', "&lt;")
}

/// English that the table translates has a mark of its own; any other is named as English.
fn english(text: &str) -> String {
    let words = escaped(text);
    match translation(text) {
        Some((_, values)) if values.is_empty() => format!("<span data-t-en>{words}</span>"),
        None if in_chinese(text).is_none() => format!("<span lang=\"en\">{words}</span>"),
        _ => format!("<span data-t='{}'>{words}</span>", data(&Text::english(text))),
    }
}

fn value(text: &Text) -> Value {
    match text {
        Text::Plain(text) => json!(text),
        Text::English(text) => english_value(text),
        Text::Key(key, values) if values.is_empty() => json!([key]),
        Text::Key(key, values) => {
            let values = values.iter().map(|(name, one)| (name.to_string(), value(one)));
            json!([key, values.collect::<Value>()])
        }
        Text::Joined(between, all) => {
            json!({"join": between, "all": all.iter().map(value).collect::<Vec<_>>()})
        }
    }
}

/// English with the values in it, or its clauses if only these have translations.
fn english_value(text: &str) -> Value {
    match translation(text) {
        Some((english, values)) if !values.is_empty() => {
            let values = values.into_iter().map(|(name, value)| (name.to_owned(), part(value)));
            json!({"en": english, "of": values.collect::<Value>()})
        }
        None if in_chinese(text).is_some() => {
            let clauses = text.split("; ").map(part).collect::<Vec<_>>();
            json!({"join": "semicolon", "all": clauses})
        }
        _ => json!({ "en": text }),
    }
}

/// A part of English: words, which may have a translation, or a name or figure with its unit.
fn part(text: &str) -> Value {
    if is_figure(text) { json!(text) } else { english_value(text) }
}

fn escaped(text: &str) -> String {
    HtmlEscape(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_and_the_words_inside_them_are_translated_each() {
        let late = "a COMMIT was on the way for 12 ms, and another purchase wrote meanwhile";
        let text = format!("3 renewals never arrived; {late}; all is well");
        let expected = json!({"join": "semicolon", "all": [
            {"en": "{count} renewals never arrived", "of": {"count": "3"}},
            {
                "en": "a COMMIT was on the way for {ms} ms, and {words} meanwhile",
                "of": {"ms": "12", "words": {"en": "another purchase wrote"}},
            },
            {"en": "all is well"},
        ]});
        assert_eq!(value(&Text::english(&text)), expected);
        assert!(english(&text).starts_with("<span data-t='"), "{}", english(&text));
        let unknown = "all; is well";
        assert_eq!(english(unknown), "<span lang=\"en\">all; is well</span>");
    }
}
