//! How much is asked of each kind at least.
//!
//! What is asked follows from what a kind promises, so a kind that promised too little, or a check
//! whose condition always says no, would pass by running nothing. Numbers that somebody has written
//! down do not follow. They rise with the suite; one that has to fall needs a reason.

use std::sync::Arc;

use distlock::LockKind;
use libtest_mimic::Trial;

use crate::matrix::Matrix;

/// Checks that are asked of the kind, at least. A new kind has to say.
pub(crate) const fn of(kind: LockKind) -> usize {
    match kind {
        LockKind::None => 9,
        LockKind::Local => 21,
        LockKind::MysqlRow => 26,
        LockKind::GetsetTimestamp => 27,
        LockKind::SetnxExpire | LockKind::SetNx | LockKind::OwnerCheck => 29,
        LockKind::Zookeeper => 30,
        LockKind::MysqlNamed | LockKind::LuaRelease | LockKind::Reentrant => 31,
        LockKind::Red => 34,
        LockKind::MysqlTable | LockKind::Redisson | LockKind::ReadWrite | LockKind::Multi => 38,
        LockKind::Fair => 39,
    }
}

/// The test that so much is asked, whatever is run.
pub(crate) fn trial(matrix: &Arc<Matrix>) -> Trial {
    let matrix = Arc::clone(matrix);
    Trial::test("floor::each_kind_is_asked_as_much_as_is_written_down", move || {
        for kind in LockKind::ALL {
            let asked = matrix.asked().filter(|(subject, _)| subject.name == kind.as_str()).count();
            let floor = of(kind);
            assert!(asked >= floor, "{kind}: {asked} checks are asked, not {floor}");
        }
        Ok(())
    })
}
