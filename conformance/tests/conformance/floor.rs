//! How much is asked of each kind at least.
//!
//! What is asked follows from what a kind promises, so a kind that promised too little, or a check
//! whose condition always says no, would pass by running nothing. Numbers that are only written
//! down do not follow. They rise with the suite; one that has to fall needs a reason.

use std::sync::Arc;

use distlock::LockKind;
use libtest_mimic::Trial;

use crate::matrix::Matrix;

/// What is asked of every kind on a server, at least.
const ON_A_SERVER: usize = 26;

/// Checks that are asked of these kinds, at least.
const FLOORS: [(usize, &[LockKind]); 10] = [
    (9, &[LockKind::None]),
    (21, &[LockKind::Local]),
    (26, &[LockKind::MysqlRow]),
    (27, &[LockKind::GetsetTimestamp]),
    (29, &[LockKind::SetnxExpire, LockKind::SetNx, LockKind::OwnerCheck]),
    (30, &[LockKind::Etcd, LockKind::Zookeeper]),
    (31, &[LockKind::MysqlNamed, LockKind::LuaRelease, LockKind::Reentrant, LockKind::Nats]),
    (34, &[LockKind::Redlock]),
    (38, &[LockKind::MysqlTable, LockKind::Redisson, LockKind::ReadWrite, LockKind::Multi]),
    (39, &[LockKind::Fair]),
];

/// Checks that are asked of the kind, at least. A kind without a row is new, and on a server.
pub(crate) fn of(kind: LockKind) -> usize {
    let row = FLOORS.iter().find(|(_, kinds)| kinds.contains(&kind));
    row.map_or(ON_A_SERVER, |(floor, _)| *floor)
}

/// The test that so much is asked, whatever is run.
pub(crate) fn trial(matrix: &Arc<Matrix>) -> Trial {
    let matrix = Arc::clone(matrix);
    Trial::test("floor::each_kind_is_asked_the_recorded_number_of_checks", move || {
        for kind in LockKind::ALL {
            let asked = matrix.asked().filter(|(subject, _)| subject.name == kind.as_str()).count();
            let floor = of(kind);
            assert!(asked >= floor, "{kind}: {asked} checks are asked, not {floor}");
        }
        Ok(())
    })
}
