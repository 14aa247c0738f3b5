//! What the board answers if it does not do what a page asks for. A code is stable: the page has
//! its text in each language, and fills the values in.

use std::fmt;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    /// The request has no `Host`.
    HostMissing,
    /// The `Host` is not the address of this board.
    ForeignHost,
    /// The `Origin` is not this board.
    ForeignOrigin,
    /// The token is missing or wrong.
    WrongToken,
    /// A field must be a whole number within limits.
    WholeNumber,
    /// A field must be one of some words.
    OneOf,
    /// The lock has no fencing tokens.
    NoTokens,
    /// The challenge does not allow another value of the field.
    FixedField,
    /// A field must be an object.
    NotAnObject,
    /// There is no such field.
    UnknownField,
    /// The body has too many bytes.
    BodyTooLarge,
    /// No race has begun.
    NoRace,
    /// The board has no source of that path.
    NoSuchSource,
    /// A race is running.
    RaceRunning,
    /// No race is running.
    NoRaceRunning,
    /// The race is a challenge or a rung, which has its own fault.
    ChallengeFaults,
    /// The lane has no such replica.
    NoSuchReplica,
    /// The state of the replica does not allow the fault.
    FaultNotAllowed,
    /// The fault was not seen to happen.
    FaultFailed,
    /// Too many faults of the lane wait.
    FaultsWaiting,
    /// Too many pages read the stream.
    TooManyPages,
    /// The board is ending.
    Ending,
}

impl ErrorCode {
    /// All codes.
    pub const ALL: [Self; 22] = [
        Self::HostMissing,
        Self::ForeignHost,
        Self::ForeignOrigin,
        Self::WrongToken,
        Self::WholeNumber,
        Self::OneOf,
        Self::NoTokens,
        Self::FixedField,
        Self::NotAnObject,
        Self::UnknownField,
        Self::BodyTooLarge,
        Self::NoRace,
        Self::NoSuchSource,
        Self::RaceRunning,
        Self::NoRaceRunning,
        Self::ChallengeFaults,
        Self::NoSuchReplica,
        Self::FaultNotAllowed,
        Self::FaultFailed,
        Self::FaultsWaiting,
        Self::TooManyPages,
        Self::Ending,
    ];

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::HostMissing => "host_missing",
            Self::ForeignHost => "foreign_host",
            Self::ForeignOrigin => "foreign_origin",
            Self::WrongToken => "wrong_token",
            Self::WholeNumber => "whole_number",
            Self::OneOf => "one_of",
            Self::NoTokens => "no_tokens",
            Self::FixedField => "fixed_field",
            Self::NotAnObject => "not_an_object",
            Self::UnknownField => "unknown_field",
            Self::BodyTooLarge => "body_too_large",
            Self::NoRace => "no_race",
            Self::NoSuchSource => "no_such_source",
            Self::RaceRunning => "race_running",
            Self::NoRaceRunning => "no_race_running",
            Self::ChallengeFaults => "challenge_faults",
            Self::NoSuchReplica => "no_such_replica",
            Self::FaultNotAllowed => "fault_not_allowed",
            Self::FaultFailed => "fault_failed",
            Self::FaultsWaiting => "faults_waiting",
            Self::TooManyPages => "too_many_pages",
            Self::Ending => "ending",
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Self::HostMissing | Self::ForeignHost | Self::ForeignOrigin | Self::WrongToken => {
                StatusCode::FORBIDDEN
            }
            Self::WholeNumber
            | Self::OneOf
            | Self::NoTokens
            | Self::FixedField
            | Self::NotAnObject
            | Self::UnknownField => StatusCode::BAD_REQUEST,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NoRace | Self::NoSuchSource => StatusCode::NOT_FOUND,
            Self::RaceRunning
            | Self::NoRaceRunning
            | Self::ChallengeFaults
            | Self::NoSuchReplica
            | Self::FaultNotAllowed
            | Self::FaultsWaiting => StatusCode::CONFLICT,
            Self::FaultFailed => StatusCode::INTERNAL_SERVER_ERROR,
            Self::TooManyPages | Self::Ending => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// A refusal: its code, the sentence for a reader of the JSON, and the values of the sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoardError {
    /// The code.
    pub code: ErrorCode,
    text: String,
    values: Map<String, Value>,
}

impl BoardError {
    /// A refusal without values.
    pub fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), values: Map::new() }
    }

    /// Adds a value of the sentence.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.values.insert(name.to_owned(), value.into());
        self
    }
}

#[cfg(test)]
impl BoardError {
    /// A value of the sentence.
    pub(crate) fn value(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }
}

impl fmt::Display for BoardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl IntoResponse for BoardError {
    fn into_response(self) -> Response {
        let Self { code, text, values: mut members } = self;
        members.insert("code".to_owned(), code.name().into());
        members.insert("error".to_owned(), text.into());
        (code.status(), Json(Value::Object(members))).into_response()
    }
}
