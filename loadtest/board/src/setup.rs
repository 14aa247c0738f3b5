//! What a race is made of: two cells, a crowd, a stock and a seed. Each field has a limit, and an
//! error names both.

use std::ops::RangeInclusive;

use clap::ValueEnum as _;
use loadtest_judge::setting::{Guards, Scope};
use loadtest_lab::cell_axes::{CellAxes, InjectedBug, Load};
use loadtest_lab::cell_plan::CellPlan;
use loadtest_lab::ladder::{RUNGS, Rung};
use loadtest_lab::lock::Lock;
use loadtest_lab::watched_sale::{REQUEST_TIMEOUT, watched_plan};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::board_error::{BoardError, ErrorCode};
use crate::challenge::{self, CHALLENGES, Challenge};
use crate::rung_race;

/// Users of a race.
pub const USERS: RangeInclusive<u64> = 10..=1000;
/// Units on sale.
pub const STOCK: RangeInclusive<u64> = 1..=1000;
/// Replicas of a lane.
pub const REPLICAS: RangeInclusive<u64> = 1..=5;
/// Seeds: what a number of JavaScript holds exactly.
pub const SEEDS: RangeInclusive<u64> = 0..=9_007_199_254_740_991;
/// Simultaneous requests of each user.
pub const REQUESTS_PER_USER: usize = 3;
/// Users who arrive in a second, on average.
pub const USERS_PER_S: u32 = 25;
/// Extra work inside the locked section: long enough to be seen.
const WORK_MS: u64 = 15;
/// The names of the lanes.
pub const LANES: [&str; 2] = ["left", "right"];

/// What a lane is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LaneSetup {
    /// The cell.
    #[serde(flatten)]
    pub axes: CellAxes,
    /// Whether holders show fencing tokens.
    pub fenced: bool,
    /// A bug that its replicas have, if it is a lane of a rung.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bug: Option<InjectedBug>,
}

/// A race.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RaceSetup {
    /// What all random choices come from.
    pub seed: u64,
    /// Users of each lane.
    pub users: u64,
    /// Units on sale in each lane.
    pub stock: u64,
    /// The lanes.
    pub lanes: [LaneSetup; 2],
    /// The challenge, if the race is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub challenge: Option<&'static Challenge>,
    /// The name of the rung of the ladder, if the race is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rung: Option<&'static str>,
}

impl Default for RaceSetup {
    /// A lock of one process beside a distributed one. There is a unit for each user, so that only
    /// a second order of one user can oversell.
    fn default() -> Self {
        let lane = |lock| {
            let axes = CellAxes { lock, scope: Scope::User, guards: Guards::Off, replicas: 3 };
            LaneSetup { axes, fenced: false, bug: None }
        };
        let lanes = [lane(Lock::Local), lane(Lock::DEFAULT)];
        Self { seed: 1, users: 300, stock: 300, lanes, challenge: None, rung: None }
    }
}

impl RaceSetup {
    /// Reads it from JSON; a field that is absent has its default.
    pub fn parse(value: &Value) -> Result<Self, BoardError> {
        if value.get("challenge").is_some() {
            return Self::parse_challenge(value);
        }
        if value.get("rung").is_some() {
            return Self::parse_rung(value);
        }
        let mut setup = Self::default();
        let race = Fields::of(value, "", &["seed", "users", "stock", LANES[0], LANES[1]])?;
        setup.seed = race.number("seed", &SEEDS)?.unwrap_or(setup.seed);
        setup.users = race.number("users", &USERS)?.unwrap_or(setup.users);
        setup.stock = race.number("stock", &STOCK)?.unwrap_or(setup.stock);
        for (name, lane) in LANES.into_iter().zip(&mut setup.lanes) {
            let Some(value) = race.object.get(name) else { continue };
            *lane = lane.changed(&Fields::of(value, name, &LANE_FIELDS)?)?;
        }
        Ok(setup)
    }

    /// A challenge: only the lane of the reader is another one.
    fn parse_challenge(value: &Value) -> Result<Self, BoardError> {
        let race = Fields::of(value, "", &["challenge", LANES[1]])?;
        let numbers = 1..=u64::try_from(CHALLENGES.len()).unwrap_or(0);
        let challenge = race.number("challenge", &numbers)?.and_then(Challenge::of);
        let challenge = challenge.ok_or_else(|| not_a_number("challenge", &numbers))?;
        let mut lane = challenge.given;
        if let Some(value) = race.object.get(LANES[1]) {
            lane = lane.changed(&Fields::of(value, LANES[1], &LANE_FIELDS)?)?;
        }
        if let Some(field) = challenge.fixed_field(lane) {
            return Err(fixed_field(field, challenge));
        }
        let (users, stock) = (challenge::USERS, challenge::STOCK);
        let lanes = [challenge.given, lane];
        Ok(Self { seed: 1, users, stock, lanes, challenge: Some(challenge), rung: None })
    }

    /// A rung, with another seed if one is given.
    fn parse_rung(value: &Value) -> Result<Self, BoardError> {
        let race = Fields::of(value, "", &["rung", "seed"])?;
        let seed = race.number("seed", &SEEDS)?.unwrap_or(Self::default().seed);
        let rung = value["rung"].as_str().and_then(Rung::named);
        let rung = rung.ok_or_else(|| none_of("rung", &slugs()))?;
        Ok(rung_race::setup_of(rung, seed))
    }

    /// The rung, if the race is one.
    pub(crate) fn ladder_rung(&self) -> Option<&'static Rung> {
        self.rung.and_then(Rung::named)
    }

    /// The text by which pages and the log know the race.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The plan of that lane.
    pub(crate) fn plan(&self, lane: usize) -> CellPlan {
        if let Some(rung) = self.ladder_rung() {
            return rung_race::plan_of(rung, lane, self.seed);
        }
        let users = usize::try_from(self.users).unwrap_or(usize::MAX);
        let load = Load {
            users,
            stock: self.stock,
            connections: most_in_flight().min(users.saturating_mul(REQUESTS_PER_USER)),
            requests_per_user: REQUESTS_PER_USER,
            work_ms: WORK_MS,
            ..Load::DEFAULT
        };
        let LaneSetup { axes, fenced, .. } = self.lanes[lane];
        watched_plan(axes, fenced, &load, self.seed)
    }
}

/// The names of all rungs.
fn slugs() -> Vec<&'static str> {
    RUNGS.iter().map(|rung| rung.slug).collect()
}

/// What can be chosen for a lane.
const LANE_FIELDS: [&str; 5] = ["lock", "scope", "guards", "replicas", "fenced"];

impl LaneSetup {
    /// This lane with what the fields say.
    fn changed(mut self, lane: &Fields<'_>) -> Result<Self, BoardError> {
        let locks = Lock::value_variants().iter().map(|lock| lock.name()).collect::<Vec<_>>();
        let cell = &mut self.axes;
        cell.lock = lane.choice("lock", &locks)?.unwrap_or(cell.lock);
        cell.scope = lane.choice("scope", &["user", "voucher"])?.unwrap_or(cell.scope);
        cell.guards = lane.choice("guards", &["on", "off"])?.unwrap_or(cell.guards);
        let replicas = lane.number("replicas", &REPLICAS)?;
        cell.replicas =
            replicas.and_then(|count| u16::try_from(count).ok()).unwrap_or(cell.replicas);
        self.fenced = lane.choice("fenced", &["true", "false"])?.unwrap_or(self.fenced);
        if self.fenced && !cell.lock.has_tokens() {
            return Err(no_tokens(&lane.path("fenced"), cell.lock));
        }
        Ok(self)
    }
}

fn fixed_field(field: &str, challenge: &Challenge) -> BoardError {
    let field = format!("{}.{field}", LANES[1]);
    let allowed = challenge.may_change.join(", ");
    let text = format!("{field} is fixed in this challenge; what may be changed: {allowed}");
    BoardError::new(ErrorCode::FixedField, text).with("field", field).with("choices", allowed)
}

fn no_tokens(field: &str, lock: Lock) -> BoardError {
    let with_tokens = Lock::value_variants().iter().filter(|lock| lock.has_tokens());
    let with_tokens = with_tokens.map(|lock| lock.name()).collect::<Vec<_>>().join(", ");
    let text = format!("{field}: {} has no fencing tokens; these have: {with_tokens}", lock.name());
    let error = BoardError::new(ErrorCode::NoTokens, text).with("field", field);
    error.with("lock", lock.name()).with("choices", with_tokens)
}

/// Requests that wait at the same time if no replica answers. With fewer connections a frozen
/// replica would delay users who arrive later. Users arrive at random: once in a million times more
/// than five standard deviations above the mean.
fn most_in_flight() -> usize {
    let users = u64::from(USERS_PER_S) * REQUEST_TIMEOUT.as_secs();
    let users = users + 5 * users.isqrt();
    usize::try_from(users).unwrap_or(usize::MAX).saturating_mul(REQUESTS_PER_USER)
}

/// The members of an object that has no others than those that are known.
struct Fields<'a> {
    object: &'a Map<String, Value>,
    /// The name of the object, empty for the body.
    name: &'a str,
}

impl<'a> Fields<'a> {
    fn of(value: &'a Value, name: &'a str, known: &[&str]) -> Result<Self, BoardError> {
        let object = value.as_object().ok_or_else(|| not_an_object(name))?;
        let fields = Self { object, name };
        match object.keys().find(|key| !known.contains(&key.as_str())) {
            Some(unknown) => Err(unknown_field(&fields.path(unknown), &known.join(", "))),
            None => Ok(fields),
        }
    }

    /// The name of a member in errors: that of the object stands before it.
    fn path(&self, member: &str) -> String {
        if self.name.is_empty() { member.to_owned() } else { format!("{}.{member}", self.name) }
    }

    fn number(
        &self,
        member: &str,
        limits: &RangeInclusive<u64>,
    ) -> Result<Option<u64>, BoardError> {
        let Some(value) = self.object.get(member) else { return Ok(None) };
        let within = value.as_u64().filter(|number| limits.contains(number));
        within.map(Some).ok_or_else(|| not_a_number(&self.path(member), limits))
    }

    fn choice<T: DeserializeOwned>(
        &self,
        member: &str,
        choices: &[&str],
    ) -> Result<Option<T>, BoardError> {
        let Some(value) = self.object.get(member) else { return Ok(None) };
        let parsed = serde_json::from_value(value.clone());
        parsed.map(Some).map_err(|_| none_of(&self.path(member), choices))
    }
}

/// The field must be an object; an empty name is that of the body.
pub(crate) fn not_an_object(field: &str) -> BoardError {
    let field = if field.is_empty() { "body" } else { field };
    BoardError::new(ErrorCode::NotAnObject, format!("{field} must be a JSON object"))
        .with("field", field)
}

fn unknown_field(field: &str, known: &str) -> BoardError {
    BoardError::new(ErrorCode::UnknownField, format!("unknown field {field}; allowed: {known}"))
        .with("field", field)
        .with("known", known)
}

/// The field must be a whole number within these limits.
pub(crate) fn not_a_number(field: &str, limits: &RangeInclusive<u64>) -> BoardError {
    let (least, most) = (*limits.start(), *limits.end());
    let text = format!("{field} must be a whole number from {least} to {most}");
    let error = BoardError::new(ErrorCode::WholeNumber, text).with("field", field);
    error.with("least", least).with("most", most)
}

/// The field must be one of these words.
pub(crate) fn none_of(field: &str, choices: &[&str]) -> BoardError {
    let choices = choices.join(", ");
    BoardError::new(ErrorCode::OneOf, format!("{field} must be one of {choices}"))
        .with("field", field)
        .with("choices", choices)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_names_the_field_and_its_limit() {
        for (value, said) in [
            (json!([]), "body must be a JSON object"),
            (json!({"left": 1}), "left must be a JSON object"),
            (json!({"speed": 1}), "unknown field speed; allowed: seed, users, stock, left, right"),
            (json!({"users": 9}), "users must be a whole number from 10 to 1000"),
            (json!({"users": "many"}), "users must be a whole number from 10 to 1000"),
            (json!({"stock": 0}), "stock must be a whole number from 1 to 1000"),
            (json!({"seed": -1}), "seed must be a whole number from 0 to 9007199254740991"),
            (
                json!({"left": {"speed": 1}}),
                "unknown field left.speed; allowed: lock, scope, guards, replicas, fenced",
            ),
            (json!({"right": {"scope": "all"}}), "right.scope must be one of user, voucher"),
            (json!({"right": {"guards": 1}}), "right.guards must be one of on, off"),
            (json!({"left": {"replicas": 6}}), "left.replicas must be a whole number from 1 to 5"),
            (json!({"left": {"fenced": "on"}}), "left.fenced must be one of true, false"),
            (
                json!({"right": {"lock": "redlock", "fenced": true}}),
                "right.fenced: redlock has no fencing tokens; these have: redisson, fair, \
                 read-write, mysql-table, zookeeper, etcd, nats",
            ),
        ] {
            let error = RaceSetup::parse(&value).expect_err("beyond a limit");
            assert_eq!(error.to_string(), said, "{value}");
        }
        let error = RaceSetup::parse(&json!({"left": {"lock": "luck"}})).expect_err("unknown");
        assert!(error.to_string().starts_with("left.lock must be one of none, local,"), "{error}");
    }

    #[test]
    fn a_challenge_gives_one_lane_and_fixes_what_may_not_be_changed_in_the_other() {
        let setup = RaceSetup::parse(&json!({"challenge": 3, "right": {"lock": "redlock"}}));
        let setup = setup.expect("a race");
        assert_eq!(setup.challenge.map(|challenge| challenge.number), Some(3));
        let locks = setup.lanes.map(|lane| lane.axes.lock);
        assert_eq!((locks, setup.stock), ([Lock::Redisson, Lock::Redlock], 100));
        for (value, said) in [
            (json!({"challenge": 7}), "challenge must be a whole number from 1 to 6"),
            (
                json!({"challenge": 3, "users": 10}),
                "unknown field users; allowed: challenge, right",
            ),
            (
                json!({"challenge": 3, "right": {"guards": "on"}}),
                "right.guards is fixed in this challenge; what may be changed: lock",
            ),
        ] {
            let error = RaceSetup::parse(&value).expect_err("refused");
            assert_eq!(error.to_string(), said, "{value}");
        }
    }

    #[test]
    fn what_is_left_out_is_as_in_the_default_race() {
        let setup = RaceSetup::parse(&json!({"seed": 7, "left": {"lock": "none"}}));
        let setup = setup.expect("a race");
        assert_eq!((setup.seed, setup.lanes[0].axes.lock), (7, Lock::None));
        assert_eq!(setup.lanes[1], RaceSetup::default().lanes[1]);
    }

    #[test]
    fn both_lanes_get_the_same_crowd() {
        let setup = RaceSetup::default();
        let [left, right] = [0, 1].map(|lane| setup.plan(lane));
        assert_eq!((left.load, left.seed), (right.load, right.seed));
    }

    #[test]
    fn a_lane_whose_replicas_are_all_frozen_has_a_connection_for_each_request() {
        let plan = RaceSetup { users: 1000, ..RaceSetup::default() }.plan(0);
        // 25 users a second, 3 requests each, given up after 8 s, and 35 % more.
        assert_eq!(plan.load.connections, 810);
        let small = RaceSetup { users: 10, ..RaceSetup::default() }.plan(0);
        assert_eq!(small.load.connections, 30);
    }
}
