//! All requests of a round, though several loads after one another have sent them.

use std::time::Instant;

use crate::judge::evidence::Record;
use crate::lab::round::Strike;
use crate::load::drive::History;
use crate::load::outcome::Outcome;
use crate::load::tokens::User;

/// What a client that has gone was told.
const GONE: &str = "hung up";

/// What one load has done, and for whom.
pub(super) struct Ran {
    /// Its requests.
    pub(super) history: History,
    /// Its users, by their index.
    pub(super) users: Vec<User>,
}

/// The loads of a round as one: times since the first began.
pub(super) struct Whole {
    /// All requests.
    pub(super) history: History,
    /// All users, by their index.
    pub(super) users: Vec<User>,
    began: Instant,
}

impl Whole {
    /// The first load.
    pub(super) fn of(first: Ran, began: Instant) -> Self {
        Self { history: first.history, users: first.users, began }
    }

    /// One more, that began then.
    pub(super) fn add(&mut self, ran: Ran, began: Instant) {
        let Ran { history, users } = ran;
        let later = began.saturating_duration_since(self.began);
        let later_ns = u64::try_from(later.as_nanos()).unwrap_or(u64::MAX);
        let first = u32::try_from(self.users.len()).unwrap_or(u32::MAX);
        let replicas = indexes(&mut self.history.replicas, &history.replicas);
        let codes = indexes(&mut self.history.codes, &history.codes);
        let known = |indexes: &[u8], index: u8| indexes.get(usize::from(index)).copied();
        self.history.records.extend(history.records.iter().map(|record| Record {
            user: record.user.saturating_add(first),
            start_ns: record.start_ns.saturating_add(later_ns),
            end_ns: record.end_ns.saturating_add(later_ns),
            replica: record.replica.and_then(|index| known(&replicas, index)),
            code: known(&codes, record.code).unwrap_or(u8::MAX),
            ..*record
        }));
        self.users.extend(users);
        self.history.elapsed = self.history.elapsed.max(later + history.elapsed);
    }

    /// Users whom nobody told anything, because they did not listen.
    pub(super) fn add_unanswered(&mut self, users: &[User], during: &[Strike]) {
        let Some(strike) = during.first() else { return };
        let code = indexes(&mut self.history.codes, &[GONE.to_owned()]);
        for user in users {
            let index = u32::try_from(self.users.len()).unwrap_or(u32::MAX);
            self.users.push(user.clone());
            self.history.records.push(Record {
                user: index,
                outcome: Outcome::Unknown,
                order_id: None,
                start_ns: strike.begin_ns,
                end_ns: strike.end_ns,
                replica: None,
                code: code.first().copied().unwrap_or(u8::MAX),
            });
        }
    }

    /// At most so many users who had a request in flight at that time.
    pub(super) fn on_their_way(&self, at_ns: u64, most: usize) -> Vec<User> {
        let mut found: Vec<u32> = Vec::new();
        for record in &self.history.records {
            let is_on_its_way = (record.start_ns..record.end_ns).contains(&at_ns);
            if is_on_its_way && !found.contains(&record.user) && found.len() < most {
                found.push(record.user);
            }
        }
        found.iter().filter_map(|user| self.users.get(*user as usize).cloned()).collect()
    }

    /// Acknowledged purchases.
    pub(super) fn bought(&self) -> usize {
        let is_bought = |record: &&Record| record.outcome == Outcome::Bought;
        self.history.records.iter().filter(is_bought).count()
    }

    /// Whether nobody knows what became of it, or it was refused because something was down.
    pub(super) fn has_failed(&self, record: &Record) -> bool {
        let code = self.history.codes.get(usize::from(record.code)).map_or("", String::as_str);
        code != GONE && (record.outcome == Outcome::Unknown || code.starts_with('5'))
    }
}

/// Where each of these names stands in the list, to which those are added that it lacks.
fn indexes(list: &mut Vec<String>, names: &[String]) -> Vec<u8> {
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let index = list.iter().position(|known| known == name).unwrap_or_else(|| {
            list.push(name.clone());
            list.len() - 1
        });
        found.push(u8::try_from(index).unwrap_or(u8::MAX));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::load::tokens;

    fn ran(id: u64, code: &str, start_ns: u64) -> Ran {
        let users = tokens::parse(&format!(r#"{{"user_id":"{id}","token":"a"}}"#));
        let record = Record {
            user: 0,
            outcome: Outcome::Bought,
            order_id: Some(id),
            start_ns,
            end_ns: start_ns + 10,
            replica: Some(0),
            code: 0,
        };
        let history = History {
            records: vec![record],
            replicas: vec![format!("r{id}")],
            codes: vec![code.to_owned()],
            elapsed: Duration::from_secs(1),
        };
        Ran { history, users: users.expect("a token") }
    }

    #[test]
    fn two_loads_are_one_whose_records_name_their_own_users_replicas_codes_and_times() {
        let began = Instant::now();
        let mut whole = Whole::of(ran(1, "201", 5), began);
        whole.add(ran(2, "504 gateway_timeout", 7), began + Duration::from_secs(2));
        let last = whole.history.records[1];
        assert_eq!((last.user, last.replica, last.code), (1, Some(1), 1));
        assert_eq!((last.start_ns, last.end_ns), (2_000_000_007, 2_000_000_017));
        assert_eq!((whole.users[1].id, whole.history.codes.len()), (2, 2));
        assert_eq!(whole.history.elapsed, Duration::from_secs(3));
        assert!(whole.has_failed(&last) && !whole.has_failed(&whole.history.records[0]));
        let on_their_way: Vec<u64> = whole.on_their_way(9, 3).iter().map(|user| user.id).collect();
        assert_eq!(on_their_way, [1]);
    }
}
