//! Rust source as a flat list of tokens: no comments, no documentation, every token with its line.
//!
//! Tokens and not a syntax tree, because they see into macros and need no parser.

use proc_macro2::{Delimiter, Group, Literal, Punct, Spacing, TokenStream, TokenTree};

pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
    pub(crate) in_test: bool,
}

impl Token {
    pub(crate) fn is(&self, text: &str) -> bool {
        self.text == text
    }

    pub(crate) fn is_any(&self, texts: &[&str]) -> bool {
        texts.contains(&self.text.as_str())
    }

    pub(crate) fn is_name(&self) -> bool {
        self.text.starts_with(|first: char| first.is_alphabetic() || first == '_')
            && self.string().is_none()
    }

    /// What stands between the quotes, if this is a string.
    pub(crate) fn string(&self) -> Option<&str> {
        let (prefix, rest) = self.text.split_once('"')?;
        let is_string = prefix.chars().all(|c| "bcr#".contains(c));
        is_string.then(|| rest.rsplit_once('"').map_or(rest, |(inner, _)| inner))
    }
}

/// Punctuation that is one token to a reader.
const PAIRS: [&str; 5] = ["::", "=>", "->", "==", "!="];

pub(crate) fn tokens(path: &str, text: &str) -> Vec<Token> {
    let stream: TokenStream =
        text.parse().unwrap_or_else(|error| panic!("{path} is not Rust: {error}"));
    let is_test_file = path.split('/').any(|part| part == "tests" || part.ends_with("tests.rs"));
    let mut out = Vec::new();
    flatten(stream, is_test_file, &mut out);
    out
}

fn flatten(stream: TokenStream, mut in_test: bool, out: &mut Vec<Token>) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let whole = in_test;
    let mut at = 0;
    while let Some(tree) = trees.get(at) {
        at += 1;
        if let Some((inner, attribute, length)) = attribute(&trees[at - 1..]) {
            if names(attribute).first().is_some_and(|name| name == "doc") {
                at += length - 1;
                continue;
            }
            if is_for_tests(attribute) {
                in_test = true;
                // `#![cfg(test)]` holds to the end of the file, so nothing may end it.
                if inner {
                    return flatten(trees[at + length - 1..].iter().cloned().collect(), true, out);
                }
            }
        }
        let line = tree.span().start().line;
        let mut push = |text: String, line| out.push(Token { text, line, in_test });
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = delimiters(group);
                push(open.to_owned(), line);
                flatten(group.stream(), in_test, out);
                let line = group.span_close().start().line;
                out.push(Token { text: close.to_owned(), line, in_test });
            }
            TokenTree::Ident(name) => push(name.to_string(), line),
            TokenTree::Literal(literal) => push(Literal::to_string(literal), line),
            TokenTree::Punct(punct) => {
                let glued = glue(punct, trees.get(at));
                at += usize::from(glued.is_some());
                push(glued.unwrap_or_else(|| punct.as_char().to_string()), line);
            }
        }
        let ends_item = match tree {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            TokenTree::Punct(punct) => punct.as_char() == ';',
            _ => false,
        };
        if ends_item {
            in_test = whole;
        }
    }
}

/// The attribute at the start of `trees`: whether it is an inner one, its group, its length.
fn attribute(trees: &[TokenTree]) -> Option<(bool, &Group, usize)> {
    let is = |tree: &TokenTree, sign| matches!(tree, TokenTree::Punct(p) if p.as_char() == sign);
    match trees {
        [hash, TokenTree::Group(group), ..] if is(hash, '#') => Some((false, group, 2)),
        [hash, bang, TokenTree::Group(group), ..] if is(hash, '#') && is(bang, '!') => {
            Some((true, group, 3))
        }
        _ => None,
    }
}

fn is_for_tests(attribute: &Group) -> bool {
    let names = names(attribute);
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    names.first().is_some_and(|name| name == "cfg") && has("test") && !has("not")
}

fn names(group: &Group) -> Vec<String> {
    let mut names = Vec::new();
    for tree in group.stream() {
        match tree {
            TokenTree::Ident(name) => names.push(name.to_string()),
            TokenTree::Group(group) => names.extend(self::names(&group)),
            _ => {}
        }
    }
    names
}

fn delimiters(group: &Group) -> (&'static str, &'static str) {
    match group.delimiter() {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Brace => ("{", "}"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::None => ("", ""),
    }
}

/// `::` and its like, and lifetimes (`'static` is not the keyword `static`).
fn glue(punct: &Punct, next: Option<&TokenTree>) -> Option<String> {
    if punct.spacing() == Spacing::Alone {
        return None;
    }
    let pair = format!("{}{}", punct.as_char(), next?);
    (PAIRS.contains(&pair.as_str()) || punct.as_char() == '\'').then_some(pair)
}

pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    /// From `fn` to the closing brace.
    pub(crate) lines: usize,
    /// The receiver counts, as it does for clippy.
    pub(crate) parameters: usize,
    pub(crate) is_test: bool,
}

pub(crate) fn functions(tokens: &[Token]) -> Vec<Function> {
    let starts = (0..tokens.len()).filter(|&at| tokens[at].is("fn"));
    starts.filter_map(|at| function(tokens, at)).collect()
}

fn function(tokens: &[Token], at: usize) -> Option<Function> {
    let name = tokens.get(at + 1).filter(|token| token.is_name())?;
    let open = past_angles(tokens, at + 2);
    let close = end_of_group(tokens, open)?;
    let after = close + tokens[close..].iter().position(|token| token.is_any(&["{", ";"]))?;
    let end = if tokens[after].is("{") { end_of_group(tokens, after)? } else { after };
    Some(Function {
        name: name.text.clone(),
        line: tokens[at].line,
        lines: tokens[end].line - tokens[at].line + 1,
        parameters: count_parameters(&tokens[open + 1..close]),
        is_test: has_test_attribute(&tokens[..at]),
    })
}

/// The index after `<...>`, if it begins here.
fn past_angles(tokens: &[Token], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while let Some(token) = tokens.get(at) {
        depth += usize::from(token.is("<"));
        if depth == 0 {
            break;
        }
        depth -= usize::from(token.is(">"));
        at += 1;
    }
    at
}

/// The index of the delimiter that closes the one at `open`.
pub(crate) fn end_of_group(tokens: &[Token], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        depth += usize::from(token.is_any(&["(", "[", "{"]));
        depth = depth.checked_sub(usize::from(token.is_any(&[")", "]", "}"])))?;
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

fn count_parameters(tokens: &[Token]) -> usize {
    let mut depth = 0_i32;
    let mut commas = 0;
    for token in tokens {
        match token.text.as_str() {
            "(" | "[" | "{" | "<" => depth += 1,
            ")" | "]" | "}" | ">" => depth -= 1,
            "," if depth == 0 => commas += 1,
            _ => {}
        }
    }
    match tokens.last() {
        None => 0,
        Some(last) if last.is(",") => commas,
        Some(_) => commas + 1,
    }
}

/// Whether `#[test]` or `#[tokio::test]` stands before the function that begins here.
fn has_test_attribute(before: &[Token]) -> bool {
    let start =
        before.iter().rposition(|token| token.is_any(&["{", "}", ";"])).map_or(0, |at| at + 1);
    before[start..].windows(2).any(|pair| pair[0].is_any(&["[", "::"]) && pair[1].is("test"))
}
