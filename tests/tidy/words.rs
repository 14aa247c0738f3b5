//! How types and constants are named, and how prose is written: the field's own words.

use std::collections::HashMap;

use crate::docs::GLOSSARY;
use crate::prose::{self, Sentence};
use crate::rust::Token;
use crate::tree::{File, Tree};

/// The laws and their samples of what is forbidden.
const LAWS: [&str; 2] = ["tests/tidy.rs", "tests/tidy/"];

/// Steps of the schema whose text is final: a database remembers the checksum of each step that it
/// has applied, comments included. Later steps have no exemption.
const APPLIED_STEPS: [&str; 10] = [
    "migrations/0002_vouchers.sql",
    "migrations/0007_orders_status.sql",
    "migrations/0011_sale_epochs.sql",
    "migrations/0012_tickets.sql",
    "migrations/0013_dead_letters.sql",
    "migrations/0014_unreadable_entries.sql",
    "migrations/0015_charges.sql",
    "migrations/lock/8001_lock_holders.sql",
    "migrations/lock/8004_lock_rows.sql",
    "migrations/lock/8006_lock_fence.sql",
];

/// Participles that do not end in `ed` or `ing`, adjectives, pronouns and other words that name
/// nothing by themselves.
const NOT_NOUNS: [&str; 66] = [
    "About",
    "After",
    "Alike",
    "Alive",
    "Armed",
    "Bare",
    "Before",
    "Bought",
    "Busy",
    "Current",
    "Cut",
    "Done",
    "Drawn",
    "Earlier",
    "Far",
    "Forgotten",
    "Found",
    "Free",
    "Gone",
    "Got",
    "Heard",
    "Held",
    "How",
    "Inner",
    "Kept",
    "Known",
    "Late",
    "Left",
    "Lent",
    "Live",
    "Lossy",
    "Lost",
    "Made",
    "Me",
    "More",
    "Never",
    "Next",
    "Nothing",
    "Of",
    "One",
    "Open",
    "Other",
    "Others",
    "Ours",
    "Over",
    "Own",
    "Past",
    "Raw",
    "Said",
    "Seen",
    "Shown",
    "Slow",
    "Sold",
    "Steady",
    "Struck",
    "Taken",
    "Theirs",
    "To",
    "Together",
    "Tokenless",
    "Told",
    "Up",
    "Usual",
    "What",
    "Whole",
    "Woken",
];

/// Names in `ed` or `ing` that the field uses as nouns, each with its reason.
const NOUNS: [(&str, &str); 9] = [
    ("Bed", "a test bed: the servers of a test"),
    ("Greeting", "the first packet of a MySQL server"),
    ("Fencing", "what the literature calls refusing late writers"),
    ("Embed", "what rust-embed calls it"),
    ("Framing", "of messages, in protocols"),
    ("Feed", "a stream of events"),
    ("Seed", "of a random generator"),
    ("Housekeeping", "periodic upkeep of tables"),
    ("String", "text"),
];

/// A type is named by a noun that the field knows.
pub(crate) fn types_are_nouns(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (file, name) in types(tree) {
        let text = name.text.as_str();
        let is_one_word = text.chars().filter(|c| c.is_uppercase()).count() == 1;
        let is_participle = text.ends_with("ed") || text.ends_with("ing");
        let is_allowed = NOUNS.iter().any(|(noun, _)| *noun == text);
        if is_one_word && !is_allowed && (is_participle || NOT_NOUNS.contains(&text)) {
            found.push(file.at(name.line, &format!("`{text}` is no noun: what is it?")));
        }
    }
    found
}

/// No two types of one crate share a name. Each program of tests is a crate of its own.
pub(crate) fn types_have_no_twins(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    let mut first: HashMap<(String, String), String> = HashMap::new();
    for (file, name) in types(tree) {
        let Some(crate_name) = crate_of(&file.path) else { continue };
        // `Error` of a module and an associated type are the field's habit.
        if name.in_test || ["Error", "Result", "Args"].contains(&name.text.as_str()) {
            continue;
        }
        let place = file.at(name.line, "");
        match first.entry((crate_name, name.text.clone())) {
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(place);
            }
            std::collections::hash_map::Entry::Occupied(taken) => {
                let what = format!("`{}` is also at {}", name.text, taken.get());
                found.push(file.at(name.line, what.trim_end_matches([':', ' '])));
            }
        }
    }
    found
}

/// The folder of the package whose library or program the file belongs to.
fn crate_of(path: &str) -> Option<String> {
    let (package, rest) = path.split_once("src/")?;
    (package.is_empty() || package.ends_with('/')).then(|| {
        let program = rest.strip_prefix("bin/").unwrap_or_default();
        format!("{package}{program}")
    })
}

/// Names of structs, enums, traits and aliases; not those that a trait or an `impl` asks for.
fn types(tree: &Tree) -> Vec<(&File, &Token)> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| !file.under(&LAWS)) {
        let lines: Vec<&str> = file.text.lines().collect();
        for pair in file.tokens().windows(2) {
            let line = lines.get(pair[0].line - 1).copied().unwrap_or_default();
            let is_alias = pair[0].is("type") && !line.starts_with(char::is_whitespace);
            let is_type = is_alias || pair[0].is_any(&["struct", "enum", "trait", "union"]);
            if is_type && pair[1].is_name() {
                found.push((file, &pair[1]));
            }
        }
    }
    found
}

/// Words that hide who does what, or how much of it.
const VAGUE: [&str; 20] = [
    "whoever",
    "somebody",
    "anybody",
    "nobody",
    "everybody",
    "he",
    "she",
    "his",
    "him",
    "himself",
    "in vain",
    "gone on with",
    "goes on with",
    "so many times",
    "so many",
    "for a while",
    "no more than once",
    "as it were",
    "by himself",
    "whomever",
];

pub(crate) fn prose_is_precise(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    let mut check = |file: &File, line, text: &str| {
        for vague in vague_words(text) {
            found.push(file.at(line, &format!("\"{vague}\": name it, or count it")));
        }
    };
    for (file, sentence) in sentences(tree) {
        check(file, sentence.line, &sentence.text);
    }
    // Log lines, errors and help are prose as well.
    for file in tree.files.iter().filter(|file| !file.under(&LAWS)) {
        for token in file.code() {
            check(file, token.line, token.string().unwrap_or_default());
        }
    }
    found
}

fn vague_words(text: &str) -> impl Iterator<Item = &'static str> {
    let words: Vec<String> = text
        .split(|c: char| !(c.is_alphanumeric() || c == '\'' || c == '-'))
        .map(|word| word.trim_end_matches("'s").to_lowercase())
        .filter(|word| !word.is_empty())
        .collect();
    let text = format!(" {} ", words.join(" "));
    VAGUE.into_iter().filter(move |vague| text.contains(&format!(" {vague} ")))
}

/// Words that other Chinese texts have for a term of the glossary, beside that term.
const OTHER_TERMS: [(&[&str], &str); 40] = [
    (&["锁种类", "锁的种类"], "锁类型"),
    (&["拥有者", "所有者", "持有人", "持锁者", "占有者"], "持有者"),
    (&["竞争方", "争用者"], "竞争者"),
    (&["等待人", "等候者"], "等待者"),
    (&["租期", "租赁", "租用"], "租约"),
    (&["有效期"], "有效时间"),
    (&["时钟偏移", "漂移裕量"], "时钟漂移余量"),
    (&["监视狗", "看守狗", "守护线程"], "看门狗"),
    (&["续租", "续约", "续命"], "续期"),
    (&["递归锁", "可再入"], "可重入"),
    (&["叫醒", "唤起"], "唤醒"),
    (&["锁移交", "锁传递"], "锁交接"),
    (&["围栏令牌", "栅栏令牌", "防护令牌", "屏障令牌"], "隔离令牌"),
    (&["令牌生成器", "令牌签发器"], "令牌发号器"),
    (&["围栏", "防护栏"], "隔离栅栏"),
    (&["多重锁", "组合锁", "复合锁"], "联锁"),
    (&["公正锁"], "公平锁"),
    (&["信号灯", "旗语"], "信号量"),
    (&["可过期信号量", "限时信号量"], "可过期性信号量"),
    (&["闩", "倒计数器"], "闭锁"),
    (&["锁检查器", "锁探查器"], "锁查看器"),
    (&["部分锁定"], "部分持有"),
    (&["强制解锁", "强行释放"], "强制释放"),
    (&["审计记录", "审计轨迹", "审计追踪"], "审计日志"),
    (&["保证表", "保障表"], "保证一览表"),
    (&["故障切换", "失效转移", "主从切换", "主备切换"], "故障转移"),
    (&["裂脑"], "脑裂"),
    (&["闪购"], "秒杀"),
    (&["优惠券", "消费券"], "代金券"),
    (&["复本"], "副本"),
    (&["超售"], "超卖"),
    (&["重复购买", "重复抢购"], "重复下单"),
    (&["热行", "热点记录"], "热点行"),
    (&["临界段", "关键区"], "临界区"),
    (&["排队票", "票据"], "排队凭证"),
    (&["幂等性键", "幂等令牌"], "幂等键"),
    (&["优雅关闭", "优雅退出", "平滑关闭"], "优雅停机"),
    (&["错误注入"], "故障注入"),
    (&["注入的缺陷", "注入缺陷", "植入的缺陷"], "植入缺陷"),
    (&["裁判", "评判器"], "判定器"),
];
/// Files with messages of hm-dianping, whose words are its own.
const DIANPING: &str = "dianping";

/// One thing has one word in Chinese too, in pages and in texts of programs.
pub(crate) fn chinese_terms_are_of_the_glossary(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| !file.is_vendored() && !file.under(&LAWS)) {
        if file.path.contains(DIANPING) {
            continue;
        }
        for (line, text) in file.lines().filter(|(_, text)| !text.is_ascii()) {
            for (others, term) in OTHER_TERMS {
                let others = others.iter().filter(|other| text.contains(**other));
                found.extend(others.map(|other| file.at(line, &format!("{other}: {term}"))));
            }
        }
        if file.path == GLOSSARY {
            let terms = OTHER_TERMS.iter().map(|(_, term)| term);
            let missing = terms.filter(|term| !file.text.contains(**term));
            found.extend(missing.map(|term| file.at(1, &format!("lacks {term}"))));
        }
    }
    found
}

const MAX_WORDS: usize = 30;
/// The same for Chinese, where a word of another script counts as one character.
const MAX_CHARACTERS: usize = 80;

pub(crate) fn sentences_are_short(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (file, sentence) in sentences(tree) {
        let (count, most, of) = match sentence.characters() {
            Some(characters) => (characters, MAX_CHARACTERS, "characters"),
            None => (sentence.words(), MAX_WORDS, "words"),
        };
        if count > most {
            let begin: String = sentence.text.chars().take(50).collect();
            let what = format!("{count} {of}, of {most} at most: {begin}...");
            found.push(file.at(sentence.line, &what));
        }
    }
    found
}

fn sentences(tree: &Tree) -> impl Iterator<Item = (&File, Sentence)> {
    let is_exempt = |file: &&File| {
        file.is_vendored() || file.under(&LAWS) || APPLIED_STEPS.contains(&file.path.as_str())
    };
    let written = tree.files.iter().filter(move |file| !is_exempt(file));
    written.flat_map(|file| prose::sentences(file).into_iter().map(move |found| (file, found)))
}

/// How a line begins that only makes sense after the one above it.
const DEPENDENT: [&str; 10] =
    ["It ", "The same", "And ", "Its ", "So ", "Likewise", "That ", "They ", "These ", "Such "];

/// The first line of an item's documentation stands alone in rustdoc's lists.
pub(crate) fn summaries_stand_alone(tree: &Tree) -> Vec<String> {
    const ITEMS: [&str; 7] = ["fn ", "struct ", "enum ", "trait ", "type ", "const ", "mod "];
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| file.is_rust() && !file.under(&LAWS)) {
        let mut summary = None;
        for (line, text) in file.lines() {
            let text = text.trim_start();
            if let Some(words) = text.strip_prefix("/// ") {
                summary.get_or_insert((line, words));
            } else if !text.starts_with("///") && !text.starts_with("#[") {
                let words = summary.take().filter(|_| ITEMS.iter().any(|i| text.contains(i)));
                let starts = |(_, words): &(usize, &str)| {
                    DEPENDENT.iter().any(|start| words.starts_with(start))
                };
                if let Some((line, words)) = words.filter(starts) {
                    found.push(file.at(line, &format!("a summary that needs a context: {words}")));
                }
            }
        }
    }
    found
}

/// What metrics of each sort end in, by the conventions of Prometheus.
const UNITS: [(&str, &[&str]); 2] =
    [("counter", &["_total"]), ("histogram", &["_seconds", "_bytes"])];

/// Where all metrics are described.
const DESCRIPTIONS: &str = "src/telemetry";

/// A metric's name says its unit, and the page of metrics says what it is.
pub(crate) fn metrics_follow_the_conventions(tree: &Tree) -> Vec<String> {
    let described = |name: &str| {
        let quoted = format!("\"{name}\"");
        let mut files = tree.files.iter().filter(|file| file.path.starts_with(DESCRIPTIONS));
        files.any(|file| file.text.contains(&quoted))
    };
    let mut found = Vec::new();
    for file in tree.rust(&["src/", "distlock/src/"], &[]) {
        for window in file.code().windows(4) {
            let sort = window[0].text.as_str();
            let Some(name) = window[3].string().filter(|_| window[1].is("!")) else { continue };
            if !["counter", "histogram", "gauge"].contains(&sort) {
                continue;
            }
            let ends = UNITS.iter().find(|(of, _)| *of == sort).map(|(_, ends)| *ends);
            if ends.is_some_and(|ends| !ends.iter().any(|end| name.ends_with(end)))
                || (sort == "gauge" && name.ends_with("_total"))
            {
                found.push(file.at(window[3].line, &format!("a {sort} is not called `{name}`")));
            }
            if !described(name) {
                found.push(file.at(window[3].line, &format!("`{name}` is described nowhere")));
            }
        }
    }
    found
}
