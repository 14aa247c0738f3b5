//! Prose as the laws of words see it: sentences of comments and of pages, each with its line.

use crate::tree::{File, has_extension};

/// One sentence. Inline code is the single word `code`.
pub(crate) struct Sentence {
    pub(crate) line: usize,
    pub(crate) text: String,
}

impl Sentence {
    pub(crate) fn words(&self) -> usize {
        let is_word = |word: &&str| word.contains(char::is_alphanumeric);
        self.text.split_whitespace().filter(is_word).count()
    }

    /// Chinese characters; other words count one each. None in a sentence without Chinese.
    pub(crate) fn characters(&self) -> Option<usize> {
        let han = self.text.chars().filter(|c| is_han(*c)).count();
        let others = self.text.split(|c: char| is_han(c) || !c.is_alphanumeric());
        (han > 0).then(|| han + others.filter(|word| !word.is_empty()).count())
    }
}

pub(crate) fn is_han(c: char) -> bool {
    matches!(c, '\u{4e00}'..='\u{9fff}')
}

/// The line without what stands between backticks.
pub(crate) fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// What begins a comment, by the end of a file's name.
const COMMENTS: [(&str, &[&str]); 11] = [
    (".rs", &["///", "//!", "//"]),
    (".js", &["//"]),
    (".mjs", &["//"]),
    (".ts", &["//"]),
    (".java", &["//"]),
    (".go", &["//"]),
    (".py", &["#"]),
    (".lua", &["--"]),
    (".sql", &["--"]),
    (".sh", &["#"]),
    ("Makefile", &["#"]),
];

/// What begins a comment inside a block of code, by the language after its fence. Documentation of
/// Rust has blocks of Rust without a language, or with attributes of rustdoc.
const BLOCK_COMMENTS: [(&str, &str); 14] = [
    ("rust", "//"),
    ("no_run", "//"),
    ("js", "//"),
    ("ts", "//"),
    ("java", "//"),
    ("go", "//"),
    ("python", "#"),
    ("sql", "--"),
    ("lua", "--"),
    ("sh", "#"),
    ("bash", "#"),
    ("toml", "#"),
    ("yaml", "#"),
    ("dockerfile", "#"),
];

/// What ends a sentence in Chinese.
const ENDS: [char; 3] = ['。', '！', '？'];

/// Lines of a script's header: each begins a list, whose items end in semicolons.
const SCRIPT_HEADERS: [&str; 4] = ["Purpose:", "KEYS", "ARGV", "Returns:"];

/// The sentences of a page, or of a source file's comments. Comments inside blocks of code count.
pub(crate) fn sentences(file: &File) -> Vec<Sentence> {
    if has_extension(&file.path, "md") {
        return split(&page_paragraphs(file));
    }
    let marks = COMMENTS.iter().find(|(end, _)| file.path.ends_with(end));
    marks.map_or_else(Vec::new, |(_, marks)| split(&comment_paragraphs(file, marks)))
}

type Paragraph = Vec<(usize, String)>;

fn page_paragraphs(file: &File) -> Vec<Paragraph> {
    let (mut paragraphs, mut current) = (Vec::new(), Paragraph::new());
    let mut fence: Option<Option<&str>> = None;
    for (line, text) in file.lines() {
        let text = text.trim();
        if text.starts_with("```") || text.starts_with("~~~") {
            fence = fence.is_none().then(|| block_comment(text.trim_start_matches(['`', '~'])));
            paragraphs.push(std::mem::take(&mut current));
        } else if let Some(mark) = fence {
            push_code(&mut paragraphs, &mut current, (line, text), mark);
        } else if text.is_empty() || text.starts_with('<') {
            paragraphs.push(std::mem::take(&mut current));
        } else if text.starts_with('|') || text.starts_with('#') {
            paragraphs.push(std::mem::take(&mut current));
            paragraphs.extend(text.split('|').map(|cell| vec![(line, spaced(cell))]));
        } else {
            push_line(&mut paragraphs, &mut current, (line, text));
        }
    }
    paragraphs.push(current);
    paragraphs
}

fn comment_paragraphs(file: &File, marks: &[&'static str]) -> Vec<Paragraph> {
    let (mut paragraphs, mut current) = (Vec::new(), Paragraph::new());
    let mut last_mark = "";
    let mut fence: Option<Option<&str>> = None;
    for (line, text) in file.lines() {
        let mark = marks.iter().find(|mark| text.trim_start().starts_with(**mark));
        let Some(mark) = mark else {
            paragraphs.push(std::mem::take(&mut current));
            fence = None;
            continue;
        };
        let text = text.trim_start()[mark.len()..].trim();
        if *mark != last_mark || text.is_empty() || text.starts_with("```") {
            paragraphs.push(std::mem::take(&mut current));
        }
        last_mark = mark;
        if let Some(language) = text.strip_prefix("```") {
            let language = if language.is_empty() { "rust" } else { language };
            fence = fence.is_none().then(|| block_comment(language));
        } else if let Some(mark) = fence {
            push_code(&mut paragraphs, &mut current, (line, text), mark);
        } else if !text.is_empty() {
            push_line(&mut paragraphs, &mut current, (line, text));
        }
    }
    paragraphs.push(current);
    paragraphs
}

fn block_comment(language: &str) -> Option<&'static str> {
    let language = language.split([',', ' ']).next();
    BLOCK_COMMENTS.iter().find(|(name, _)| Some(*name) == language).map(|(_, mark)| *mark)
}

/// A line of a block of code: lines that are comments make paragraphs, and a comment behind code is
/// a paragraph of its own.
fn push_code(
    paragraphs: &mut Vec<Paragraph>,
    current: &mut Paragraph,
    (line, text): (usize, &str),
    mark: Option<&str>,
) {
    let Some(mark) = mark else { return };
    if let Some(comment) = text.strip_prefix(mark) {
        current.push((line, spaced(comment.trim_start_matches(['/', '!', '#']))));
        return;
    }
    paragraphs.push(std::mem::take(current));
    if let Some((_, comment)) = text.split_once(&format!(" {mark} ")) {
        paragraphs.push(vec![(line, spaced(comment))]);
    }
}

/// An item of a list, a heading and a row of a table each begin a paragraph.
fn push_line(
    paragraphs: &mut Vec<Paragraph>,
    current: &mut Paragraph,
    (line, text): (usize, &str),
) {
    let number = text.split_once(". ").is_some_and(|(n, _)| n.parse::<u16>().is_ok());
    let is_header = SCRIPT_HEADERS.iter().any(|begin| text.starts_with(begin));
    if number || is_header || text.starts_with(['-', '*', '|', '#']) {
        paragraphs.push(std::mem::take(current));
    }
    current.push((line, spaced(text.trim_start_matches(['-', '*', '#', ' ']))));
}

/// Chinese has no spaces: sets one after each sentence, and around code.
fn spaced(text: &str) -> String {
    if !text.contains(is_han) {
        return text.to_owned();
    }
    let parts = text.split('`').enumerate();
    let text: String = parts.map(|(n, part)| if n % 2 == 0 { part } else { " `code` " }).collect();
    text.chars().fold(String::new(), |mut all, c| {
        let is_closer = matches!(c, '）' | '”' | '*');
        if all.ends_with(ENDS) && !is_closer {
            all.push(' ');
        }
        all.push(c);
        all
    })
}

fn split(paragraphs: &[Paragraph]) -> Vec<Sentence> {
    let mut found = Vec::new();
    for paragraph in paragraphs {
        let mut current: Option<Sentence> = None;
        let mut in_code = false;
        let begins =
            |begin: &&str| paragraph.first().is_some_and(|(_, text)| text.starts_with(*begin));
        let in_header = SCRIPT_HEADERS.iter().any(begins);
        for (line, text) in paragraph {
            for word in text.split_whitespace() {
                let was_in_code = in_code;
                in_code ^= word.matches('`').count() % 2 == 1;
                let sentence =
                    current.get_or_insert_with(|| Sentence { line: *line, text: String::new() });
                // Words inside one span of code after its first are part of it.
                if !was_in_code {
                    sentence.text.push_str(if word.contains('`') { "code" } else { word });
                    sentence.text.push(' ');
                }
                let end = word.trim_end_matches([')', '"', '*', '_', '\'', '）', '”']);
                let is_item = in_header && word.ends_with(';');
                if !in_code && (is_item || end.ends_with(['.', '!', '?']) || end.ends_with(ENDS)) {
                    found.extend(current.take());
                }
            }
        }
        found.extend(current);
    }
    found
}
