use super::*;
use crate::lab::faults::FaultKind;
use crate::lab::lock::Lock;
use crate::lab::place::Place;
use crate::lab::predict::Guards;
use crate::load::client::Target;
use crate::load::plan::Plan;

fn trial(scope: Scope) -> Trial {
    let place = Place { lock: Lock::Redisson, scope, guards: Guards::On, replicas: 2 };
    Trial { fault: Some(FaultKind::FreezeReplica), ..Trial::plain(place) }
}

fn pace(scope: Scope) -> Pace {
    Pace::of(trial(scope), &trial(scope).load(&Load::USUAL))
}

fn seen(bought: u64, refused: u64, waiting: usize) -> Glance {
    let mut seen = Glance { waiting, ..Glance::default() };
    seen.counts[Outcome::Bought as usize] = bought;
    seen.counts[Outcome::Refused as usize] = refused;
    seen
}

#[test]
fn a_load_is_healthy_that_sells_at_half_of_its_pace_and_has_connections_to_spare() {
    let ails = |seen: &Glance, decided_per_s| {
        pace(Scope::User).ails(seen, decided_per_s).unwrap_or_default()
    };
    assert_eq!(ails(&seen(30, 0, 0), 75.0), "");
    assert_eq!(ails(&seen(20, 9, 0), 75.0), "29 answers are fewer than 30");
    assert_eq!(ails(&seen(4, 900, 0), 75.0), "4 purchases are fewer than 5");
    let slow = "74 answers a second decided something, not 75";
    assert_eq!(ails(&seen(30, 0, 0), 74.0), slow);
    assert_eq!(ails(&seen(30, 0, 1), 75.0), "1 arrivals found no connection free");
}

#[test]
fn purchases_that_follow_one_another_are_asked_for_at_half_of_what_they_can_be() {
    let (user, voucher) = (pace(Scope::User), pace(Scope::Voucher));
    assert!((user.users_per_s - 50.0).abs() < 1e-9, "{user:?}");
    // 30 ms each are 33 a second, and every user sends three.
    assert!((voucher.users_per_s * 3.0 - 50.0 / 3.0).abs() < 1e-9, "{voucher:?}");
    let crowd = Load { work_ms: 600, ..trial(Scope::Voucher).load(&Load::USUAL) };
    let crowd = Pace::of(trial(Scope::Voucher), &crowd);
    assert_eq!(crowd.ails(&seen(5, 25, 70), 0.0), None, "it waits on purpose");
    assert!(crowd.ails(&seen(4, 26, 70), 0.0).is_some(), "but it buys");
}

#[tokio::test]
async fn what_was_not_there_before_does_not_come_back() {
    let target = Target::parse("http://127.0.0.1:1").expect("a target");
    let live = Live::new(&Plan::closed(target, 1, Vec::new().into(), 1));
    let mut samples = Samples { taken: Vec::new(), began: Instant::now(), live: &live };
    let began = Instant::now();
    assert_eq!(samples.until_back(0.0).await, None);
    assert!(began.elapsed() < BACK_WITHIN, "nobody waits for it either");
}
