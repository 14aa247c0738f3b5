//! What a race is made of: two cells, a crowd, a stock and a seed. Each field has a limit, and an
//! error names both.

use std::fmt;
use std::ops::RangeInclusive;

use loadtest_judge::setting::{Guards, Scope};
use loadtest_lab::cell_axes::{CellAxes, Load};
use loadtest_lab::cell_plan::CellPlan;
use loadtest_lab::lock::Lock;
use loadtest_lab::watched_sale::watched_plan;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

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
/// Users who arrive in a second.
pub const USERS_PER_S: f64 = 25.0;
/// Extra work inside the locked section: long enough to be seen.
const WORK_MS: u64 = 15;
/// The names of the lanes.
pub const LANES: [&str; 2] = ["left", "right"];

/// A race.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RaceSetup {
    /// What all random choices come from.
    pub seed: u64,
    /// Users of each lane.
    pub users: u64,
    /// Units on sale in each lane.
    pub stock: u64,
    /// The cell of each lane.
    pub lanes: [CellAxes; 2],
}

/// A field that is missing, unknown or beyond its limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// Its name, for example `left.replicas`.
    pub field: String,
    /// What it may be.
    pub limit: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be {}", self.field, self.limit)
    }
}

impl Default for RaceSetup {
    /// A lock of one process beside a distributed one. There is a unit for each user, so that only
    /// a second order of one user can oversell.
    fn default() -> Self {
        let lane = |lock| CellAxes { lock, scope: Scope::User, guards: Guards::Off, replicas: 3 };
        let lanes = [lane(Lock::Local), lane(Lock::DEFAULT)];
        Self { seed: 1, users: 300, stock: 300, lanes }
    }
}

impl RaceSetup {
    /// Reads it from JSON; a field that is absent has its default.
    pub fn parse(value: &Value) -> Result<Self, FieldError> {
        let mut setup = Self::default();
        let fields = ["seed", "users", "stock", LANES[0], LANES[1]];
        let object = members(value, "the race", &fields)?;
        setup.seed = number(object, "seed", "seed", &SEEDS)?.unwrap_or(setup.seed);
        setup.users = number(object, "users", "users", &USERS)?.unwrap_or(setup.users);
        setup.stock = number(object, "stock", "stock", &STOCK)?.unwrap_or(setup.stock);
        for (name, lane) in LANES.into_iter().zip(&mut setup.lanes) {
            let Some(value) = object.get(name) else { continue };
            let object = members(value, name, &["lock", "scope", "guards", "replicas"])?;
            let field = |member: &str| format!("{name}.{member}");
            lane.lock =
                choice(object, "lock", &field("lock"), "a kind of lock")?.unwrap_or(lane.lock);
            lane.scope =
                choice(object, "scope", &field("scope"), "user or voucher")?.unwrap_or(lane.scope);
            lane.guards =
                choice(object, "guards", &field("guards"), "on or off")?.unwrap_or(lane.guards);
            let replicas = number(object, "replicas", &field("replicas"), &REPLICAS)?;
            lane.replicas =
                replicas.and_then(|count| u16::try_from(count).ok()).unwrap_or(lane.replicas);
        }
        Ok(setup)
    }

    /// The plan of that lane.
    pub(crate) fn plan(&self, lane: usize) -> CellPlan {
        let load = Load {
            users: usize::try_from(self.users).unwrap_or(usize::MAX),
            stock: self.stock,
            requests_per_user: REQUESTS_PER_USER,
            work_ms: WORK_MS,
            ..Load::DEFAULT
        };
        watched_plan(self.lanes[lane], &load, self.seed)
    }
}

fn error(field: &str, limit: &str) -> FieldError {
    FieldError { field: field.to_owned(), limit: limit.to_owned() }
}

/// The members of an object that has no others than these.
fn members<'a>(
    value: &'a Value,
    name: &str,
    known: &[&str],
) -> Result<&'a Map<String, Value>, FieldError> {
    let object = value.as_object().ok_or_else(|| error(name, "an object"))?;
    match object.keys().find(|key| !known.contains(&key.as_str())) {
        Some(unknown) => Err(error(unknown, &format!("left out; known are {}", known.join(", ")))),
        None => Ok(object),
    }
}

fn number(
    object: &Map<String, Value>,
    member: &str,
    field: &str,
    limits: &RangeInclusive<u64>,
) -> Result<Option<u64>, FieldError> {
    let Some(value) = object.get(member) else { return Ok(None) };
    let within = value.as_u64().filter(|number| limits.contains(number));
    let limit = format!("a whole number from {} to {}", limits.start(), limits.end());
    within.map(Some).ok_or_else(|| error(field, &limit))
}

fn choice<T: DeserializeOwned>(
    object: &Map<String, Value>,
    member: &str,
    field: &str,
    limit: &str,
) -> Result<Option<T>, FieldError> {
    let Some(value) = object.get(member) else { return Ok(None) };
    serde_json::from_value(value.clone()).map(Some).map_err(|_| error(field, limit))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_names_the_field_and_its_limit() {
        for (value, said) in [
            (json!([]), "the race must be an object"),
            (json!({"users": 9}), "users must be a whole number from 10 to 1000"),
            (json!({"users": "many"}), "users must be a whole number from 10 to 1000"),
            (json!({"stock": 0}), "stock must be a whole number from 1 to 1000"),
            (json!({"seed": -1}), "seed must be a whole number from 0 to 9007199254740991"),
            (json!({"left": {"lock": "luck"}}), "left.lock must be a kind of lock"),
            (json!({"right": {"scope": "all"}}), "right.scope must be user or voucher"),
            (json!({"right": {"guards": 1}}), "right.guards must be on or off"),
            (json!({"left": {"replicas": 6}}), "left.replicas must be a whole number from 1 to 5"),
        ] {
            let error = RaceSetup::parse(&value).expect_err("beyond a limit");
            assert_eq!(error.to_string(), said, "{value}");
        }
        let error = RaceSetup::parse(&json!({"speed": 1})).expect_err("unknown");
        assert_eq!(error.field, "speed");
    }

    #[test]
    fn what_is_left_out_is_as_in_the_default_race() {
        let setup = RaceSetup::parse(&json!({"seed": 7, "left": {"lock": "none"}}));
        let setup = setup.expect("a race");
        assert_eq!((setup.seed, setup.lanes[0].lock), (7, Lock::None));
        assert_eq!(setup.lanes[1], RaceSetup::default().lanes[1]);
    }

    #[test]
    fn both_lanes_get_the_same_crowd() {
        let setup = RaceSetup::default();
        let [left, right] = [0, 1].map(|lane| setup.plan(lane));
        assert_eq!((left.load, left.seed), (right.load, right.seed));
    }
}
