//! One at a time: among the tasks of a process and among processes; and only those who want the
//! same name.

use std::time::Duration;

use conformance::counter::number_in;
use conformance::protocol::{Contest, SectionRecord};
use conformance::{Contender, Home, fresh_name, overlaps};
use distlock::HoldKind;

use crate::arena::{
    Applicability, Arena, Check, LONG, assert_busy, assert_free, at_once, eventually, of_locks,
    of_servers, patiently,
};

pub(crate) const CHECKS: &[Check] = &[
    Check {
        name: "tasks_of_three_processes_enter_one_at_a_time",
        asked: of_servers,
        run: |arena| one_at_a_time(arena, 3),
    },
    Check {
        name: "tasks_of_one_process_enter_one_at_a_time",
        asked: of_locks,
        run: |arena| one_at_a_time(arena, 1),
    },
    Check {
        name: "what_processes_without_a_common_lock_count_is_lost",
        asked: |subject| {
            Applicability::of_those_that(!subject.promise.is_on_a_server(), "lives in a server")
        },
        run: processes_lose_counts,
    },
    Check {
        name: "without_a_lock_even_one_process_loses_counts",
        asked: |subject| {
            Applicability::of_those_that(subject.promise.hold == HoldKind::Nothing, "is a lock")
        },
        run: |arena| assert!(crowd(arena, 1).lost() > 0, "no two tasks met"),
    },
    Check {
        name: "names_that_differ_in_anything_do_not_exclude_each_other",
        asked: of_locks,
        run: similar_names_are_others,
    },
    Check { name: "odd_names_are_names", asked: of_locks, run: odd_names_are_names },
];

const TASKS: u32 = 4;
const ROUNDS: u64 = 12;

struct Crowd {
    records: Vec<SectionRecord>,
    counted: u64,
}

impl Crowd {
    fn lost(&self) -> u64 {
        self.records.len() as u64 - self.counted
    }
}

/// Tasks of several processes count in one file.
fn crowd(arena: &Arena, processes: usize) -> Crowd {
    let counter = arena.servers.fresh_path("counter");
    let contest = Contest::new(patiently(&fresh_name()), TASKS, ROUNDS, &counter)
        .holding(Duration::from_millis(1));
    let contenders: Vec<Contender> = (0..processes).map(|_| arena.contender()).collect();
    // All are begun before any is awaited.
    let begun: Vec<_> =
        contenders.iter().map(|process| process.contend(contest.clone(), LONG)).collect();
    let mut records = Vec::new();
    for contest in begun {
        let brought = contest.wait().expect("a report");
        assert!(brought.failures.is_empty(), "{:?}", brought.failures);
        records.extend(brought.records);
    }
    assert_eq!(records.len() as u64, processes as u64 * u64::from(TASKS) * ROUNDS);
    assert!(records.iter().all(|record| record.wrote), "a lock was lost at once");
    Crowd { records, counted: number_in(&counter) }
}

fn one_at_a_time(arena: &Arena, processes: usize) {
    let crowd = crowd(arena, processes);
    assert_eq!(crowd.lost(), 0, "increments were lost");
    assert_eq!(overlaps(&crowd.records), 0, "two believed that they were alone");
}

/// Shows for `local` that replicas do not see each other, and for all others that what guards
/// their counters is the lock: the harness sees it if there is none.
fn processes_lose_counts(arena: &Arena) {
    // A busy machine may run one process after the other.
    eventually("a process meets another, and a count is lost", || {
        let crowd = crowd(arena, 3);
        let is_lost = crowd.lost() > 0;
        assert!(!is_lost || overlaps(&crowd.records) > 0, "a count is lost, and none has met");
        is_lost
    });
}

fn similar_names_are_others(arena: &Arena) {
    let pair = arena.pair();
    let name = format!("{}:ua", fresh_name());
    let held = pair.holder.lock(&at_once(&name)).expect("the lock is free");
    let stem = &name[..name.len() - 2];
    let others =
        ["Ua", "UA", "üa", "ůa", "u\u{308}a", "ua ", " ua", "u a", "ua:", "u", "", "ua\\", "ua/"];
    for other in others {
        assert_free(pair.rival(), &format!("{stem}{other}"));
    }
    assert_free(pair.rival(), &format!("{{{name}}}"));
    assert_busy(pair.rival(), &name);
    pair.holder.release(held.handle).expect("a release");
    // Names of the greatest length that differ at the end only.
    let [one, another] = ["1", "2"].map(|end| format!("{name:x<511}{end}"));
    let held = pair.holder.lock(&at_once(&one)).expect("the lock is free");
    assert_free(pair.rival(), &another);
    assert_busy(pair.rival(), &one);
    pair.holder.release(held.handle).expect("a release");
}

/// A name that begins with a slash is a path there, as Curator has it, and some are none.
fn is_no_znode(name: &str) -> bool {
    name.strip_prefix('/')
        .is_some_and(|path| path.split('/').any(|part| matches!(part, "" | "." | "..")))
}

fn odd_names_are_names(arena: &Arena) {
    let id = fresh_name();
    let mut names: Vec<String> = [
        "ключ",
        "鎖🔒",
        "/",
        "//",
        "/..",
        "/.",
        "/a/../b",
        "%s%n",
        "'; --",
        "\"",
        "`",
        "\\",
        " ",
        "*?[a]",
        "\u{200b}",
        "{tag}:rest",
        "=&?#",
    ]
    .iter()
    .flat_map(|odd| [format!("{id}{odd}"), format!("{odd}{id}")])
    .collect();
    names.push(format!("{id:x<512}"));
    names.push(format!("{id}{}", "é".repeat((512 - id.len()) / 2)));
    if !arena.lives_on(Home::Redis) && !arena.lives_on(Home::IndependentRedis) {
        // Here no other kind has the same names.
        names.extend([".", "..", "/", "a", "zookeeper"].map(String::from));
    }
    let pair = arena.pair();
    for name in names {
        let held = pair.holder.lock(&at_once(&name));
        if arena.lives_on(Home::ZooKeeper) && is_no_znode(&name) {
            assert_eq!(held.expect_err("there is no such znode").code, "bad_request", "{name:?}");
            continue;
        }
        let held = held.unwrap_or_else(|failure| panic!("{name:?}: {failure:?}"));
        assert_busy(pair.rival(), &name);
        pair.holder.release(held.handle).expect("a release");
        assert_free(pair.rival(), &name);
    }
}
