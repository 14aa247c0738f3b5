//! A line of a history: one JSON object, whose member `e` names its kind.
//!
//! Ids are strings in the file and numbers here. Times are nanoseconds of the monotonic clock since
//! the history's header. Numbers of requests are unique in a file.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::history::final_state::Audit;

/// The header's `format`.
pub const FORMAT: &str = "seckill-history";
/// The header's `version`; a reader refuses any other.
pub const VERSION: u32 = 1;

/// One line. `'static` where it is recorded; a reader lends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "e", rename_all = "snake_case")]
pub enum Event<'a> {
    /// The header, always the first line.
    Begin(Begin),
    /// A request leaves.
    Invoke(Invoke),
    /// Its answer says that the order exists.
    Ok(Completion<'a>),
    /// Its answer proves that it had no effect.
    Fail(Completion<'a>),
    /// The client got no outcome. A request without an end counts as unknown.
    Unknown(Completion<'a>),
    /// Something that happened besides requests.
    Mark(Mark<'a>),
    /// Units that were added in the middle of the load.
    Grant(Grant),
    /// Something that must be so for the load to say anything.
    Condition(Condition),
    /// Final reads: an order that exists.
    Order(Order),
    /// Final reads: an order that existed before the load.
    Earlier(EarlierOrder),
    /// Final reads: a voucher's stock; the last of its voucher's, after its orders.
    Account(Account),
    /// The service's own account of a voucher.
    Audit(ServiceAudit),
    /// Final reads: an effect of a fenced holder at the resource.
    Effect(EffectEvent<'a>),
    /// The last line: what is not there has been cut off.
    End(End),
}

/// The header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// A name of the run, unique in the world.
    pub run: Uuid,
    /// The wall clock at `t` 0, RFC 3339.
    pub began_at: String,
    /// What the load's random choices came from.
    pub seed: u64,
    /// Where the requests went.
    pub target: String,
    /// Users of the load.
    pub users: u64,
    /// What was on sale.
    pub vouchers: Vec<Offer>,
    /// Whatever else is worth knowing of the run.
    pub settings: BTreeMap<String, String>,
}

impl Begin {
    /// A header of this moment without settings.
    pub fn now(target: String, seed: u64, users: u64, vouchers: Vec<Offer>) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            run: Uuid::new_v4(),
            began_at: crate::moment::rfc3339(time::OffsetDateTime::now_utc()),
            seed,
            target,
            users,
            vouchers,
            settings: BTreeMap::new(),
        }
    }
}

/// A voucher of the load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Its id.
    #[serde(with = "crate::history::id")]
    pub id: u64,
    /// Units on sale when the load began; `None` if the service did not tell.
    pub offered: Option<i64>,
}

/// A request leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invoke {
    /// When it was handed to its connection.
    pub t: u64,
    /// Its number.
    pub n: u32,
    /// The user's id.
    #[serde(with = "crate::history::id")]
    pub u: u64,
    /// The voucher's id.
    #[serde(with = "crate::history::id")]
    pub v: u64,
    /// The idempotency key it carries.
    pub k: Uuid,
}

/// A request ended, in whichever way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion<'a> {
    /// When its answer was complete, or given up.
    pub t: u64,
    /// Its number.
    pub n: u32,
    /// The code of the answer's problem document, or why there is no answer.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub c: Option<Cow<'a, str>>,
    /// The order that the answer names.
    #[serde(with = "crate::history::maybe_id", default, skip_serializing_if = "Option::is_none")]
    pub o: Option<u64>,
    /// The replica that answered.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub r: Option<Cow<'a, str>>,
    /// The HTTP status, if there was an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s: Option<u16>,
    /// From when until when the replica held the lock, if it told. The first is the latest moment
    /// at which the hold can have begun; the second is the end that belongs to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub h: Option<[u64; 2]>,
    /// How long after the request's sending the hold began at the earliest; 0 in older histories.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub w: u64,
    /// Whether the lock's validity had ended before it was given back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub l: bool,
    /// When that validity ended, by the replica's clock and within `h`, if it told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d: Option<u64>,
    /// The fencing token that the holder showed, and the highest that the fence knew then: a higher
    /// one refused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub f: Option<[u64; 2]>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The sort of marks that tell of a fault.
pub const FAULT: &str = "fault";

/// Something that happened besides requests: a fault, its witness, its end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark<'a> {
    /// When.
    pub t: u64,
    /// The sort, for example [`FAULT`].
    #[serde(borrow)]
    pub what: Cow<'a, str>,
    /// Its name, for example `freeze`.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// The phase of a fault: `begin`, `end`, `witness` or `healed`.
    #[serde(borrow)]
    pub phase: Cow<'a, str>,
    /// More, in words.
    #[serde(borrow)]
    pub detail: Cow<'a, str>,
}

impl Mark<'_> {
    /// A copy that outlives its line.
    pub fn kept(&self) -> Mark<'static> {
        let own = |text: &Cow<'_, str>| Cow::Owned(text.clone().into_owned());
        Mark {
            t: self.t,
            what: own(&self.what),
            name: own(&self.name),
            phase: own(&self.phase),
            detail: own(&self.detail),
        }
    }
}

/// Units that were added to a voucher in the middle of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// When that was acknowledged.
    pub t: u64,
    /// The voucher's id.
    #[serde(with = "crate::history::id")]
    pub v: u64,
    /// How many.
    pub units: i64,
}

/// Something that must be so for the load to say anything. Recorded are those that its requests do
/// not show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// What must be so.
    pub what: String,
    /// Whether it is.
    pub met: bool,
    /// The figures behind it.
    pub detail: String,
}

/// An order that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The voucher's id.
    #[serde(with = "crate::history::id")]
    pub v: u64,
    /// Its own id.
    #[serde(with = "crate::history::id")]
    pub o: u64,
    /// The id of the user it belongs to.
    #[serde(with = "crate::history::id")]
    pub u: u64,
    /// Whether it is cancelled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub x: bool,
    /// What its request's idempotency key comes to, if that is kept: see [`crate::history::key`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k: Option<u32>,
}

/// An order that existed before the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierOrder {
    /// The voucher's id.
    #[serde(with = "crate::history::id")]
    pub v: u64,
    /// Its own id.
    #[serde(with = "crate::history::id")]
    pub o: u64,
}

/// The reader of the orders and the stock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The judge itself: these are all orders there are.
    Database,
    /// Clients: these are the orders of the load's users, as they are shown.
    Clients,
}

/// What was read of a voucher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The voucher's id.
    #[serde(with = "crate::history::id")]
    pub v: u64,
    /// Units granted in total, if it could be read.
    pub granted: Option<i64>,
    /// Units left, if it could be read.
    pub left: Option<i64>,
    /// How many lines with this voucher's orders there are.
    pub orders: u64,
    /// Its reader.
    pub source: Source,
    /// The tables that were read: what for, and their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tables: BTreeMap<String, String>,
}

/// Whether something was read before the load or after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditMoment {
    /// Before.
    Before,
    /// After.
    After,
}

/// The service's own account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceAudit {
    /// The voucher's id.
    #[serde(with = "crate::history::id")]
    pub v: u64,
    /// When it was read.
    pub when: AuditMoment,
    /// What it says.
    pub said: Audit,
}

/// An effect of a fenced holder. `seq` rises in the order of the resource's commits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectEvent<'a> {
    /// The voucher's id.
    #[serde(with = "crate::history::id")]
    pub v: u64,
    /// What the lock protects; tokens of different resources are not comparable.
    #[serde(borrow)]
    pub res: Cow<'a, str>,
    /// Its place.
    pub seq: u64,
    /// The fencing token under which it was made.
    pub token: u64,
    /// The order that was written.
    #[serde(with = "crate::history::id")]
    pub o: u64,
}

/// The last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// When.
    pub t: u64,
    /// Requests that left.
    pub requests: u64,
    /// Lines before this one.
    pub events: u64,
}

impl<'a> Event<'a> {
    /// What a line says.
    pub fn parse(line: &'a [u8]) -> Result<Self, String> {
        // As it is written here, its first member is its kind: so it need not be parsed twice.
        let first = line.strip_prefix(br#"{"e":""#);
        let tag = match first.and_then(|rest| rest.split(|byte| *byte == b'"').next()) {
            Some(tag) => Cow::Borrowed(tag),
            None => Cow::Owned(kind_of(line)?.into_bytes()),
        };
        let parsed = match tag.as_ref() {
            b"invoke" => serde_json::from_slice(line).map(Self::Invoke),
            b"ok" => serde_json::from_slice(line).map(Self::Ok),
            b"fail" => serde_json::from_slice(line).map(Self::Fail),
            b"unknown" => serde_json::from_slice(line).map(Self::Unknown),
            b"begin" => serde_json::from_slice(line).map(Self::Begin),
            b"mark" => serde_json::from_slice(line).map(Self::Mark),
            b"grant" => serde_json::from_slice(line).map(Self::Grant),
            b"condition" => serde_json::from_slice(line).map(Self::Condition),
            b"order" => serde_json::from_slice(line).map(Self::Order),
            b"earlier" => serde_json::from_slice(line).map(Self::Earlier),
            b"account" => serde_json::from_slice(line).map(Self::Account),
            b"audit" => serde_json::from_slice(line).map(Self::Audit),
            b"effect" => serde_json::from_slice(line).map(Self::Effect),
            b"end" => serde_json::from_slice(line).map(Self::End),
            _ => return Err("it is no kind of event".to_owned()),
        };
        parsed.map_err(|error| error.to_string())
    }
}

/// The member `e` of any JSON object.
fn kind_of(line: &[u8]) -> Result<String, String> {
    #[derive(Deserialize)]
    struct Kind {
        e: String,
    }
    serde_json::from_slice::<Kind>(line).map(|kind| kind.e).map_err(|error| error.to_string())
}
