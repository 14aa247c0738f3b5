//! The tables of guarantees in the documentation are the code's.

use std::fs;
use std::path::{Path, PathBuf};

use distlock::{HoldKind, LockKind, guarantees};

/// What each page of a kind says, in this order.
const HEADINGS: [&str; 7] = [
    "What it is",
    "How it works",
    "What it promises",
    "How it breaks",
    "What repairs it",
    "When to choose it",
    "See it yourself",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/locks")
}

/// A page of `docs/locks/`.
fn page(name: &str) -> String {
    fs::read_to_string(folder().join(format!("{name}.md"))).expect(name)
}

/// The cells of each line of the first table whose head begins like that.
fn table(page: &str, head: &str) -> Vec<Vec<String>> {
    let rows = page.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    rows.take_while(|line| line.starts_with('|')).map(cells).collect()
}

fn cells(line: &str) -> Vec<String> {
    let inner = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')).expect("a line");
    inner.split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// The line of a kind, as the code has it. What a composite promises depends on its members.
fn row(kind: LockKind) -> Vec<String> {
    let promise = guarantees(kind);
    let columns = [
        promise.renewal.to_string(),
        promise.wake.to_string(),
        promise.owner_checked.to_string(),
        promise.idempotent.to_string(),
        promise.reentrant.to_string(),
        promise.fair.to_string(),
        promise.fencing.to_string(),
    ];
    let depends = promise.hold == HoldKind::WeakestMember;
    let columns = columns.map(|column| if depends { String::new() } else { column });
    [promise.hold.to_string()].into_iter().chain(columns).collect()
}

/// The cells and the head of the Chinese table, which says the same.
const CHINESE: [(&str, &str); 24] = [
    ("kind", "锁类型"),
    ("hold", "持有方式"),
    ("renewal", "续期"),
    ("wake", "唤醒"),
    ("owner checked", "校验持有者"),
    ("idempotent", "幂等"),
    ("reentrant", "可重入"),
    ("fair", "公平"),
    ("fencing", "隔离令牌"),
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
    ("server", "服务器"),
];

fn chinese(cell: &str) -> String {
    let known = CHINESE.iter().find(|(english, _)| *english == cell);
    known.map_or(cell, |(_, chinese)| *chinese).to_owned()
}

/// The whole table, as the code has it.
fn guarantees_table(word: fn(&str) -> String) -> String {
    let head = [
        "kind",
        "hold",
        "renewal",
        "wake",
        "owner checked",
        "idempotent",
        "reentrant",
        "fair",
        "fencing",
    ];
    let as_line =
        |cells: Vec<String>| format!("| {} |\n", cells.join(" | ").replace("  ", " ").trim_end());
    let rows = LockKind::ALL.map(|kind| {
        let link = format!("[{kind}]({kind}.md)");
        let cells = row(kind).into_iter().map(|cell| word(&cell));
        as_line([link].into_iter().chain(cells).collect())
    });
    let head = as_line(head.map(word).to_vec());
    format!("{head}|{}\n{}", "---|".repeat(9), rows.concat())
}

/// With `UPDATE_DOCS=1` it writes the tables instead.
#[test]
fn the_documented_table_of_guarantees_is_the_one_of_the_code() {
    let pages = [("guarantees.md", str::to_owned as fn(&str) -> String)];
    for (page, word) in pages.into_iter().chain([("../zh/locks/guarantees.md", chinese as _)]) {
        let path = folder().join(page);
        let text = fs::read_to_string(&path).expect("the page");
        let is_row = |line: &&str| line.starts_with('|');
        let documented: String =
            text.lines().filter(is_row).flat_map(|line| [line, "\n"]).collect();
        let table = guarantees_table(word);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(path, text.replace(&documented, &table)).expect("the page");
        } else {
            assert_eq!(documented, table, "UPDATE_DOCS=1 writes it");
        }
    }
}

#[test]
fn each_kind_has_a_page_with_its_guarantees_under_the_same_headings() {
    for kind in LockKind::ALL {
        let page = page(kind.as_str());
        let headings: Vec<&str> =
            page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(headings, HEADINGS, "{kind}");
        assert_eq!(table(&page, "| hold |"), [row(kind)], "{kind}");
    }
}
