//! A lock on all of five servers, and one on a majority of them, while one is away. Witness: it
//! answers no command.

use conformance::protocol::LockRequest;
use conformance::{Contender, fresh_name};
use distlock::LockKind;
use testbed::RedisOptions;

use crate::five::{Five, assert_kept_out, enter, enter_later};
use crate::scene::{LONG, SHORT};

/// Two processes, and five servers of which the last has just gone away.
fn four_of(kind: LockKind) -> (Five, [Contender; 2]) {
    let five = Five::start(RedisOptions::default()).locked_by(kind);
    let contenders = [(); 2].map(|()| five.contender());
    five.nodes[4].kill().expect("it is killed");
    five.nodes[4].command(&["PING"]).expect_err("it is away");
    (five, contenders)
}

#[test]
fn a_member_that_is_away_keeps_all_contenders_out() {
    let ((five, [one, other]), name) = (four_of(LockKind::Multi), fresh_name());
    for contender in [&one, &other] {
        let want = LockRequest::new(&name, LONG).waiting(SHORT);
        let refused = contender.lock(&want).expect_err("a member is away");
        assert_eq!(refused.code, "backend", "{}", refused.message);
    }
    five.nodes[4].restart().expect("it starts again");
    enter_later(&one, &name);
    assert_kept_out(&other, &name);
}

#[test]
fn a_server_that_is_away_does_not_prevent_a_majority() {
    let ((_five, [one, other]), name) = (four_of(LockKind::Redlock), fresh_name());
    enter(&one, &name);
    assert_kept_out(&other, &name);
}
