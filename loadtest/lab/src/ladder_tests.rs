use std::collections::BTreeSet;

use loadtest_judge::verdict::Rule;

use super::*;
use crate::faults::FaultKind;
use crate::fixtures::{figures, verdict_of};
use crate::lock::Lock;

#[test]
fn the_ladder_has_at_least_sixteen_rungs_each_with_a_name_of_its_own_and_in_their_order() {
    assert!(RUNGS.len() >= 16);
    let slugs: BTreeSet<&str> = RUNGS.iter().map(|rung| rung.slug).collect();
    assert_eq!(slugs.len(), RUNGS.len());
    for (index, rung) in RUNGS.iter().enumerate() {
        assert_eq!(rung.number(), index + 1, "{}", rung.slug);
        assert_eq!(Rung::named(rung.slug).map(|found| found.slug), Some(rung.slug));
        let next = RUNGS.get(index + 1).map(|next| next.slug);
        assert_eq!(rung.next().map(|next| next.slug), next);
        let fits = |c: char| c.is_ascii_lowercase() || c == '-';
        assert!(rung.slug.chars().all(fits), "{}", rung.slug);
    }
    assert!(Rung::named("spinlock").is_none());
}

#[test]
fn each_rung_says_what_happens_what_breaks_and_what_repairs_it() {
    for rung in RUNGS {
        let Rung { slug, lesson, fault, breaks, because, repair, .. } = rung;
        for text in [lesson, fault, because, repair] {
            assert!(!text.is_empty() && !text.ends_with('.'), "{slug}: {text}");
        }
        assert!(breaks.ends_with('.'), "{slug}: {breaks}");
    }
}

#[test]
fn both_sides_of_a_rung_differ_in_the_lock_or_its_bug_or_its_fence_and_meet_the_same_fault() {
    for rung in RUNGS {
        let [one, other] = [RungSide::Broken, RungSide::Repaired];
        let (broken, repaired) = (rung.side(one), rung.side(other));
        assert_ne!(broken.lock(), repaired.lock(), "{}", rung.slug);
        assert_eq!(broken.trial.fault, repaired.trial.fault, "{}", rung.slug);
        let (broken, repaired) = (broken.trial.axes, repaired.trial.axes);
        let same = |axes: CellAxes| (axes.scope, axes.guards, axes.replicas);
        assert_eq!(same(broken), same(repaired), "{}", rung.slug);
        let plans = [one, other].map(|side| rung.cell_plan(side, 7));
        assert_eq!(plans[0].schedule, plans[1].schedule, "{}", rung.slug);
        let sound = plans.clone().map(|plan| Load { injected_bug: None, ..plan.load });
        assert_eq!(sound[0], sound[1], "{}", rung.slug);
        assert!(rung.repaired.prediction().holds() || rung.slug == "watchdog", "{}", rung.slug);
    }
}

#[test]
fn a_lock_that_is_repaired_by_the_next_rung_is_the_lock_of_that_rung() {
    let by_next = RUNGS
        .iter()
        .filter(|rung| rung.next().is_some_and(|next| next.broken.lock() == rung.repaired.lock()));
    assert!(by_next.count() >= 7);
}

fn rung(slug: &str) -> &'static Rung {
    Rung::named(slug).expect("a rung")
}

fn report(trial: CellSpec, oversold: u64) -> crate::cell::CellReport {
    crate::cell::CellReport::of(trial, 100, figures(), verdict_of(oversold, 0))
}

#[test]
fn a_side_that_differs_is_not_as_predicted_and_only_a_miss_is_tried_again() {
    let rung = rung("set-nx");
    let broke = rung.judge(RungSide::Broken, report(rung.broken.trial, 3));
    assert!(broke.as_predicted && broke.ok(), "{:?}", broke.broken_rules);
    assert_eq!(broke.rung.as_deref(), Some("set-nx"));
    let held = rung.judge(RungSide::Broken, report(rung.broken.trial, 0));
    assert!(!held.as_predicted && RungSide::Broken.is_worth_retrying(&held));
    assert!(held.predicted.oversells, "it was to break");

    let held = rung.judge(RungSide::Repaired, report(rung.repaired.trial, 0));
    assert!(held.ok());
    assert_eq!(held.rung.as_deref(), Some("set-nx-repaired"));
    let broke = rung.judge(RungSide::Repaired, report(rung.repaired.trial, 3));
    assert!(!broke.as_predicted && !RungSide::Repaired.is_worth_retrying(&broke));
    assert_eq!(broke.broken_rules, [Rule::OrdersWithinStock, Rule::StockAddsUp]);
}

#[test]
fn a_side_that_never_ran_shows_nothing() {
    let rung = rung("multi");
    let took = std::time::Duration::ZERO;
    let failed =
        || crate::cell::CellReport::failed(rung.broken.trial, 100, "no server".to_owned(), took);
    for side in [RungSide::Broken, RungSide::Repaired] {
        let report = rung.judge(side, failed());
        assert!(!report.as_predicted && !report.ok());
        assert!(side.is_worth_retrying(&report));
    }
}

#[test]
fn a_refusal_breaks_a_rung_from_its_share_on() {
    let rung = rung("read-write");
    let with = |refused: u64| {
        let mut report = report(rung.broken.trial, 0);
        report.load.as_mut().expect("figures").codes =
            [("409 order_in_progress".to_owned(), refused)].into();
        rung.judge(RungSide::Broken, report)
    };
    assert!(with(1051).ok() && !with(1050).ok(), "of 2100 requests");
}

#[test]
fn each_lesson_of_the_tutorial_is_a_rung() {
    let locks = |lock| RUNGS.iter().any(|rung| rung.broken.trial.axes.lock == lock);
    for lock in [
        Lock::None,
        Lock::Local,
        Lock::SetnxExpire,
        Lock::SetNx,
        Lock::OwnerCheck,
        Lock::LuaRelease,
        Lock::Reentrant,
        Lock::Redisson,
        Lock::Multi,
        Lock::Redlock,
        Lock::MysqlRow,
        Lock::MysqlTable,
        Lock::MysqlNamed,
        Lock::Zookeeper,
    ] {
        assert!(locks(lock), "{lock:?}");
    }
    let failpoint = |rung: &&Rung| rung.broken.trial.fault == Some(FaultKind::Failpoint);
    assert!(!RUNGS.iter().any(|rung| failpoint(&rung)), "an ordinary program has none");
}
