//! Routes for operators: liveness, readiness, metrics.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::ApiState;
use super::error::ApiError;
use super::success;
use crate::{failpoint, telemetry};

pub(super) fn router() -> Router<ApiState> {
    let routes = Router::new()
        .route("/livez", get(alive))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics));
    // A program with failpoints serves the laboratory only, on a loopback address.
    if failpoint::are_compiled_in() {
        routes.route("/failpoints", put(arm_failpoints))
    } else {
        routes
    }
}

/// Arms failpoints of this replica, as `--failpoints` does at the start.
async fn arm_failpoints(actions: String) -> Result<(), ApiError> {
    let invalid =
        |limit| ApiError::Invalid { code: "invalid_body", field: "body".to_owned(), limit };
    failpoint::arm(&actions).map_err(invalid)
}

async fn alive() -> Json<Value> {
    Json(json!({"alive": true}))
}

async fn ready(State(api): State<ApiState>) -> Response {
    success::readiness(&api.readiness.reasons(), &api.settings, api.lab.as_deref())
}

async fn metrics() -> Response {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(CONTENT_TYPE, kind)], telemetry::metrics().page()).into_response()
}
