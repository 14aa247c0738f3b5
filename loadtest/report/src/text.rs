//! Texts of a report, which its page shows in English and in Chinese.
//!
//! A [`Text`] is a key of `strings.json` with the values in it. `Display` writes English, which
//! terminals, JSON and Markdown have. The page has key and values beside the English, and its
//! script writes the other language from the same table.
//!
//! The judge and the laboratory write English that has no key. `translations.json` has its Chinese
//! by that English, with names in braces for the values in it. What it does not have stays English.
//! The race board gets that Chinese by [`in_chinese`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use minijinja::value::{Object, ObjectRepr, Value};
use serde::{Serialize, Serializer};

/// All texts by language and key.
pub(crate) const STRINGS: &str = include_str!("strings.json");
/// The Chinese of what the judge and the laboratory write.
pub(crate) const TRANSLATIONS: &str = include_str!("translations.json");

static ENGLISH: LazyLock<TextTable> = LazyLock::new(|| TextTable::of_language("en"));
static TRANSLATED: LazyLock<TextTable> = LazyLock::new(|| TextTable::parse(TRANSLATIONS));

/// Texts by key; a constant, of a file that the compiler does not parse.
struct TextTable(BTreeMap<String, String>);

impl TextTable {
    fn of_language(language: &str) -> Self {
        let all: BTreeMap<String, BTreeMap<String, String>> =
            serde_json::from_str(STRINGS).expect("texts by language and key");
        Self(all.into_iter().find(|(one, _)| one == language).map(|it| it.1).unwrap_or_default())
    }

    fn parse(json: &str) -> Self {
        Self(serde_json::from_str(json).expect("texts by their English"))
    }
}

/// A text in every language of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Text {
    /// The same in every language: a name, a number, a command.
    Plain(String),
    /// A text of the table, with the values of the names in it.
    Key(Cow<'static, str>, Vec<(Cow<'static, str>, Text)>),
    /// English that has no key.
    English(String),
    /// Several, with the text of that key between them.
    Joined(&'static str, Vec<Text>),
}

impl Text {
    /// The text of that key.
    pub fn of(key: impl Into<Cow<'static, str>>) -> Self {
        let key = key.into();
        debug_assert!(english(&key).is_some(), "no text has the key {key}");
        Self::Key(key, Vec::new())
    }

    /// Puts a value in the place of that name.
    #[must_use]
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Text>) -> Self {
        if let Self::Key(_, values) = &mut self {
            values.push((name.into(), value.into()));
        }
        self
    }

    /// English of the judge or the laboratory.
    pub fn english(text: impl Into<String>) -> Self {
        Self::English(text.into())
    }

    /// A number of things: the text `<key>_1` of one, and `<key>_n` of any other number.
    pub fn counted(key: &str, count: usize) -> Self {
        match count {
            1 => Self::of(format!("{key}_1")),
            count => Self::of(format!("{key}_n")).with("count", count),
        }
    }

    /// Sentences, one after the other.
    pub fn sentences(all: impl IntoIterator<Item = Text>) -> Self {
        Self::joined("gap", all)
    }

    /// Several, with the text of that key between them.
    pub fn joined(between: &'static str, all: impl IntoIterator<Item = Text>) -> Self {
        Self::Joined(between, all.into_iter().collect())
    }

    /// This text if it says in English what was said, or else what was said.
    #[must_use]
    pub fn if_it_says(self, said: &str) -> Self {
        let english = self.to_string();
        if english == said { self } else { Self::english(said) }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Plain(text) | Self::English(text) => text.is_empty(),
            Self::Key(..) => false,
            Self::Joined(_, all) => all.is_empty(),
        }
    }

    /// Changes what of it is English without a key.
    #[must_use]
    pub fn map_english(self, change: fn(String) -> String) -> Self {
        match self {
            Self::English(text) => Self::English(change(text)),
            Self::Key(key, values) => {
                let values = values.into_iter();
                Self::Key(key, values.map(|(name, it)| (name, it.map_english(change))).collect())
            }
            Self::Joined(between, all) => {
                Self::joined(between, all.into_iter().map(|it| it.map_english(change)))
            }
            Self::Plain(text) => Self::Plain(text),
        }
    }
}

impl Default for Text {
    fn default() -> Self {
        Self::Plain(String::new())
    }
}

/// The English text of that key.
fn english(key: &str) -> Option<&'static str> {
    ENGLISH.0.get(key).map(String::as_str)
}

/// The entry of `translations.json` that says it in Chinese, with the values of the names in it.
pub(crate) fn translation(text: &str) -> Option<(&'static str, Vec<(&'static str, &str)>)> {
    if let Some((english, _)) = TRANSLATED.0.get_key_value(text) {
        return Some((english, Vec::new()));
    }
    let mut patterns = TRANSLATED.0.keys().filter(|english| english.contains('{'));
    patterns.find_map(|pattern| Some((pattern.as_str(), values(pattern, text)?)))
}

/// The Chinese of that entry.
pub(crate) fn translated(english: &str) -> &'static str {
    TRANSLATED.0.get(english).map_or("", String::as_str)
}

/// A part of what the judge or the laboratory wrote, as a Chinese reader gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ChinesePart {
    /// Chinese, or a name or figure that is the same in every language.
    Chinese(String),
    /// English that has no Chinese.
    English {
        /// The English.
        en: String,
    },
}

/// The Chinese of what the judge or the laboratory wrote: a sentence, or several between
/// semicolons. `None` if the table has none of them.
pub fn in_chinese(text: &str) -> Option<Vec<ChinesePart>> {
    let mut parts = Vec::new();
    if let Some((english, values)) = translation(text) {
        let mut rest = translated(english);
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').unwrap_or((after, ""));
            add_chinese(&mut parts, before);
            let value = values.iter().find(|(one, _)| *one == name);
            add_value(&mut parts, name, value.map_or("", |(_, value)| value));
            rest = after;
        }
        add_chinese(&mut parts, rest);
        return Some(parts);
    }
    if !text.contains("; ") {
        return None;
    }
    let clauses: Vec<_> = text.split("; ").map(|one| (one, in_chinese(one))).collect();
    if clauses.iter().all(|(_, chinese)| chinese.is_none()) {
        return None;
    }
    for (index, (english, chinese)) in clauses.into_iter().enumerate() {
        if index > 0 {
            add_chinese(&mut parts, "；");
        }
        match chinese {
            Some(chinese) => chinese.into_iter().for_each(|part| add(&mut parts, part)),
            None => add(&mut parts, ChinesePart::English { en: english.to_owned() }),
        }
    }
    Some(parts)
}

/// Adds what stands in the place of a name: words, which may have a translation, or a name or
/// figure that is the same in every language.
fn add_value(parts: &mut Vec<ChinesePart>, name: &str, value: &str) {
    match in_chinese(value) {
        Some(chinese) => chinese.into_iter().for_each(|part| add(parts, part)),
        None if !is_words(name) || is_figure(value) => add_chinese(parts, value),
        None => add(parts, ChinesePart::English { en: value.to_owned() }),
    }
}

fn add_chinese(parts: &mut Vec<ChinesePart>, text: &str) {
    add(parts, ChinesePart::Chinese(text.to_owned()));
}

/// Adds a part. Chinese that follows Chinese is one part.
fn add(parts: &mut Vec<ChinesePart>, part: ChinesePart) {
    match (parts.last_mut(), part) {
        (Some(ChinesePart::Chinese(last)), ChinesePart::Chinese(more)) => last.push_str(&more),
        (_, ChinesePart::Chinese(none)) if none.is_empty() => {}
        (_, part) => parts.push(part),
    }
}

/// Whether the value of that name may be any number of words.
fn is_words(name: &str) -> bool {
    name.ends_with("words")
}

/// Whether it is a name or a figure with its unit: the same in every language.
pub(crate) fn is_figure(text: &str) -> bool {
    let is_word = |word: &str| word.len() > 1 && word.chars().all(|c| c.is_ascii_alphabetic());
    !text.split(' ').any(|word| is_word(word) && word != "ms")
}

/// The parts of `text` that stand where `pattern` has names in braces, if the rest is alike. A name
/// is that of one word; one that ends with `words` is that of any number.
fn values<'a>(pattern: &'static str, text: &'a str) -> Option<Vec<(&'static str, &'a str)>> {
    let mut parts = pattern.split('{');
    let mut rest = text.strip_prefix(parts.next()?)?;
    let mut found = Vec::new();
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        let (name, after) = part.split_once('}')?;
        let at = match (parts.peek(), after) {
            (None, "") => rest.len(),
            (None, after) => rest.strip_suffix(after)?.len(),
            (Some(_), after) => rest.find(after)?,
        };
        let (value, others) = rest.split_at(at);
        if value.is_empty() || !is_words(name) && value.contains(' ') {
            return None;
        }
        found.push((name, value));
        rest = others.strip_prefix(after)?;
    }
    rest.is_empty().then_some(found)
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(text) | Self::English(text) => f.write_str(text),
            Self::Joined(between, all) => {
                for (index, text) in all.iter().enumerate() {
                    if index > 0 {
                        f.write_str(english(between).unwrap_or_default())?;
                    }
                    text.fmt(f)?;
                }
                Ok(())
            }
            Self::Key(key, values) => {
                let mut rest = english(key).unwrap_or(key);
                while let Some((before, after)) = rest.split_once('{') {
                    let (name, after) = after.split_once('}').unwrap_or((after, ""));
                    f.write_str(before)?;
                    if let Some((_, value)) = values.iter().find(|(one, _)| one == name) {
                        value.fmt(f)?;
                    }
                    rest = after;
                }
                f.write_str(rest)
            }
        }
    }
}

/// In JSON it is the English text; a template gets the text itself.
impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Value::from_object(self.clone()).serialize(serializer)
    }
}

impl Object for Text {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn is_true(self: &Arc<Self>) -> bool {
        !self.is_empty()
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::Plain(text)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::Plain(text.to_owned())
    }
}

impl From<&String> for Text {
    fn from(text: &String) -> Self {
        Self::Plain(text.clone())
    }
}

macro_rules! from_numbers {
    ($($number:ty),*) => {
        $(impl From<$number> for Text {
            fn from(number: $number) -> Self {
                Self::Plain(number.to_string())
            }
        })*
    };
}
from_numbers!(u16, u32, u64, usize, f64);

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "witness_tests.rs"]
mod witness_tests;
