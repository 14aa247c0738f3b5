use loadtest_judge::setting::Guards;
use loadtest_load::client::Target;
use loadtest_load::plan::Plan;

use super::*;
use crate::cell_axes::CellAxes;
use crate::faults::FaultKind;
use crate::fleet::{Fleet, ReplicasOf};
use crate::lock::Lock;

fn trial(scope: Scope) -> CellSpec {
    let axes = CellAxes { lock: Lock::Redisson, scope, guards: Guards::On, replicas: 2 };
    CellSpec { fault: Some(FaultKind::FreezeReplica), ..CellSpec::plain(axes) }
}

fn pace(scope: Scope) -> LoadRate {
    LoadRate::of(trial(scope), &trial(scope).load(&Load::DEFAULT))
}

fn seen(bought: u64, refused: u64, waiting: usize) -> LiveSnapshot {
    let mut seen = LiveSnapshot { waiting, ..LiveSnapshot::default() };
    seen.counts[Outcome::Bought as usize] = bought;
    seen.counts[Outcome::Refused as usize] = refused;
    seen
}

#[test]
fn a_load_is_healthy_that_sells_at_half_of_its_pace_and_has_connections_to_spare() {
    let why_unhealthy = |seen: &LiveSnapshot, decided_per_s| {
        pace(Scope::User).why_unhealthy(seen, decided_per_s).unwrap_or_default()
    };
    assert_eq!(why_unhealthy(&seen(30, 0, 0), 75.0), "");
    assert_eq!(why_unhealthy(&seen(20, 9, 0), 75.0), "29 answers are fewer than 30");
    assert_eq!(why_unhealthy(&seen(4, 900, 0), 75.0), "4 purchases are fewer than 5");
    let slow = "74 answers a second decided something, not 75";
    assert_eq!(why_unhealthy(&seen(30, 0, 0), 74.0), slow);
    assert_eq!(why_unhealthy(&seen(30, 0, 1), 75.0), "1 arrivals found no connection free");
}

#[test]
fn purchases_that_follow_one_another_are_asked_for_at_half_of_what_they_can_be() {
    let (user, voucher) = (pace(Scope::User), pace(Scope::Voucher));
    assert!((user.users_per_s - 50.0).abs() < 1e-9, "{user:?}");
    // 30 ms each are 33 a second, and every user sends three.
    assert!((voucher.users_per_s * 3.0 - 50.0 / 3.0).abs() < 1e-9, "{voucher:?}");
    let crowd = Load { work_ms: 600, ..trial(Scope::Voucher).load(&Load::DEFAULT) };
    let crowd = LoadRate::of(trial(Scope::Voucher), &crowd);
    assert_eq!(crowd.why_unhealthy(&seen(5, 25, 70), 0.0), None, "it waits on purpose");
    assert!(crowd.why_unhealthy(&seen(4, 26, 70), 0.0).is_some(), "but it buys");
}

#[test]
fn a_cell_of_zookeeper_is_asked_for_fewer_users() {
    let mut zookeeper = trial(Scope::User);
    zookeeper.axes.lock = Lock::Zookeeper;
    let zookeeper = LoadRate::of(zookeeper, &zookeeper.load(&Load::DEFAULT));
    assert!((zookeeper.users_per_s - 20.0).abs() < 1e-9, "{zookeeper:?}");
}

#[test]
fn a_fleet_with_jvms_is_asked_for_fewer_users_and_has_units_for_longer() {
    for replicas_of in [ReplicasOf::Jvm, ReplicasOf::Mixed] {
        let fleet = Fleet { replicas_of, ..Fleet::RUST };
        let load = trial(Scope::User).load(&Load { fleet, ..Load::DEFAULT });
        let pace = LoadRate::of(trial(Scope::User), &load);
        assert!((pace.users_per_s - 20.0).abs() < 1e-9, "{pace:?}");
        assert_eq!(load.stock, 2 * trial(Scope::User).load(&Load::DEFAULT).stock);
    }
}

#[tokio::test]
async fn throughput_that_was_zero_before_the_fault_does_not_recover() {
    let target = Target::parse("http://127.0.0.1:1").expect("a target");
    let live = LiveFigures::new(&Plan::closed(target, 1, Vec::new().into(), 1));
    let mut samples = Samples { taken: Vec::new(), began: Instant::now(), live: &live };
    let began = Instant::now();
    assert_eq!(samples.wait_until_recovered(0.0).await, None);
    assert!(began.elapsed() < RECOVERY_TIMEOUT, "nobody waits for it either");
}
