//! The laboratory's list of locks beside that of the library. It is a list of its own, because its
//! predictions must not follow from the table that they are to judge; but both have to agree.

use clap::ValueEnum as _;
use distlock::{Backend, HoldKind, LockKind, RenewalKind, guarantees};
use loadtest::lab::lock::{Lock, Needs};
use loadtest::lab::predict::Family;

#[test]
fn the_laboratory_takes_every_kind_of_the_library_for_what_it_promises_to_be() {
    let known = Lock::value_variants();
    assert_eq!(known.len(), LockKind::ALL.len());
    for (lock, kind) in known.iter().zip(LockKind::ALL) {
        assert_eq!(lock.name(), kind.as_str());
        let promised = guarantees(kind);
        let family = match (promised.hold, promised.renewal) {
            (HoldKind::Nothing, _) => Family::None,
            (HoldKind::Process, _) => Family::Local,
            (HoldKind::Lease, RenewalKind::Yes) | (HoldKind::WeakestMember, _) => {
                Family::RenewedLease
            }
            (HoldKind::Lease, _) => Family::Lease,
            (HoldKind::Session, _) => Family::Session,
            (HoldKind::Transaction, _) => Family::Transaction,
        };
        assert_eq!(lock.family(), family, "{kind}");
        let needs = match kind.backend() {
            Backend::Process | Backend::Redis | Backend::MySql => Needs::Nothing,
            Backend::IndependentRedis => Needs::IndependentRedis,
            Backend::ZooKeeper => Needs::ZooKeeper,
        };
        assert_eq!(lock.needs(), needs, "{kind}");
    }
}
