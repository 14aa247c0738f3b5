//! How a problem is written (RFC 9457).

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// The shape of every error (RFC 9457), for the description of the API.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct ProblemView {
    #[serde(rename = "type")]
    kind: String,
    title: String,
    status: u16,
    /// Stable; what programs go by.
    code: String,
    detail: String,
    request_id: String,
    /// `false` proves that a 503 had no effect.
    executed: Option<bool>,
    /// The field that was wrong.
    field: Option<String>,
    /// The order in question.
    order_id: Option<String>,
}

/// Longer than most problems are.
const BODY_BYTES: usize = 256;

/// The body of a problem. It is written as it stands, without a tree of its members: "sold out" is
/// one, and is what most are told.
#[derive(Serialize)]
pub(super) struct Body<'a> {
    #[serde(rename = "type")]
    pub(super) kind: Kind,
    pub(super) title: &'static str,
    pub(super) status: u16,
    pub(super) code: &'static str,
    pub(super) detail: &'a str,
    pub(super) request_id: &'a str,
    #[serde(flatten)]
    pub(super) more: &'a Map<String, Value>,
}

pub(super) struct Kind(pub(super) &'static str);

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("/problems/{}", self.0))
    }
}

impl Body<'_> {
    pub(super) fn written(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BODY_BYTES);
        // Text and numbers can always be written to memory.
        let _always = serde_json::to_writer(&mut bytes, self);
        bytes
    }
}
