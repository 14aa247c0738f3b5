//! Pages in English and in Chinese say the same: block by block, figure by figure.
//!
//! The law cannot read. It sees what is missing, moved, left in English, or another number, name,
//! command or link.

use crate::blocks::{BlockKind, blocks};
use crate::links;
use crate::prose::{is_han, without_code};
use crate::tree::{File, Tree};

/// English pages, and folders of them, beside their Chinese counterparts.
const PAIRS: [(&str, &str); 8] = [
    ("README.md", "README.zh.md"),
    ("docs/board.md", "docs/zh/board.md"),
    ("docs/choose-a-lock.md", "docs/zh/choose-a-lock.md"),
    ("docs/inspector.md", "docs/zh/inspector.md"),
    ("docs/learn.md", "docs/zh/learn.md"),
    ("docs/museum.md", "docs/zh/museum.md"),
    ("docs/locks/", "docs/zh/locks/"),
    ("docs/comparison.png", "docs/zh/comparison.png"),
];
/// Where only counterparts of English pages may be.
const CHINESE: &str = "docs/zh/";
/// The pages of locks, by whose names a word is known to be an identifier.
const LOCKS: &str = "docs/locks/";
/// In how many lines from the top a page leads to its counterpart.
const SWITCH_LINES: usize = 5;
/// From this many English words on, a translation has so many Chinese characters per 100 words.
const MIN_WORDS: usize = 6;
const MIN_HAN: usize = 80;
/// More small English words in a row than that are a text that was left as it is.
const MAX_ENGLISH_WORDS: usize = 4;

/// Cells that stand for one value of the code, in both languages.
const CELLS: [(&str, &str); 17] = [
    ("yes", "是"),
    ("no", "否"),
    ("racy", "有竞态"),
    ("atomic", "原子"),
    ("optional", "可选"),
    ("not needed", "不需要"),
    ("lease", "租约"),
    ("session", "会话"),
    ("process", "进程"),
    ("transaction", "事务"),
    ("weakest member", "最弱成员"),
    ("heartbeat", "心跳"),
    ("poll", "轮询"),
    ("message", "消息"),
    ("watch", "watch"),
    ("server", "服务器"),
    ("kind", "锁类型"),
];

/// Every English page of a pair has its Chinese one, of the same blocks, code, figures and links.
pub(crate) fn pairs_agree(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    // Of a picture only the links are compared.
    for file in tree.ending(&[".md"]) {
        if let Some(path) = chinese_path(&file.path) {
            match tree.file(&path) {
                Some(chinese) => found.extend(Pair { tree, english: file, chinese }.check()),
                None => found.push(file.at(1, &format!("{path} is missing"))),
            }
        }
        let english = english_path(&file.path);
        let is_chinese = english.is_some() || file.under(&[CHINESE]);
        if is_chinese && english.is_none_or(|path| tree.file(&path).is_none()) {
            found.push(file.at(1, "there is no English page of this name"));
        }
    }
    found
}

fn chinese_path(path: &str) -> Option<String> {
    PAIRS.iter().find_map(|(english, chinese)| counterpart(path, english, chinese))
}

fn english_path(path: &str) -> Option<String> {
    PAIRS.iter().find_map(|(english, chinese)| counterpart(path, chinese, english))
}

fn counterpart(path: &str, from: &str, to: &str) -> Option<String> {
    let rest = path.strip_prefix(from)?;
    (rest.is_empty() || from.ends_with('/')).then(|| format!("{to}{rest}"))
}

/// What a text has to share with its translation, in the order of the alphabet.
struct Marks {
    code: Vec<String>,
    figures: Vec<String>,
    links: Vec<String>,
}

struct Pair<'a> {
    tree: &'a Tree,
    english: &'a File,
    chinese: &'a File,
}

impl Pair<'_> {
    fn check(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (page, other) in [(self.english, self.chinese), (self.chinese, self.english)] {
            if !leads_to(page, other) {
                let what = format!("no link to {} in the first {SWITCH_LINES} lines", other.path);
                found.push(page.at(1, &what));
            }
        }
        let (english, chinese) = (blocks(&self.english.text), blocks(&self.chinese.text));
        for (one, other) in english.iter().zip(&chinese) {
            if one.kind != other.kind {
                let place = self.english.at(one.line, &format!("{:?}", one.kind));
                found.push(self.chinese.at(other.line, &format!("{:?}, not {place}", other.kind)));
                return found;
            }
            for (text, translation) in one.texts.iter().zip(&other.texts) {
                let differences = self.differences(&one.kind, text, translation);
                found.extend(differences.iter().map(|what| {
                    let what = format!("{what} (line {} of the English page)", one.line);
                    self.chinese.at(other.line, &what)
                }));
            }
        }
        if english.len() != chinese.len() {
            let what = format!("{} blocks, {} in English", chinese.len(), english.len());
            found.push(self.chinese.at(self.chinese.text.lines().count(), &what));
        }
        found
    }

    fn differences(&self, kind: &BlockKind, text: &str, translation: &str) -> Vec<String> {
        if let BlockKind::Code { .. } = kind {
            let (text, translation) = (without_comments(text), without_comments(translation));
            return difference("code", &text, &translation).into_iter().collect();
        }
        let (one, other) = (marks(text), marks(translation));
        let links = [(self.english, &one.links), (self.chinese, &other.links)]
            .map(|(page, links)| sorted(links.iter().map(|link| self.destination(page, link))));
        let mut found: Vec<String> = [
            difference("code", &one.code, &other.code),
            difference("figures", &one.figures, &other.figures),
            difference("links", &links[0], &links[1]),
            self.why_untranslated(text, translation),
            why_english(translation),
        ]
        .into_iter()
        .flatten()
        .collect();
        if let BlockKind::Row { .. } = kind {
            let cell = CELLS.iter().find(|(cell, _)| *cell == text);
            let is_other = |(_, word): &&(&str, &str)| *word != translation;
            if let Some((cell, word)) = cell.filter(is_other) {
                found.push(format!("`{translation}` for {cell}, which is {word}"));
            }
        }
        found.extend(other.links.iter().filter_map(|link| self.why_wrong(link)));
        found
    }

    /// Where a link leads, as the English page says it. A heading of a pair counts by its place.
    fn destination(&self, from: &File, link: &str) -> String {
        if link.contains("://") {
            return link.to_owned();
        }
        let (path, anchor) = links::resolve(&from.path, link);
        let english = english_path(&path).unwrap_or_else(|| path.clone());
        let place = self.tree.file(&path).filter(|_| chinese_path(&english).is_some());
        let place = place.and_then(|page| links::anchors(page).iter().position(|a| *a == anchor));
        match place {
            Some(place) => format!("{english}#{place}"),
            None => format!("{english}#{anchor}"),
        }
    }

    /// A Chinese page leads to an English one of a pair only by its switch of languages.
    fn why_wrong(&self, link: &str) -> Option<String> {
        let (path, anchor) = links::resolve(&self.chinese.path, link);
        let is_switch = path == self.english.path && anchor.is_empty();
        let chinese = chinese_path(&path).filter(|_| !is_switch)?;
        (!link.contains("://")).then(|| format!("`{link}` leads to English; there is {chinese}"))
    }

    /// Names of locks, and capitalised words that the translation has too, need no translation.
    fn why_untranslated(&self, text: &str, translation: &str) -> Option<String> {
        let is_name = |word: &str| {
            let is_lock = self.tree.file(&format!("{LOCKS}{word}.md")).is_some();
            is_lock || (word.starts_with(char::is_uppercase) && translation.contains(word))
        };
        let words = plain(text)
            .split_whitespace()
            .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()))
            .filter(|word| word.contains(char::is_alphabetic) && !is_name(word))
            .count();
        let han = plain(translation).chars().filter(|c| is_han(*c)).count();
        let is_short = han * 100 < words * MIN_HAN;
        (words >= MIN_WORDS && is_short)
            .then(|| format!("{han} Chinese characters for {words} English words"))
    }
}

fn why_english(translation: &str) -> Option<String> {
    let text = plain(translation);
    let is_small = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase());
    let is_mark = |c: char| !c.is_ascii_alphanumeric() && !matches!(c, ' ' | '-');
    let left = text
        .split(is_mark)
        .find(|part| part.split_whitespace().filter(is_small).count() > MAX_ENGLISH_WORDS)?;
    Some(format!("left in English: {}", left.trim()))
}

fn leads_to(page: &File, other: &File) -> bool {
    let mut lines = page.text.lines().take(SWITCH_LINES);
    lines.any(|line| {
        links::targets(line).any(|link| links::resolve(&page.path, link).0 == other.path)
    })
}

/// What one has and the other lacks.
fn difference(what: &str, english: &[String], chinese: &[String]) -> Option<String> {
    let lacks = |these: &[String], those: &[String]| {
        let mut rest = those.to_vec();
        let missing =
            these.iter().filter(|one| match rest.iter().position(|other| other == *one) {
                Some(at) => {
                    rest.swap_remove(at);
                    false
                }
                None => true,
            });
        missing.cloned().collect::<Vec<_>>()
    };
    let (missing, added) = (lacks(english, chinese), lacks(chinese, english));
    (english != chinese).then(|| format!("{what}: missing {missing:?}, added {added:?}"))
}

fn sorted(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut texts: Vec<String> = texts.collect();
    texts.sort();
    texts
}

fn marks(text: &str) -> Marks {
    Marks {
        code: sorted(text.split('`').skip(1).step_by(2).map(str::to_owned)),
        figures: sorted(figures(&plain(text)).into_iter()),
        links: links::targets(&without_code(text)).map(str::to_owned).collect(),
    }
}

/// The text without code and without what links lead to.
fn plain(text: &str) -> String {
    let text = without_code(text);
    let mut parts = text.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        let rest = part.split_once(')').map_or(part, |(_, rest)| rest);
        format!("{all} {rest}")
    })
}

/// Numbers with their separators: `1,024`, `0.5`, `2026-11-24`.
fn figures(text: &str) -> Vec<String> {
    let fits = |c: char| c.is_ascii_digit() || matches!(c, ',' | '.' | '-' | ':');
    text.split(|c| !fits(c))
        .map(|part| part.trim_matches(|c: char| !c.is_ascii_digit()).to_owned())
        .filter(|figure| !figure.is_empty())
        .collect()
}

/// The lines of code without comments, which may be translated.
fn without_comments(code: &str) -> Vec<String> {
    let bare = |line: &str| {
        let marks = ["# ", "// "];
        let begins = marks.iter().filter_map(|mark| {
            let at = |(at, _): (usize, &str)| line[..at].is_empty() || line[..at].ends_with(' ');
            line.match_indices(mark).find(|found| at(*found)).map(|(at, _)| at)
        });
        line[..begins.min().unwrap_or(line.len())].trim_end().to_owned()
    };
    code.lines().map(bare).collect()
}

/// A page and its translation, as samples have them.
const ENGLISH_SAMPLE: &str = "# A

English | [简体中文](../zh/locks/a.md)

After 2 ms a `SET` lets a second holder in beside it: [why](#b).

| kind | fair |
|---|---|
| a | yes |

## B

- One.

```sh
make a    # one
```
";
const CHINESE_SAMPLE: &str = "# 锁

[English](../../locks/a.md) | 简体中文

2 ms 之后，`SET` 会让第二个持有者同时进入：[原因](#乙)。

| 锁类型 | 公平 |
|---|---|
| a | 是 |

## 乙

- 一。

```sh
make a    # 一
```
";

/// The two sample pages, after `from` became `to` in the Chinese one.
pub(crate) fn sample(from: &str, to: &str) -> String {
    let chinese = CHINESE_SAMPLE.replace(from, to);
    format!("{ENGLISH_SAMPLE}>>> docs/zh/locks/a.md\n{chinese}")
}
