//! How often two held one lock at once, by what replicas told of their holds.
//!
//! A hold is told with the answer and drawn later than it was by as long as the answer was on its
//! way (`load/held`), so two that follow each other closely may look as if they
//! overlapped. Which of them must have, whatever the delay, is counted apart: a hold begins between
//! the sending of its request and the moment that was told, and lasts as long as was told.

use serde::{Deserialize, Serialize};

use crate::judge::evidence::{Names, Record};
use crate::lab::predict::Scope;

/// Holds of one lock at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Overlaps {
    /// Holds that replicas told of.
    pub holds: u64,
    /// Those that began, by what was told, while another had the same lock.
    pub at_once: u64,
    /// The longest time for which two had it, by what was told, in milliseconds.
    pub longest_ms: f64,
    /// Those of which that is so however long the answers were on their way.
    pub certain: u64,
}

/// A hold; times in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Hold {
    /// When its request was sent, before which it cannot have begun.
    sent: u64,
    from: u64,
    until: u64,
}

impl Hold {
    fn length(self) -> u64 {
        self.until - self.from
    }

    /// Of a request that was sent then, and told that its hold was from then until then.
    fn of(sent: u64, [from, until]: [u64; 2]) -> Self {
        Self { sent, from, until }
    }

    /// Whether these overlapped, wherever each of them was in the time in which it can have been.
    fn overlaps_surely(self, other: Self) -> bool {
        self.from < other.sent + other.length() && other.from < self.sent + self.length()
    }
}

/// Whether the holds of two requests, each with when it was sent and from when until when it held
/// by what was told, overlapped however long their answers were on their way.
pub fn surely(one: (u64, [u64; 2]), other: (u64, [u64; 2])) -> bool {
    Hold::of(one.0, one.1).overlaps_surely(Hold::of(other.0, other.1))
}

impl Overlaps {
    /// Of these requests under locks for each user, or for each voucher; `None` if no hold was
    /// told of.
    pub fn of(records: &[Record], names: &Names, scope: Scope) -> Option<Self> {
        let held = |record: &Record| {
            let [from, until] = names.holds.get(&record.n).copied()?;
            let lock = match scope {
                Scope::User => record.user,
                Scope::Voucher => record.voucher.into(),
            };
            Some((lock, Hold::of(record.start_ns, [from, until])))
        };
        let mut holds: Vec<(u64, Hold)> = records.iter().filter_map(held).collect();
        holds.sort_unstable_by_key(|(lock, hold)| (*lock, hold.from));
        let mut found = Self { holds: holds.len() as u64, ..Self::default() };
        let mut most = 0;
        for of_one in holds.chunk_by(|(one, _), (other, _)| one == other) {
            let mut begun: Vec<Hold> = Vec::new();
            for &(_, hold) in of_one {
                begun.retain(|other| other.until > hold.from);
                let at_once = begun.iter().map(|other| other.until.min(hold.until) - hold.from);
                let at_once = at_once.max().unwrap_or(0);
                most = most.max(at_once);
                found.at_once += u64::from(at_once > 0);
                found.certain += u64::from(begun.iter().any(|one| one.overlaps_surely(hold)));
                begun.push(hold);
            }
        }
        #[allow(clippy::cast_precision_loss)]
        let longest_ms = most as f64 / 1e6;
        (found.holds > 0).then_some(Self { longest_ms, ..found })
    }

    /// How many there were for certain, how many more there may have been, and for how long.
    pub fn words(&self) -> String {
        let Self { holds, at_once, longest_ms, certain } = self;
        let perhaps = at_once - certain;
        let sure = match (certain, perhaps) {
            (0, 0) => return format!("none of {holds} holds"),
            (0, _) => format!("none of {holds} holds for certain, but perhaps {perhaps}"),
            (_, 0) => format!("{certain} of {holds} holds for certain"),
            _ => format!("{certain} of {holds} holds for certain, and perhaps {perhaps} more"),
        };
        format!("{sure}, for {longest_ms:.1} ms at most")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::outcome::Outcome;

    /// Of requests of these users that were sent then and held their lock from then until then, in
    /// milliseconds.
    fn overlaps(scope: Scope, requests: &[(u64, [u64; 3])]) -> Option<Overlaps> {
        let mut names = Names::default();
        let record = |(n, &(user, [sent, from, until])): (u32, &(u64, [u64; 3]))| {
            names.holds.insert(n, [from * 1_000_000, until * 1_000_000]);
            Record {
                start_ns: sent * 1_000_000,
                end_ns: until * 1_000_000,
                user,
                n,
                ..Record::that_ended(Outcome::Bought)
            }
        };
        let records: Vec<Record> = (0..).zip(requests).map(record).collect();
        Overlaps::of(&records, &names, scope)
    }

    fn found(scope: Scope, requests: &[(u64, [u64; 3])]) -> (u64, f64, u64) {
        let it = overlaps(scope, requests).expect("holds");
        (it.at_once, it.longest_ms, it.certain)
    }

    #[test]
    fn holds_that_follow_each_other_do_not_overlap_and_nothing_is_told_of_none() {
        assert_eq!(overlaps(Scope::User, &[]), None);
        let two = [(1, [0, 0, 10]), (1, [0, 10, 20])];
        assert_eq!(found(Scope::User, &two), (0, 0.0, 0));
    }

    #[test]
    fn the_lock_of_a_user_is_another_for_each_and_that_of_a_voucher_is_one() {
        let two = [(1, [0, 0, 10]), (2, [4, 4, 9])];
        assert_eq!(found(Scope::User, &two), (0, 0.0, 0));
        assert_eq!(found(Scope::Voucher, &two), (1, 5.0, 1));
    }

    #[test]
    fn an_overlap_that_late_answers_can_explain_is_not_certain() {
        // The first was on its way for up to 3 ms, and so may have ended at 7.
        let two = [(1, [0, 3, 10]), (1, [0, 8, 20])];
        assert_eq!(found(Scope::User, &two), (1, 2.0, 0));
        // It has held until 8 at least, and the second one had to begin at 7.
        let two = [(1, [1, 3, 10]), (1, [0, 7, 20])];
        assert_eq!(found(Scope::User, &two), (1, 3.0, 1));
    }

    #[test]
    fn who_holds_on_for_long_overlaps_all_who_come_meanwhile_and_the_longest_is_told() {
        let frozen =
            [(1, [0, 0, 1000]), (2, [1, 100, 110]), (3, [1, 300, 350]), (4, [0, 999, 1001])];
        let it = overlaps(Scope::Voucher, &frozen).expect("holds");
        assert_eq!((it.holds, it.at_once, it.longest_ms, it.certain), (4, 3, 50.0, 3));
        assert_eq!(it.words(), "3 of 4 holds for certain, for 50.0 ms at most");
        let words = |certain| Overlaps { certain, ..it }.words();
        assert_eq!(words(0), "none of 4 holds for certain, but perhaps 3, for 50.0 ms at most");
        let one = "1 of 4 holds for certain, and perhaps 2 more, for 50.0 ms at most";
        assert_eq!(words(1), one);
        assert_eq!(Overlaps { at_once: 0, certain: 0, ..it }.words(), "none of 4 holds");
    }
}
