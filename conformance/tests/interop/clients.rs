//! Answers that a client loses after the server has acted: each counts once.
//!
//! The connection is cut instead of passing on the first answer, then the second, and so on until a
//! call has no more of them.

use conformance::eventually;
use conformance::protocol::{Failure, LockRequest, Outcome, Setup};
use conformance::{Addresses, Contender, Servers};
use testbed::{Action, Command, Proxy, Times};

use crate::Check;
use crate::scene::{LONG_WAIT, Scene, redis, redis_says, setup};

pub(crate) const CHECKS: &[Check] = &[
    (
        "an_acquisition_whose_answer_is_lost_counts_once",
        an_acquisition_whose_answer_is_lost_counts_once,
    ),
    ("a_re_entry_whose_answer_is_lost_counts_once", a_re_entry_whose_answer_is_lost_counts_once),
    (
        "a_release_whose_answer_is_lost_frees_once_and_says_so",
        a_release_whose_answer_is_lost_frees_once_and_says_so,
    ),
];

/// More answers than any of these calls has.
const MANY: u64 = 30;

/// A contender of the client behind a link that loses answers.
struct LossyLink {
    link: Proxy,
    contender: Contender,
}

impl LossyLink {
    fn of(scene: &Scene) -> Self {
        let link = Proxy::before(redis().addr()).expect("a proxy");
        let url = link.instead_of(redis().addr(), redis().url());
        let addresses = Addresses { redis: Some(url), ..Addresses::default() };
        let setup = Setup { addresses, ..setup("redisson") };
        let contender = Contender::start_client(Servers::shared(), scene.peer, &setup);
        Self { link, contender }
    }

    /// What the call brings if its answer of that number is lost, and whether one was.
    fn lose<T>(&self, number: u64, call: impl FnOnce(&Contender) -> T) -> (T, bool) {
        let rule = self.link.arm(Command::redis(""), Action::CutAnswer, Times::Nth(number));
        let brought = call(&self.contender);
        rule.disarm();
        (brought, rule.fired() > 0)
    }
}

/// Calls again and again until no answer is lost any more.
fn each_answer(mut call: impl FnMut(u64) -> bool) {
    let answers = (1..=MANY).take_while(|number| call(*number)).count();
    assert!(answers > 0, "the call has no answer that could be lost");
    assert!((answers as u64) < MANY, "the call has more than {MANY} answers");
}

/// What is held, unless the client says that it does not know.
fn granted<T>(brought: Result<T, Failure>, is_lost: bool) -> Option<T> {
    match brought {
        Ok(granted) => Some(granted),
        Err(failure) => {
            assert!(is_lost && failure.code == "backend", "{failure:?}");
            None
        }
    }
}

fn holds(want: &LockRequest, owner: &str) -> String {
    redis_says(&["HGET", &want.name, owner])
}

fn assert_gone(want: &LockRequest) {
    eventually("it is free", || redis_says(&["EXISTS", &want.name]) == "0");
}

fn an_acquisition_whose_answer_is_lost_counts_once(scene: &Scene) {
    let lossy = LossyLink::of(scene);
    each_answer(|number| {
        let want = scene.want_fresh();
        let (brought, is_lost) = lossy.lose(number, |contender| contender.lock(&want));
        if let Some(held) = granted(brought, is_lost) {
            assert_eq!(holds(&want, &held.owner), "1", "answer {number}");
            assert_eq!(lossy.contender.release(held.handle), Ok(Outcome::Released));
        }
        assert_gone(&want);
        is_lost
    });
}

fn a_re_entry_whose_answer_is_lost_counts_once(scene: &Scene) {
    let lossy = LossyLink::of(scene);
    each_answer(|number| {
        let want = scene.want_fresh();
        let outer = lossy.contender.insist(&want);
        let again = want.clone().again_as(&outer.owner);
        let (brought, is_lost) = lossy.lose(number, |contender| contender.lock(&again));
        if let Some(inner) = granted(brought, is_lost) {
            assert_eq!(holds(&want, &outer.owner), "2", "answer {number}");
            assert_eq!(lossy.contender.release(inner.handle), Ok(Outcome::Released));
        }
        eventually("one hold is left", || holds(&want, &outer.owner) == "1");
        assert_eq!(lossy.contender.release(outer.handle), Ok(Outcome::Released));
        assert_gone(&want);
        is_lost
    });
}

fn a_release_whose_answer_is_lost_frees_once_and_says_so(scene: &Scene) {
    let lossy = LossyLink::of(scene);
    each_answer(|number| {
        let want = scene.want_fresh();
        let held = lossy.contender.insist(&want);
        let next = scene.ours.contender.lock_later(&want.clone().waiting(LONG_WAIT));
        eventually("the next one waits", || scene.waiters(&want.name) == 1);
        let (brought, is_lost) = lossy.lose(number, |contender| contender.release(held.handle));
        assert_eq!(brought, Ok(Outcome::Released), "answer {number}");
        let next = next.wait().expect("it was released");
        assert_eq!(holds(&want, &next.owner), "1", "answer {number}");
        assert_eq!(scene.ours.contender.release(next.handle), Ok(Outcome::Released));
        is_lost
    });
}
