//! `seckill locks`: the table of guarantees.

use distlock::{HoldKind, LockKind, guarantees};
use serde_json::Value;

use super::run;

const SYNCHRONIZERS: [&str; 3] = ["semaphore", "expirable-semaphore", "countdown-latch"];

#[test]
fn the_table_has_a_line_for_each_kind_and_says_what_each_gets_wrong() {
    let text = run(&["locks"], &[]).fine();
    let (table, flaws) = text.split_once("Known flaws:").expect("two parts");
    let lines: Vec<&str> = table.lines().filter(|line| !line.is_empty()).collect();
    let names: Vec<&str> = lines[1..].iter().map(|line| words(line)[0]).collect();
    let kinds = LockKind::ALL.map(LockKind::as_str);
    assert_eq!(names, [&kinds[..], &SYNCHRONIZERS].concat(), "{table}");
    for (kind, line) in LockKind::ALL.into_iter().zip(&lines[1..]) {
        let promised = guarantees(kind);
        assert!(line.contains(&promised.hold.to_string()), "{line}");
        if promised.hold != HoldKind::WeakestMember {
            assert!(line.ends_with(&promised.fencing.to_string()), "{line}");
        }
        for flaw in promised.flaws {
            assert!(flaws.contains(flaw), "{kind}: {flaw}");
        }
    }
    let further = flaws.lines().filter(|line| line.starts_with("   "));
    assert!(further.count() > 5, "further flaws of one kind are set in:\n{flaws}");
}

#[test]
fn the_table_as_json_holds_what_the_library_says_of_itself() {
    let json: Value = serde_json::from_str(&run(&["locks", "--json"], &[]).fine()).expect("JSON");
    let locks = json["locks"].as_array().expect("locks");
    assert_eq!(locks.len(), LockKind::ALL.len());
    for (kind, lock) in LockKind::ALL.into_iter().zip(locks) {
        let promised = guarantees(kind);
        assert_eq!(lock["kind"], kind.as_str());
        for (column, value) in [
            ("hold", promised.hold.to_string()),
            ("renewal", promised.renewal.to_string()),
            ("wake", promised.wake.to_string()),
            ("owner_checked", promised.owner_checked.to_string()),
            ("idempotent", promised.idempotent.to_string()),
            ("reentrant", promised.reentrant.to_string()),
            ("fair", promised.fair.to_string()),
            ("fencing", promised.fencing.to_string()),
        ] {
            // What a composite promises besides depends on its members.
            let depends = promised.hold == HoldKind::WeakestMember && column != "hold";
            assert_eq!(lock[column], if depends { "" } else { &value }, "{kind} {column}");
        }
        let flaws: Vec<&str> =
            lock["flaws"].as_array().expect("flaws").iter().filter_map(Value::as_str).collect();
        assert_eq!(flaws, promised.flaws, "{kind}");
    }
    let others = json["synchronizers"].as_array().expect("synchronizers");
    let names: Vec<&str> = others.iter().filter_map(|other| other["name"].as_str()).collect();
    assert_eq!(names, SYNCHRONIZERS);
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}
