use loadtest_lab::fixtures::{axes, cell, frozen, story};

use super::*;
use crate::tests::matrix_report;

/// All of it.
fn conclusion(cells: &[CellReport]) -> String {
    super::conclusion(cells).to_string()
}

/// The conclusion of a matrix of these cells.
fn of_matrix(cells: &[CellReport]) -> String {
    super::of_matrix(cells).to_string()
}

#[test]
fn the_first_sentence_is_the_pair_per_user_with_what_was_observed() {
    let text = conclusion(&story());
    let first = "With JVM-style local locks three replicas sell twice to one user (it happened to \
                 55 users), with the distributed lock they do not (it happened to no user).";
    assert!(text.starts_with(first), "{text}");
    assert!(text.contains("Neither lock per user kept to the stock (310 and 290"), "{text}");
    assert!(text.contains("One distributed lock per voucher kept both promises"), "{text}");
    assert!(text.ends_with("All 4 cells are valid and as predicted."), "{text}");
}

#[test]
fn the_first_sentence_changes_if_the_pair_contradicts_its_prediction() {
    let mut cells = story();
    cells[0] = cell(cells[0].axes, 310, 0);
    let text = conclusion(&cells);
    let surprise = "Red: local per user, guards off, replicas 3: predicted oversells, duplicates, \
                    observed oversells. The measurement is in doubt: what was predicted did not \
                    show. With JVM-style";
    assert!(text.starts_with(surprise) && text.contains("to no user"), "{text}");
    assert!(text.ends_with("3 of 4 cells are valid and as predicted, so this comparison fails."));

    let mut cells = story();
    cells[1] = cell(cells[1].axes, 290, 4);
    let text = conclusion(&cells);
    assert!(text.starts_with("Red: ") && text.contains("to 4 users"), "{text}");

    let mut cells = story();
    cells[0].valid = false;
    cells[0].invalid_because = vec!["too little".to_owned()];
    let text = conclusion(&cells);
    assert!(text.contains("shows nothing") && text.contains("too little"), "{text}");

    let text = conclusion(&story()[1..]);
    assert!(text.starts_with("This run does not hold the pair"), "{text}");
}

#[test]
fn several_distributed_locks_are_summarized_and_a_failing_one_is_named() {
    let mut cells = story();
    let zookeeper = |scope| axes(Lock::Zookeeper, scope, Guards::Off, 3);
    cells.push(cell(zookeeper(Scope::User), 250, 0));
    cells.push(CellReport { orders_per_s: 20.0, ..cell(zookeeper(Scope::Voucher), 0, 0) });
    let text = conclusion(&cells);
    assert!(text.contains("with each of 2 distributed locks they do not"), "{text}");
    assert!(text.contains("None of these locks per user kept to the stock (310 and"), "{text}");
    assert!(text.contains("per voucher does (20 to 312 orders/s), and so do"), "{text}");
    assert!(text.contains("at 20 (zookeeper) to 312 orders/s (redisson)"), "{text}");

    cells[4] = cell(cells[4].axes, 250, 3);
    cells[5] = cell(cells[5].axes, 0, 2);
    let text = conclusion(&cells);
    assert!(text.starts_with("Red: "), "{text}");
    assert!(text.contains("but with the lock zookeeper they still do so to 3 users"), "{text}");
    assert!(
        text.contains("did not hold (zookeeper per voucher, guards off, replicas 3)"),
        "{text}"
    );
}

#[test]
fn a_matrix_begins_with_the_result_of_the_pair_or_the_number_of_cells_as_predicted() {
    let report = matrix_report();
    let Conclusion { answer, more, .. } = &report.conclusion;
    let [answer, more] = [answer, more].map(Text::to_string);
    assert!(answer.starts_with("With JVM-style local locks"), "{answer}");
    let frozen = "Where a holder was frozen past its lock, 1 order was too many without fencing \
                  (1 cell) and no unit was sold twice with fencing (1 cell).";
    assert!(more.contains(frozen), "{more}");
    let guarded = report.cells[3].clone();
    let without_pair = of_matrix(&[guarded.clone(), guarded.clone()]);
    assert!(without_pair.starts_with("All 2 cells are valid and as predicted."), "{without_pair}");
    assert_eq!(without_pair.matches("All 2 cells").count(), 1, "{without_pair}");
    let mut struck = [report.cells[4].clone(), report.cells[4].clone()];
    let text = of_matrix(&struck);
    let first = "While something went wrong all 2 sales kept both promises. With the database's";
    assert!(text.starts_with(first), "the question is answered: {text}");
    assert!(!text.contains("whatever the lock"), "there is one lock: {text}");
    struck[1].axes.lock = Lock::Redisson;
    let text = of_matrix(&struck);
    assert_eq!(text.matches("whatever the lock").count(), 2, "{text}");
    struck[1].observed.oversells = true;
    let text = of_matrix(&struck);
    assert!(text.contains("While something went wrong 1 of 2 sales broke a promise."), "{text}");
}

#[test]
fn without_a_local_lock_the_sale_without_any_is_compared() {
    let mut cells = story()[1..].to_vec();
    cells.push(cell(axes(Lock::None, Scope::User, Guards::Off, 3), 818, 647));
    let first = "Without a lock three replicas sell twice to one user (it happened to 647 users), \
                 with the distributed lock they do not (it happened to no user). No lock per user \
                 keeps to the stock; a distributed lock per voucher does (312 orders/s), and so do";
    let stock = "Neither the sale without a lock nor that with a lock per user kept to the stock \
                 (818 and 290 orders too many for 100 units)";
    for text in [conclusion(&cells), of_matrix(&cells)] {
        assert!(text.starts_with(first) && text.contains(stock), "{text}");
    }
    cells.push(story().swap_remove(0));
    assert!(conclusion(&cells).starts_with("With JVM-style local locks"), "the pair comes first");
}

#[test]
fn contradicted_predictions_are_listed_before_confirmed_ones() {
    let guarded = cell(axes(Lock::None, Scope::User, Guards::On, 2), 3, 0);
    let mut cells = story();
    cells.extend([guarded.clone(), guarded]);
    let first = "Red: none per user, guards on, replicas 2: predicted holds, observed oversells \
                 (and 1 cell more). The product is in doubt: the load was real. With JVM-style";
    for text in [conclusion(&cells), of_matrix(&cells)] {
        assert!(text.starts_with(first), "{text}");
    }
    let one = of_matrix(&cells[4..5]);
    assert!(one.contains("With the database's guards on the cell broke."), "{one}");
    assert!(one.ends_with("The cell is invalid or not as predicted, so this run fails."), "{one}");
}

#[test]
fn a_cell_that_shows_nothing_is_listed_first_unless_one_contradicts_its_prediction() {
    let mut cells = story();
    cells[3].valid = false;
    cells[3].invalid_because = vec!["too little. Far too little".to_owned()];
    let first = "Red: none per user, guards on, replicas 3: too little; Far too little. The \
                 measurement is in doubt, not the product: this was no real load. With JVM-style";
    assert!(conclusion(&cells).starts_with(first), "{}", conclusion(&cells));
    cells.push(cell(axes(Lock::None, Scope::User, Guards::On, 2), 3, 0));
    assert!(of_matrix(&cells).starts_with("Red: none"), "{}", of_matrix(&cells));
}

#[test]
fn where_all_cells_are_about_a_frozen_holder_what_it_sold_is_the_answer() {
    let cells = [frozen(Scenario::FrozenUnfenced, 1), frozen(Scenario::FrozenFenced, 0)];
    let text = of_matrix(&cells);
    assert!(text.starts_with("Where a holder was frozen past its lock, 1 order was"), "{text}");
    assert!(text.ends_with("All 2 cells are valid and as predicted."), "{text}");
    assert_eq!(text.matches("Where a holder").count(), 1, "{text}");
    let with_plain = [&cells[..], &story()[2..3]].concat();
    assert!(of_matrix(&with_plain).starts_with("Where a holder was frozen"), "it comes first");
    let one = of_matrix(&cells[..1]);
    assert!(one.ends_with("The cell is valid and as predicted."), "{one}");
}

#[test]
fn a_frozen_holder_is_none_of_the_cells_that_stand_for_the_comparison() {
    let mut cells = story()[..3].to_vec();
    let plain = conclusion(&cells);
    cells.push(CellReport { duplicate_users: 9, ..frozen(Scenario::FrozenUnfenced, 5) });
    assert_eq!(conclusion(&cells), plain.replace("All 3", "All 4"));
}

#[test]
fn the_answer_continues_with_what_keeps_the_stock_where_locks_per_user_do_not() {
    let answer = |cells: &[CellReport]| super::of_matrix(cells).answer.to_string();
    let all = answer(&story());
    let pair = "(it happened to no user). ";
    let rest = |answer: &str| answer.split_once(pair).expect("the pair").1.to_owned();
    assert_eq!(
        rest(&all),
        "No lock per user keeps to the stock; a distributed lock per voucher does (312 orders/s), \
         and so do the database's guards."
    );
    assert_eq!(all, super::conclusion(&story()).answer.to_string());
    let mut unguarded = story();
    unguarded.truncate(3);
    assert!(rest(&answer(&unguarded)).ends_with("voucher does (312 orders/s)."));
    unguarded.truncate(2);
    assert_eq!(rest(&answer(&unguarded)), "No lock per user keeps to the stock.");
    unguarded.push(story().swap_remove(3));
    let guards_only = "No lock per user keeps to the stock; the database's guards do.";
    assert_eq!(rest(&answer(&unguarded)), guards_only);

    let mut broken = story();
    broken[2] = cell(broken[2].axes, 7, 0);
    let but = "a distributed lock per voucher does not always, but the database's guards do";
    assert!(answer(&broken).contains(but), "{}", answer(&broken));
    let mut kept = story();
    kept[1] = cell(kept[1].axes, 0, 0);
    assert!(!answer(&kept).contains("No lock per user"), "{}", answer(&kept));
}
