//! Names of faults, and what they need.

use super::*;

#[test]
fn every_fault_has_one_name_by_which_it_is_found() {
    for kind in FaultKind::known() {
        assert_eq!(FaultKind::named(kind.name()), Some(kind));
    }
    assert_eq!(FaultKind::named("none"), None);
}

#[test]
fn a_fault_of_a_link_needs_that_link_and_a_pair_what_both_need() {
    let schedule = Schedule {
        pair: [FaultKind::Network(NetworkFault::Cut, Link::Redis), FaultKind::LoseCommit],
        ..Schedule::of(1, "a cell", 2)
    };
    let both = FaultKind::TwoAtOnce.requirements(&schedule);
    assert!(both.has(Link::Redis) && both.has(Link::Database) && !both.has(Link::Replica));
    for kind in FaultKind::ALL {
        let (link, lossy_replica) = match kind {
            FaultKind::Network(_, link) => (link, None),
            FaultKind::LosePackets(link) => {
                (link, Some(LossyReplica { index: schedule.victim, seed: schedule.variation }))
            }
            _ => continue,
        };
        let expected = FaultRequirements { lossy_replica, ..FaultRequirements::link(link) };
        assert_eq!(kind.requirements(&schedule), expected, "{}", kind.name());
    }
}
