//! The blocks of a Markdown page: headings, paragraphs, items, rows and code.

#[derive(Debug, PartialEq)]
pub(crate) enum BlockKind {
    Heading(usize),
    Paragraph,
    Item { indent: usize },
    Row { cells: usize },
    Code { language: String },
}

pub(crate) struct Block {
    pub(crate) line: usize,
    pub(crate) kind: BlockKind,
    /// The cells of a row; else one text.
    pub(crate) texts: Vec<String>,
}

pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let (mut is_open, mut in_code) = (false, false);
    for (index, line) in page.lines().enumerate() {
        let text = line.trim();
        if let Some(language) = text.strip_prefix("```") {
            if !in_code {
                let kind = BlockKind::Code { language: language.to_owned() };
                found.push(Block { line: index + 1, kind, texts: vec![String::new()] });
            }
            in_code = !in_code;
            is_open = false;
        } else if in_code {
            extend(&mut found, line, '\n');
        } else if text.is_empty() {
            is_open = false;
        } else {
            let kind = kind_of(line);
            if is_open && kind == BlockKind::Paragraph {
                extend(&mut found, text, ' ');
                continue;
            }
            let texts = match kind {
                BlockKind::Row { .. } => cells(text),
                _ => vec![without_marker(text).to_owned()],
            };
            is_open = matches!(kind, BlockKind::Paragraph | BlockKind::Item { .. });
            found.push(Block { line: index + 1, kind, texts });
        }
    }
    found
}

fn extend(blocks: &mut [Block], line: &str, separator: char) {
    if let Some(text) = blocks.last_mut().and_then(|block| block.texts.last_mut()) {
        text.push(separator);
        text.push_str(line);
    }
}

fn kind_of(line: &str) -> BlockKind {
    let text = line.trim();
    let level = text.chars().take_while(|c| *c == '#').count();
    if level > 0 && text[level..].starts_with(' ') {
        BlockKind::Heading(level)
    } else if text.starts_with('|') {
        BlockKind::Row { cells: cells(text).len() }
    } else if without_marker(text) != text {
        BlockKind::Item { indent: line.len() - line.trim_start().len() }
    } else {
        BlockKind::Paragraph
    }
}

fn cells(row: &str) -> Vec<String> {
    let inner = row.strip_prefix('|').unwrap_or(row);
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    inner.split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// An item of a list without its dash or number. A number of more digits ends a wrapped sentence.
fn without_marker(text: &str) -> &str {
    let is_marker = |number: &str| number.len() <= 2 && number.parse::<u8>().is_ok();
    let number = text.split_once(". ").filter(|(number, _)| is_marker(number));
    number.map_or_else(|| text.strip_prefix("- ").unwrap_or(text), |(_, rest)| rest)
}
