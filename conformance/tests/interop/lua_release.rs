//! The kind `lua-release` beside locks of the same format: the `Lock` of redis-py itself, and
//! bsm/redislock for Go. Their release is a script that compares and deletes.

use conformance::counter::number_in;
use conformance::protocol::{Contest, LockRequest, Outcome};
use conformance::{Servers, overlaps};
use distlock::LockKind;

use crate::Check;
use crate::scene::{LONG_WAIT, RENEWED, Scene, another_of, another_of_ours, redis_says, refusal};

pub(crate) const CHECKS: &[Check] = &[(
    "locks_of_redis_py_and_bsm_redislock_and_lua_release_exclude_each_other",
    locks_of_redis_py_and_bsm_redislock_and_lua_release_exclude_each_other,
)];

const TASKS: u32 = 3;
const ROUNDS: u64 = 70;

fn locks_of_redis_py_and_bsm_redislock_and_lua_release_exclude_each_other(scene: &Scene) {
    let kind = LockKind::LuaRelease;
    let (ours, theirs) = (another_of_ours(kind), another_of(scene.peer, kind.as_str()));
    for (holder, other) in [(&ours, &theirs), (&theirs, &ours)] {
        let want = LockRequest::new(&scene.fresh_name(), RENEWED).unrenewed();
        let held = holder.insist(&want);
        assert_eq!(redis_says(&["TYPE", &want.name]), "string");
        assert_eq!(refusal(other, &want), "timed_out");
        assert_eq!(holder.release(held.handle), Ok(Outcome::Released));
        let held = other.insist(&want);
        redis_says(&["SET", &want.name, "another owner"]);
        assert_ne!(other.release(held.handle), Ok(Outcome::Released));
        assert_eq!(redis_says(&["GET", &want.name]), "another owner");
        redis_says(&["DEL", &want.name]);
    }

    let want = LockRequest::new(&scene.fresh_name(), RENEWED).unrenewed().waiting(LONG_WAIT);
    let contest = Contest::new(want, TASKS, ROUNDS, &Servers::shared().fresh_path("counter"));
    let pending = [&ours, &theirs].map(|side| side.contend(contest.clone(), LONG_WAIT * 2));
    let mut records = Vec::new();
    for brought in pending.map(|pending| pending.wait().expect("a contest")) {
        assert!(brought.failures.is_empty(), "{:?}", brought.failures);
        records.extend(brought.records);
    }
    assert_eq!(records.len() as u64, 2 * u64::from(TASKS) * ROUNDS);
    assert_eq!(number_in(&contest.counter), records.len() as u64, "increments were lost");
    assert_eq!(overlaps(&records), 0);
}
