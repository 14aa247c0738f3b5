use loadtest_judge::setting::Guards;
use loadtest_lab::faults::FaultKind;

use super::*;

fn request(start_ms: u64, end_ms: Option<u64>) -> ProofRequest {
    ProofRequest {
        n: 0,
        user: "7".to_owned(),
        replica: None,
        answer: "201".to_owned(),
        order: Some("1".to_owned()),
        start_ns: start_ms * 1_000_000,
        held_ns: None,
        earliest_hold_ns: None,
        lost: false,
        end_ns: end_ms.map(|ms| ms * 1_000_000),
    }
}

fn timeline(requests: Vec<ProofRequest>) -> Timeline {
    timeline_of(Scope::User, requests)
}

fn timeline_of(scope: Scope, requests: Vec<ProofRequest>) -> Timeline {
    let why = "user 7 bought twice".to_owned();
    TimelineSource::of_proof(&Proof { why, requests }).timeline(
        Rule::OneOrderPerUser,
        axes(scope),
        &[],
    )
}

fn axes(scope: Scope) -> CellAxes {
    CellAxes { lock: Lock::Local, scope, guards: Guards::Off, replicas: 3 }
}

/// The request above, with a lock held meanwhile.
fn holding(request: ProofRequest, from_ms: u64, until_ms: u64) -> ProofRequest {
    ProofRequest { held_ns: Some([from_ms * 1_000_000, until_ms * 1_000_000]), ..request }
}

#[test]
fn bars_stand_where_their_requests_were_and_the_common_time_is_marked() {
    let drawn = timeline(vec![request(100, Some(180)), request(120, Some(200))]);
    assert_eq!(drawn.what, "user 7 bought twice");
    assert_eq!(drawn.bars[0].stretch, AxisSpan { from: 0.0, length: 80.0 });
    assert_eq!(drawn.bars[1].stretch, AxisSpan { from: 20.0, length: 80.0 });
    let overlap = drawn.overlap.expect("both were under way");
    assert_eq!(overlap.stretch, AxisSpan { from: 20.0, length: 60.0 });
    assert!(overlap.words == "Both were under way at once for 60.0 ms");
    assert_eq!(drawn.axis, ["100.0 ms", "200.0 ms"]);
}

#[test]
fn requests_one_after_the_other_have_no_common_time() {
    let drawn = timeline(vec![request(0, Some(10)), request(20, Some(30))]);
    assert!(drawn.overlap.is_none());
    assert!(timeline(vec![request(0, Some(0))]).bars[0].stretch.length.abs() < 1e-9);
}

#[test]
fn a_request_without_an_end_reaches_to_the_end_of_the_axis() {
    let drawn = timeline(vec![request(0, Some(10)), request(5, None)]);
    assert_eq!(drawn.bars[1].stretch, AxisSpan { from: 50.0, length: 50.0 });
    assert_eq!((drawn.bars[1].from.as_str(), &drawn.bars[1].until), ("5.0 ms", &None));
}

#[test]
fn of_the_stock_the_moment_at_which_it_was_exceeded_is_drawn() {
    let finding =
        RuleFinding { held: Some(false), ..RuleFinding::unjudged(Rule::OrdersWithinStock, "") };
    let (first, later) = (request(0, Some(9)), ProofRequest { n: 3, ..request(4, Some(12)) });
    let requests = vec![first, later];
    let oversell_moment = OversellMoment { units: 100, first: 3, requests, left_out: 5 };
    let mut detail = Detail { oversell_moment: Some(oversell_moment), ..Detail::default() };
    let [drawn] = &timelines(&finding, axes(Scope::User), Some(&detail), &[])[..] else {
        panic!("one time line")
    };
    let marked: Vec<bool> = drawn.bars.iter().map(|bar| bar.marked).collect();
    assert_eq!((marked, drawn.left_out), (vec![false, true], 5));
    let what = drawn.what.to_string();
    assert!(what.contains("101 of 100 units") && what.contains("6 other"), "{what}");
    assert!(timelines(&finding, axes(Scope::User), None, &[]).is_empty(), "no request, no line");
    let requests = [request(0, Some(9)), request(4, Some(12))];
    detail.double_sale = Some(DoubleSale { victim: "r2".to_owned(), requests });
    let [drawn] = &timelines(&finding, axes(Scope::User), Some(&detail), &[])[..] else {
        panic!("one time line")
    };
    assert!(
        drawn.what.to_string().starts_with("r2 stood still") && drawn.overlap.is_some(),
        "{drawn:?}"
    );
}

#[test]
fn the_time_of_a_fault_is_marked_as_far_as_it_is_on_the_axis() {
    let finding =
        RuleFinding { held: Some(false), ..RuleFinding::unjudged(Rule::OrdersWithinStock, "") };
    let requests = [request(100, Some(300)), request(150, Some(290))];
    let double_sale = Some(DoubleSale { victim: "r2".to_owned(), requests });
    let detail = Detail { double_sale, ..Detail::default() };
    let drawn = |begin_ms: u64, end_ms: u64| {
        let fault = FaultRecord {
            name: FaultKind::FreezeReplica,
            begin_ns: begin_ms * 1_000_000,
            end_ns: end_ms * 1_000_000,
            witness: "r2 was in state T".to_owned(),
        };
        timelines(&finding, axes(Scope::User), Some(&detail), &[fault]).swap_remove(0).struck
    };
    let struck = drawn(140, 400).expect("it is on the axis");
    assert_eq!(struck.stretch, AxisSpan { from: 20.0, length: 80.0 });
    assert_eq!(struck.words, "freeze from 140.0 ms to 400.0 ms");
    assert!(drawn(0, 90).is_none() && drawn(300, 310).is_none(), "it is elsewhere");
}

#[test]
fn holds_are_drawn_within_their_requests_and_the_time_in_which_two_held_the_lock_is_marked() {
    let first = holding(request(100, Some(200)), 110, 150);
    let second = holding(request(120, Some(190)), 140, 180);
    let drawn = timeline(vec![first.clone(), second.clone()]);
    assert_eq!(drawn.bars[0].hold, Some(AxisSpan { from: 10.0, length: 40.0 }));
    assert_eq!(drawn.bars[0].held, Some(["110.0 ms", "150.0 ms"].map(str::to_owned)));
    let overlap = drawn.overlap.expect("both held it");
    assert_eq!(overlap.stretch, AxisSpan { from: 40.0, length: 10.0 });
    let seem = "Both seem to have held one lock at once for 10.0 ms";
    assert_eq!(overlap.words, seem, "the first may have ended at 140, as its answer came late");
    let sooner = holding(request(109, Some(200)), 110, 150);
    let overlap = timeline(vec![sooner, second.clone()]).overlap.expect("both held it");
    assert_eq!(overlap.words, "Both held one lock at once for 10.0 ms");
    let third = holding(request(150, Some(195)), 151, 179);
    let drawn = timeline(vec![first, second, third]);
    assert_eq!(
        drawn.overlap.expect("two did").words,
        "2 of these 3 held one lock at once for 28.0 ms"
    );
}

#[test]
fn holds_one_after_the_other_or_of_several_locks_are_no_overlap() {
    let first = holding(request(100, Some(200)), 110, 150);
    let second = holding(request(120, Some(190)), 150, 180);
    let words = timeline(vec![first, second.clone()])
        .overlap
        .expect("both were under way")
        .words
        .to_string();
    assert!(words.starts_with("Both were under way at once for 70.0 ms; "), "{words}");
    let mut other = holding(request(120, Some(190)), 140, 180);
    other.user = "8".to_owned();
    let words = |scope| timeline_of(scope, vec![second.clone(), other.clone()]).overlap;
    let words = |scope| words(scope).expect("an overlap").words;
    assert_eq!(words(Scope::User), "Both were under way at once for 70.0 ms");
    assert_eq!(words(Scope::Voucher), "Both held one lock at once for 30.0 ms");
}

#[test]
fn where_no_hold_is_known_the_reason_is_shown_and_none_is_drawn() {
    let answered = ProofRequest { replica: Some("r1".to_owned()), ..request(0, Some(10)) };
    let drawn = timeline(vec![answered.clone(), request(5, None)]);
    let why = drawn.bars.iter().filter_map(|bar| bar.no_hold.clone()).collect::<Vec<_>>();
    assert_eq!(why, ["no_hold_reported", "no_hold_known"].map(Text::of));
    assert!(drawn.bars.iter().all(|bar| bar.hold.is_none()));
    let proof = Proof { why: "x".to_owned(), requests: vec![answered] };
    let unlocked = CellAxes { lock: Lock::None, ..axes(Scope::User) };
    let drawn = TimelineSource::of_proof(&proof).timeline(Rule::OneOrderPerUser, unlocked, &[]);
    assert_eq!(drawn.bars[0].no_hold, Some(Text::of("no_lock_to_hold")));
}
