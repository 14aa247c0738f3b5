//! For operators: is it alive, is it ready, how is it doing.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use super::{Shared, error};
use crate::telemetry;

pub(super) fn router() -> Router<Shared> {
    Router::new()
        .route("/livez", get(alive))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
}

async fn alive() -> Json<Value> {
    Json(json!({"alive": true}))
}

async fn ready(State(api): State<Shared>) -> Response {
    error::readiness(&api.readiness.reasons(), &api.settings, api.lab.as_deref())
}

async fn metrics() -> Response {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(CONTENT_TYPE, kind)], telemetry::metrics().render()).into_response()
}
