//! Answers without errors, with their status codes.

use axum::Json;
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;

/// 201 with the address of what was created.
pub(super) fn created(address: &str, body: impl Serialize) -> Response {
    let location = HeaderValue::from_str(address).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::CREATED, [(LOCATION, location)], Json(body)).into_response()
}

/// 202 with the address of what was begun.
pub(super) fn accepted_at(address: &str, body: impl Serialize) -> Response {
    let location = HeaderValue::from_str(address).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::ACCEPTED, [(LOCATION, location)], Json(body)).into_response()
}

/// 202.
pub(super) fn accepted(body: impl Serialize) -> Response {
    (StatusCode::ACCEPTED, Json(body)).into_response()
}

/// 204.
pub(super) fn no_content() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// 401 without a body, as clients of hm-dianping expect it.
pub(super) fn not_logged_in() -> Response {
    StatusCode::UNAUTHORIZED.into_response()
}

/// 304.
pub(super) fn not_modified() -> Response {
    StatusCode::NOT_MODIFIED.into_response()
}

/// 200 if ready, otherwise 503, with the reasons.
pub(super) fn readiness(reasons: &[String], settings: &str, lab: Option<&str>) -> Response {
    let ready = reasons.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = json!({"ready": ready, "reasons": reasons, "settings": settings, "lab": lab});
    (status, Json(body)).into_response()
}
