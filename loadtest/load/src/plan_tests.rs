use super::*;
use crate::mix::Fate;
use crate::tokens;

fn plan(users: u32, at_once: usize) -> Plan {
    let lines = (1..=users).map(|id| format!(r#"{{"user_id":"{id}","token":"a"}}"#));
    let users = tokens::parse(&lines.collect::<Vec<_>>().join("\n")).expect("tokens");
    let target = Target::parse("http://127.0.0.1:1").expect("target");
    Plan { connections: 96, ..Plan::closed(target, 1, users.into(), at_once) }
}

fn batches(plan: &Plan) -> Vec<Batch> {
    let mut arrivals = Arrivals::new(plan).expect("no trace, or a good one");
    std::iter::from_fn(|| arrivals.next_batch().expect("good")).collect()
}

#[test]
fn a_load_beyond_its_bounds_is_a_usage_error_that_names_the_flag() {
    assert!(plan(1, 3).check().is_ok());
    let good = || plan(1, 3);
    let sold_out = || Plan { mix: Mix::AfterSoldOut, ..good() };
    let flash = Arrival::Flash { rate: 20_000.0, middle: Duration::from_secs(5) };
    for (wrong, flag) in [
        (plan(1, 0), "--requests-per-user"),
        (plan(1, 17), "--requests-per-user"),
        (Plan { connections: 2, ..good() }, "--connections"),
        (Plan { connections: 5000, ..good() }, "--connections"),
        (Plan { requests: Some(0), ..good() }, "--requests"),
        (Plan { requests: Some(MAX_REQUESTS + 1), ..sold_out() }, "--requests"),
        (sold_out(), "--requests or --duration"),
        (
            Plan {
                arrival: Arrival::Constant(200_000.0),
                duration: Some(Duration::from_secs(51)),
                ..sold_out()
            },
            "10200000 requests, and a load may have 10000000",
        ),
        (Plan { vouchers: vec![], ..good() }, "--voucher"),
        (Plan { vouchers: vec![1, 2, 1], ..good() }, "--voucher"),
        (Plan { zipf: -1.0, ..good() }, "--zipf"),
        (Plan { zipf: f64::NAN, ..good() }, "--zipf"),
        (Plan { hang_up_share: 1.1, ..good() }, "--hang-up-share"),
        (Plan { duration: Some(Duration::ZERO), ..good() }, "--duration"),
        (Plan { arrival: Arrival::Poisson(0.0), ..good() }, "--rate"),
        (Plan { arrival: Arrival::Constant(f64::NAN), ..good() }, "--rate"),
        (Plan { arrival: flash, ..good() }, "--rate"),
        (Plan { timeout: Duration::ZERO, ..good() }, "--timeout-s"),
    ] {
        let error = wrong.check().expect_err(flag);
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains(flag), "{flag}: {error}");
    }
}

#[test]
fn the_same_seed_gives_the_same_plan_and_another_seed_another_one() {
    let of = |seed| {
        let arrival = Arrival::Poisson(100.0);
        let plan = Plan { seed, arrival, vouchers: vec![5, 6, 7], zipf: 1.0, ..plan(500, 3) };
        let fates = (0..1500).map(|number| Fate::of(plan.seed, number, 0.2));
        (batches(&plan), fates.collect::<Vec<_>>())
    };
    let (one, same, other) = (of(1), of(1), of(2));
    assert_eq!(one, same);
    assert_ne!(one.0, other.0, "order, moments and vouchers");
    assert_ne!(one.1, other.1, "keys and hang-ups");
    let moments = |(batches, _): &(Vec<Batch>, Vec<Fate>)| -> Vec<Duration> {
        batches.iter().map(|batch| batch.at).collect()
    };
    assert_ne!(moments(&one), moments(&other), "moments as well");
}

#[test]
fn each_user_is_drawn_once_with_all_requests_and_numbers_never_repeat() {
    let all = batches(&plan(100, 3));
    assert_eq!(all.len(), 100);
    let firsts: Vec<u32> = all.iter().map(|batch| batch.first).collect();
    assert_eq!(firsts, (0..100).map(|index| index * 3).collect::<Vec<_>>());
    assert!(all.iter().all(|batch| batch.size == 3));
}

#[test]
fn a_limit_of_requests_or_of_time_ends_a_mix_without_an_end() {
    let plan = Plan { mix: Mix::AfterSoldOut, requests: Some(1000), ..plan(10, 1) };
    assert_eq!(batches(&plan).len(), 1000, "users come again and again");
    let arrival = Arrival::Constant(100.0);
    let duration = Some(Duration::from_secs(2));
    assert_eq!(batches(&Plan { requests: None, arrival, duration, ..plan }).len(), 200);
}

#[test]
fn a_trace_is_followed_line_by_line_and_checked_before_the_load() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let of = |text: &str| {
        let path = folder.path().join("trace");
        std::fs::write(&path, text).expect("written");
        Plan { arrival: Arrival::Trace(path), vouchers: vec![7, 8], ..plan(3, 1) }
    };
    let good = of("0.25 2\n0.5 3 8\n1\n");
    good.check().expect("good");
    let all = batches(&good);
    assert_eq!(all.len(), 3);
    assert_eq!((all[0].at, all[0].user), (Duration::from_millis(250), 1));
    assert_eq!((all[1].user, all[1].voucher), (2, 1));
    for (text, fault) in [
        ("0\n0.5 9\n", "line 2 names user 9"),
        ("0 1 1\n", "line 1 names voucher 1"),
        ("# nothing\n", "has no arrivals"),
    ] {
        let error = of(text).check().expect_err(text);
        assert!(error.to_string().contains(fault), "{error}");
    }
}

#[test]
fn a_load_that_ends_at_the_limit_before_its_time_is_cut_off_and_one_with_a_limit_is_not() {
    let duration = Some(Duration::from_hours(1));
    let timed = Plan { mix: Mix::AfterSoldOut, duration, ..plan(1, 1) };
    let limit = u64::try_from(MAX_REQUESTS).expect("64 bits");
    assert!(timed.check().is_ok(), "how fast a closed loop is nobody knows before");
    assert!(timed.was_cut_off(limit) && !timed.was_cut_off(limit - 1));
    assert!(!Plan { requests: Some(MAX_REQUESTS), ..timed }.was_cut_off(limit));
}
