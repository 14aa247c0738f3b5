//! The table of guarantees in the documentation is the code's.

use distlock::{HoldKind, LockKind, guarantees};

const PAGE: &str = include_str!("../../docs/locks.md");

/// The cells of each line of the first table whose head begins like that.
fn table(head: &str) -> Vec<Vec<String>> {
    let rows = PAGE.lines().skip_while(|line| !line.starts_with(head)).skip(2);
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

#[test]
fn the_documented_table_of_guarantees_is_the_one_of_the_code() {
    let mut documented = Vec::new();
    for line in table("| kind | hold |") {
        let (kinds, columns) = line.split_first().expect("a kind");
        for kind in kinds.split(", ") {
            let kind: LockKind = kind.parse().expect("a kind that exists");
            assert_eq!(columns, row(kind), "{kind}");
            documented.push(kind);
        }
    }
    assert_eq!(documented, LockKind::ALL);
}

#[test]
fn each_kind_has_its_section() {
    for kind in LockKind::ALL {
        assert!(PAGE.contains(&format!("\n### {kind}\n")), "{kind} has no section");
    }
}
