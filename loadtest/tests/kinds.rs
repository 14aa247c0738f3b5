//! The laboratory's list of locks beside that of the library. It is a list of its own, because its
//! predictions must not follow from the table that they are to judge; but both have to agree.

use std::path::Path;
use std::process::Command;

use clap::ValueEnum as _;
use distlock::{Backend, HoldKind, LockKind, RenewalKind, guarantees};
use loadtest_lab::cell_plan::{DEFAULT_LOCK_WAIT_MS, DEFAULT_ON_LOST};
use loadtest_lab::lock::{ExtraServers, Lock};
use loadtest_lab::predict::Family;

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
            Backend::Process | Backend::Redis | Backend::MySql => ExtraServers::Nothing,
            Backend::IndependentRedis => ExtraServers::IndependentRedis,
            Backend::ZooKeeper => ExtraServers::ZooKeeper,
            Backend::Etcd => ExtraServers::Etcd,
            Backend::Nats => ExtraServers::Nats,
        };
        assert_eq!(lock.needs(), needs, "{kind}");
        let is_kept = matches!(promised.renewal, RenewalKind::Yes | RenewalKind::Heartbeat);
        let lease_ms = lock.default_lease_ms();
        assert!(lease_ms.is_none_or(|ms| ms == if is_kept { 30_000 } else { 10_000 }), "{kind}");
    }
}

#[test]
fn what_reports_say_of_settings_that_are_left_to_the_service_is_what_it_says_itself() {
    let program = Path::new(env!("CARGO_BIN_EXE_loadtest")).with_file_name("seckill");
    let help =
        Command::new(program).args(["serve", "--help"]).output().expect("its help: is it built?");
    let help = String::from_utf8(help.stdout).expect("text");
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let of = |flag: &str| {
        let (_, rest) = words.split_once(&format!("{flag} <")).expect("the flag");
        rest.split(" --").next().expect("its text").to_owned()
    };
    let [wait, lease, on_lost] = ["--lock-wait-ms", "--lease-ms", "--on-lost"].map(of);
    assert!(wait.contains(&format!("[default: {DEFAULT_LOCK_WAIT_MS}]")), "{wait}");
    let leases = "[default: 30000 for kinds with renewal, 10000 for others]";
    assert!(lease.contains(leases), "{lease}");
    assert!(on_lost.contains(&format!("[default: {DEFAULT_ON_LOST}]")), "{on_lost}");
}
