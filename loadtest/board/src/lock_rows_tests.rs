use serde_json::json;

use super::*;

const ANY_AGE: u64 = u64::MAX / 2;

/// A lock as the inspector writes it, whose holder asked at that time.
fn lock(name: &str, asked_at_ms: u64) -> Value {
    let owner = format!("4f0c:1@db3/4711/seckill/{asked_at_ms}");
    let tag = json!({
        "label": "seckill", "host": "db3", "process": 4711, "asked_at_ms": asked_at_ms,
    });
    let holder = json!({
        "id": owner, "owner": owner, "tag": tag, "holds": 1, "shares": false,
        "lease": {"kind": "ends", "left_ms": 900}, "token": null, "place": null, "servers": 1,
    });
    let waiters = json!({
        "known": true, "ordered": true, "complete": true,
        "ids": ["5e1d@db3/4712/seckill/7", "another program"],
        "tags": [{"label": "seckill", "host": "db3", "process": 4712, "asked_at_ms": 7}, null],
    });
    json!({
        "name": name, "kinds": ["fair"], "state": "held", "reason": null, "holders": [holder],
        "waiters": waiters, "renewal": "yes",
    })
}

fn list(locks: &[Value], failures: &Value) -> String {
    json!({"complete": true, "locks": locks, "unlisted": [], "failures": failures}).to_string()
}

#[test]
fn a_row_names_the_replicas_of_its_holder_and_waiters() {
    let processes = ReplicaProcesses(vec![4710, 4711, 4712]);
    let held = HeldLocks::parse(&list(&[lock("lock:order:7", 1)], &json!([])), &processes);
    let held = serde_json::to_value(held.expect("a list")).expect("JSON");
    assert_eq!(held["state"], "listed");
    let row = &held["locks"][0];
    assert_eq!((&row["name"], &row["holder_count"]), (&json!("lock:order:7"), &json!(1)));
    let holder = &row["holders"][0];
    assert_eq!((&holder["replica"], &holder["lease"]["left_ms"]), (&json!("r2"), &json!(900)));
    assert!(holder["asked_ms_ago"].as_u64().is_some_and(|age| age > 1_000_000), "{holder}");
    assert_eq!(row["waiters"]["replicas"], json!(["r3", null]));
}

#[test]
fn the_locks_that_were_asked_for_first_are_shown_and_all_are_counted() {
    let mut locks: Vec<Value> =
        (0..100).map(|number| lock(&format!("{number:03}"), ANY_AGE - number)).collect();
    locks[7]["waiters"]["ids"] = (0..900).map(|id| json!(id.to_string())).collect();
    locks[99]["name"] = "n".repeat(1000).into();
    locks[99]["waiters"]["ids"] = (0..900).map(|_| json!("w".repeat(1000))).collect();
    let held = HeldLocks::parse(&list(&locks, &json!([])), &ReplicaProcesses::default());
    let held = held.expect("a list");
    assert_eq!((held.locks.len(), held.count), (MAX_LOCKS, 100));
    assert_eq!(held.locks[1].name, "098");
    let oldest = &held.locks[0];
    assert!(oldest.name.len() < 200, "{}", oldest.name.len());
    assert_eq!((oldest.waiters.ids.len(), oldest.waiters.count), (MAX_OF_LOCK, 900));
    let bytes = serde_json::to_string(&held).expect("JSON").len();
    assert!(bytes < 50_000, "{bytes}");
}

#[test]
fn of_many_holders_the_one_that_asked_first_counts_and_five_are_shown() {
    let (mut many, other) = (lock("many", 900), lock("other", 500));
    let holders: Vec<Value> =
        (100..108).rev().map(|asked_at| lock("", asked_at)["holders"][0].clone()).collect();
    many["holders"] = holders.into();
    let held = HeldLocks::parse(&list(&[other, many], &json!([])), &ReplicaProcesses::default());
    let held = held.expect("a list");
    let first = &held.locks[0];
    assert_eq!((first.name.as_str(), first.holder_count, first.holders.len()), ("many", 8, 5));
}

#[test]
fn a_list_with_a_failure_is_a_failed_one_with_its_reason_and_what_was_read() {
    let failures = json!([{"kinds": ["fair"], "exit_code": 69, "reason": "Redis is silent"}]);
    let held = HeldLocks::parse(&list(&[lock("a", 1)], &failures), &ReplicaProcesses::default());
    let held = held.expect("a list");
    assert_eq!((held.state, held.reason.as_deref()), (ListState::Failed, Some("Redis is silent")));
    assert_eq!(held.locks.len(), 1);
    assert!(HeldLocks::parse("no JSON", &ReplicaProcesses::default()).is_none());
}
