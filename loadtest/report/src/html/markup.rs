//! Texts as markup: the English, and beside it what the script writes the other language from.

use minijinja::HtmlEscape;
use serde_json::{Value, json};

use crate::text::{Text, is_figure, translation};

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
        None => format!("<span lang=\"en\">{words}</span>"),
        Some((_, values)) if values.is_empty() => format!("<span data-t-en>{words}</span>"),
        Some(_) => {
            format!("<span data-t='{}'>{words}</span>", data(&Text::english(text)))
        }
    }
}

fn value(text: &Text) -> Value {
    match text {
        Text::Plain(text) => json!(text),
        Text::English(text) => match translation(text) {
            Some((english, values)) if !values.is_empty() => {
                let values = values.into_iter().map(|(name, value)| (name.to_owned(), part(value)));
                json!({"en": english, "of": values.collect::<Value>()})
            }
            _ => json!({ "en": text }),
        },
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

/// A part of English: words, which may have a translation, or a name or figure with its unit.
fn part(text: &str) -> Value {
    if is_figure(text) { json!(text) } else { json!({ "en": text }) }
}

fn escaped(text: &str) -> String {
    HtmlEscape(text).to_string()
}
