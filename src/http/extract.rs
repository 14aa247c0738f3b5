//! Extractors that check input; each refusal names the field and the limit.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use garde::Validate;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::BODY_BYTES;
use super::error::ApiError;
use super::validation_messages::{ONCE, explain, must_be, shortened};
use crate::domain::IdempotencyKeyHash;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The length of an `Idempotency-Key`.
pub(super) const KEY_LENGTH: RangeInclusive<usize> = 1..=255;
/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// A JSON body that was parsed and checked. Unknown and repeated fields are refused.
pub(super) struct JsonBody<T>(pub(super) T);

impl<S, T> FromRequest<S> for JsonBody<T>
where
    S: Send + Sync,
    T: DeserializeOwned + Validate<Context = ()>,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        require_json(request.headers())?;
        parse(&read(request.into_body()).await?).map(Self)
    }
}

/// A JSON body as in [`JsonBody`], or none.
pub(super) struct OptionalBody<T>(pub(super) T);

/// No body, or an empty object.
pub(super) type NoBody = OptionalBody<EmptyObject>;

#[derive(Default, serde::Deserialize, Validate)]
#[serde(deny_unknown_fields)]
pub(super) struct EmptyObject {}

impl<S, T> FromRequest<S> for OptionalBody<T>
where
    S: Send + Sync,
    T: Default + DeserializeOwned + Validate<Context = ()>,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        if body.is_end_stream() {
            return Ok(Self(T::default()));
        }
        let body = read(body).await?;
        if body.is_empty() {
            return Ok(Self(T::default()));
        }
        require_json(&parts.headers)?;
        parse(&body).map(Self)
    }
}

fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        return Err(ApiError::NotJson);
    }
    // A compressed body could be far larger than the bytes that the limit counts.
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    let is_identity = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"identity");
    if codings.all(is_identity) { Ok(()) } else { Err(ApiError::BodyEncoded) }
}

async fn read(body: Body) -> Result<Bytes, ApiError> {
    // A body that declares a larger length is refused before it is read.
    if HttpBody::size_hint(&body).lower() > BODY_BYTES as u64 {
        return Err(ApiError::BodyTooLarge);
    }
    match timeout(BODY_TIMEOUT, to_bytes(body, BODY_BYTES)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_too_large(&error) => Err(ApiError::BodyTooLarge),
        Ok(Err(_)) => Err(invalid_body("body", "cannot be read")),
        Err(_) => Err(ApiError::BodyTooSlow),
    }
}

fn is_too_large(error: &axum::Error) -> bool {
    use std::error::Error;
    error.source().is_some_and(<dyn Error>::is::<http_body_util::LengthLimitError>)
}

fn parse<T: DeserializeOwned + Validate<Context = ()>>(bytes: &[u8]) -> Result<T, ApiError> {
    // serde would also accept an array, with the fields by position.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(invalid_body("body", "must be a JSON object"));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value: T = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let said = error.inner();
        // A number that fits no type is well-formed JSON.
        let is_number = said.to_string().starts_with("number out of range");
        if said.is_data() || is_number {
            let (field, limit) = explain(&error.path().to_string(), &said.to_string());
            return invalid_body(&field, &limit);
        }
        no_json(said)
    })?;
    json.end().map_err(|error| no_json(&error))?;
    value.validate().map_err(|report| match report.iter().next() {
        Some((path, error)) => {
            let (field, said) = (path.to_string(), error.message());
            // This service's checks say what must be; the library's, what is wrong.
            let words = must_be(&field).filter(|_| !said.starts_with("must"));
            invalid_body(&field, words.as_deref().unwrap_or(said))
        }
        None => invalid_body("body", "is not valid"),
    })?;
    Ok(value)
}

fn no_json(error: &serde_json::Error) -> ApiError {
    let (line, column) = (error.line(), error.column());
    invalid_body("body", &format!("is not valid JSON (line {line}, column {column})"))
}

fn invalid_body(field: &str, limit: &str) -> ApiError {
    ApiError::Invalid { code: "invalid_body", field: field.to_owned(), limit: limit.to_owned() }
}

/// The id in the path.
pub(super) struct PathId<T>(pub(super) T);

impl<S, T> FromRequestParts<S> for PathId<T>
where
    S: Send + Sync,
    T: FromStr,
    T::Err: std::fmt::Display,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let invalid =
            |limit: String| ApiError::Invalid { code: "invalid_id", field: "id".to_owned(), limit };
        let text = Path::<String>::from_request_parts(parts, state).await;
        let Path(text) = text.map_err(|_| invalid("must be readable text".to_owned()))?;
        text.parse().map(Self).map_err(|error: T::Err| invalid(error.to_string()))
    }
}

/// The query string, as texts. Unknown and repeated parameters are refused.
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let invalid = |field, limit| ApiError::Invalid { code: "invalid_query", field, limit };
        let pairs = Query::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let Query(pairs) = pairs.map_err(|_| {
            invalid("query".to_owned(), "must be of the form name=value&name=value".to_owned())
        })?;
        let mut params = serde_json::Map::new();
        for (name, value) in pairs {
            if params.contains_key(&name) {
                return Err(invalid(shortened(&name), ONCE.to_owned()));
            }
            params.insert(name, value.into());
        }
        let params = serde_path_to_error::deserialize(serde_json::Value::Object(params));
        params.map(Self).map_err(|error| {
            let (field, limit) = explain(&error.path().to_string(), &error.inner().to_string());
            invalid(field, limit)
        })
    }
}

/// The hash of the header `Idempotency-Key`, if there is one.
pub(super) struct IdempotencyKeyHeader(pub(super) Option<IdempotencyKeyHash>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKeyHeader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        request_key(&parts.headers).map(Self)
    }
}

/// The hash of the `Idempotency-Key` in those headers, if there is one.
pub(super) fn request_key(headers: &HeaderMap) -> Result<Option<IdempotencyKeyHash>, ApiError> {
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
    let fit = |key: &HeaderValue| {
        KEY_LENGTH.contains(&key.len()) && key.as_bytes().iter().all(u8::is_ascii_graphic)
    };
    match (keys.next(), keys.next()) {
        (None, _) => Ok(None),
        (Some(key), None) if fit(key) => Ok(Some(IdempotencyKeyHash::of(key.as_bytes()))),
        _ => Err(ApiError::Invalid {
            code: "invalid_header",
            field: "Idempotency-Key".to_owned(),
            limit: format!(
                "must be given once, with {} to {} visible ASCII characters",
                KEY_LENGTH.start(),
                KEY_LENGTH.end()
            ),
        }),
    }
}

/// The unparsed bytes of a body, for checking a signature.
pub(super) struct RawBody(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for RawBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        require_json(request.headers())?;
        read(request.into_body()).await.map(Self)
    }
}
