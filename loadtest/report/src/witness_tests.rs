//! What faults and loads say is in the table: each text in the sources, and texts that they put
//! together.

use std::path::Path;

use crate::text::{ChinesePart, in_chinese, is_figure};

/// Where witnesses are written, and reasons why a cell is invalid.
const SOURCES: [&str; 4] =
    ["lab/src/faults", "lab/src/cell.rs", "lab/src/load_rate.rs", "judge/src/validity.rs"];

/// Reasons why a cell is not in a matrix, which only the terminal has; and tests.
const NOT_SHOWN: [&str; 3] = ["pairs.rs", "preconditions.rs", "tests.rs"];

/// How texts begin that are sent to servers.
const SCRIPTS: [&str; 5] = [
    "redis.call('select',",
    "for i = 1, 64 do",
    "for i = 1, 5e9 do",
    "BEGIN NOT ATOMIC",
    "POST /api/vouchers/",
];

/// Texts that no page shows, or that are parts of others: [`TOGETHER`] has the whole.
const EXCEPTIONS: [&str; 32] = [
    // Statements and log lines that are recognized.
    " SET stock = ",
    "failpoint {point}",
    ": stood still for ",
    ": the process ends here",
    " panic",
    // Errors of the command line, and of the board, which has its own texts.
    "no fault is called {name:?}",
    "{target} is {state}: it cannot {action}",
    // Only in the terminal.
    "{} and {}: {because}",
    "its fault happens to servers that its topology does not have",
    "its fault happens to an ensemble, which that lock does not use",
    "the laboratory can fill no disk of etcd, which needs no C library to write",
    "each is a fact of its own",
    // Plans: the table of keys has them.
    " and ",
    "{what} {}, for {lasts_ms} ms, {victim}",
    "freeze {}, until another has bought or cannot, {victim}",
    "once the load is steady, {after_ms} ms after its first request at the earliest",
    // Parts.
    "the database",
    "{before}, then {after}",
    "without a token",
    "a buyer",
    "asked to add {STRANGE_UNITS} units, {answers}",
    "was {lost}; member {} leads",
    "was cut off while it stood still; member {} leads, {both}",
    "member {} led and {what}, and the former follows",
    "{seen}, with the lock; when it went on, {others}",
    "{}, with the lock",
    "{old} was {how}; after {took} ms {new} was the master, and {old} {then}",
    "follows it",
    "does not follow it",
    "only {orders} of {stock} units{UNSOLD}",
    " were sold",
    "the load generator stood still for ",
];

/// Texts that are put together, as they come out.
const TOGETHER: [&str; 34] = [
    "the database was in state T for 1500 ms",
    "asked to add 30 units, without a token: 401, a buyer: 403",
    "5 asked for a sale that is over: 5 refused, 0 orders; 5 asked for a sale that is to come: \
     5 refused, 0 orders",
    "member 2 led and was killed; member 3 leads, and the former follows",
    "member 1 led and was frozen; member 2 leads, and the former follows",
    "member 1 led and was cut off while it stood still; member 2 leads, the former stepped down \
     before it answered, and the former follows",
    "member 1 led and was cut off while it stood still; member 2 leads, both said so for 40 ms, \
     and the former follows",
    "member 2 led, its disk refused 3 writes, and it served no more; member 3 leads, and it \
     follows",
    "member 2 followed, its disk refused 3 writes, and it served no more; member 3 leads, and it \
     follows",
    "r1 was in state T for 1300 ms with its COMMIT on the way; another wrote once meanwhile",
    "r1 was in state T for 1300 ms with its token on the way; others showed 2 tokens, and no other \
     replica wrote meanwhile",
    "r1 was in state T for 900 ms, with the lock; when it went on, a COMMIT was on the way for 12 \
     ms, and 2 other purchases wrote meanwhile",
    "r1 was process 7 and is 9, with the lock",
    "r1, process 7, was killed when it had lock:voucher:1, with a lease of 800 ms left",
    "redis-2 was killed; after 900 ms redis-5 was the master, and redis-2 follows it",
    "no witness: redis-2 was frozen, and redis-5 was not the master after 900 ms",
    "redis-2 was frozen; after 9 ms redis-5 was the master, and redis-2 does not follow it",
    "only 19 of 20 units were sold",
    "all ended with code 0; r1 was process 7 and is 9, r2 was process 8 and is 10",
    "freeze: r1 was in state T for 1500 ms; cut-database: r2: 9 connections cut, 3 refused",
    "r1: 0 bytes of requests passed meanwhile, 42 were held back",
    "r1: 0 bytes of answers passed meanwhile, 42 were held back",
    "r1: 3 parcels took 60ms and more there, 4 back",
    "r1: 9 of 90 packets lost, 8 overtaken by later ones; the kernel sent 7 segments again and \
     received 6 out of order",
    "6 answers to transactions were lost (the connections fell silent)",
    "6 answers to scripts were lost (the connections were closed instead)",
    "not seen within 8s: an answer to admissions is lost",
    "releases took 951, 952, 953 ms to arrive",
    "no witness: r1 was in state T, then S for 20 ms",
    "the replica is master now and never received of lock:voucher:1, which was held; the old \
     master follows it",
    "mariadb-1 was frozen; mariadb-2 takes writes now and never received 512 bytes",
    "9 slots moved to another master, 3 of them with a lock that was held",
    "the master was killed, and the sentinels name redis-2; it returned and said that it is a \
     master",
    "not judged: one at a time holds a lock",
];

/// The strings of a source outside of its comments and its tests.
fn strings(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n");
    let (mut found, mut rest) = (Vec::new(), code.as_str());
    while let Some((_, after)) = rest.split_once('"') {
        let (mut text, mut signs) = (String::new(), after.chars());
        loop {
            match signs.next() {
                None | Some('"') => break,
                Some('\\') if signs.as_str().starts_with('\n') => {
                    signs = signs.as_str().trim_start().chars();
                }
                Some('\\') => text.extend(signs.next()),
                Some(sign) => text.push(sign),
            }
        }
        found.push(text);
        rest = signs.as_str();
    }
    found
}

/// The text with a figure in the place of each value.
fn sample(text: &str) -> String {
    let mut parts = text.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        let after = part.split_once('}').map_or(part, |(_, after)| after);
        format!("{all}7{after}")
    })
}

/// Whether there are words in it, and more than one.
fn is_sentence(text: &str) -> bool {
    let bare = |word: &str| word.trim_matches(|c: char| c.is_ascii_punctuation()).to_owned();
    let is_word = |word: &str| word.len() > 2 && word.chars().all(|c| c.is_ascii_lowercase());
    text.contains(' ') && sample(text).split(' ').any(|word| is_word(&bare(word)))
}

/// What of the text has no Chinese.
fn untranslated(text: &str) -> Option<String> {
    let Some(parts) = in_chinese(text) else { return Some(text.to_owned()) };
    parts.into_iter().find_map(|part| match part {
        ChinesePart::English { en } if !is_figure(&en) => Some(en),
        _ => None,
    })
}

/// Every string of [`SOURCES`] that is a sentence.
fn sentences() -> Vec<String> {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for source in SOURCES {
        let path = packages.join(source);
        if path.is_dir() {
            let folder = std::fs::read_dir(&path).expect("a folder").flatten();
            files.extend(folder.map(|entry| entry.path()));
        } else {
            files.push(path);
        }
    }
    let is_shown = |path: &&std::path::PathBuf| !NOT_SHOWN.iter().any(|it| path.ends_with(it));
    let sources = files.iter().filter(is_shown).map(std::fs::read_to_string);
    let all = sources.flat_map(|source| strings(&source.expect("a source")));
    all.filter(|text| is_sentence(text)).collect()
}

#[test]
fn every_text_of_a_fault_and_every_reason_of_an_invalid_cell_is_in_chinese() {
    let all = sentences();
    assert!(all.len() > 150, "{} texts", all.len());
    let is_exempt = |text: &&String| {
        let is_script = SCRIPTS.iter().any(|begin| text.starts_with(begin));
        is_script || EXCEPTIONS.contains(&text.as_str())
    };
    let missing: Vec<_> = all
        .iter()
        .filter(|text| !is_exempt(text))
        .filter_map(|text| Some((text, untranslated(&sample(text))?)))
        .collect();
    assert!(missing.is_empty(), "translations.json lacks {missing:#?}");
    for exception in EXCEPTIONS {
        assert!(all.iter().any(|text| text == exception), "nothing writes {exception:?}");
    }
}

#[test]
fn texts_that_are_put_together_are_in_chinese_as_a_whole() {
    let missing: Vec<_> =
        TOGETHER.into_iter().filter_map(|text| Some((text, untranslated(text)?))).collect();
    assert!(missing.is_empty(), "translations.json lacks {missing:#?}");
    // A value of one word that has no Chinese is no part that is named as English.
    let is_word = |word: &str| word.len() > 2 && word.chars().all(|c| c.is_ascii_lowercase());
    for text in TOGETHER {
        let parts = in_chinese(text).into_iter().flatten().map(|part| match part {
            ChinesePart::Chinese(text) | ChinesePart::English { en: text } => text,
        });
        let chinese: String = parts.collect();
        let mut words = chinese.split(|c: char| !c.is_ascii_alphanumeric() && !"-:".contains(c));
        let english = words.find(|word| is_word(word) && !NAMES.contains(word));
        assert_eq!(english, None, "{chinese}");
    }
}

/// Words of texts that are the same in both languages.
const NAMES: [&str; 2] = ["freeze", "master"];
