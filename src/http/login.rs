//! Login by phone and one-time code.

use std::io::Write;
use std::path::PathBuf;

use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use garde::Validate;
use serde::Deserialize;
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;

use super::Shared;
use super::auth::Caller;
use super::error::{ApiError, accepted};
use super::extract::JsonBody;
use crate::domain::Phone;
use crate::store::{CODE_LIFE, Issued};
use crate::token::Identity;

/// How a login code reaches its person.
pub enum CodeDelivery {
    /// It is in the answer (`--dev`).
    InAnswer,
    /// As a line of JSON on stdout, for an operator or a gateway.
    Stdout,
    /// As a line of JSON at the end of that file, for a gateway.
    File(PathBuf),
    /// There is no way: login is refused.
    Nowhere,
}

pub(super) fn router() -> Router<Shared> {
    Router::new()
        .route("/api/login/codes", post(send_code))
        .route("/api/login", post(login))
        .route("/api/me", get(me))
}

#[derive(Deserialize, Validate)]
#[serde(deny_unknown_fields)]
struct CodeRequest {
    #[garde(skip)]
    phone: String,
}

#[derive(Deserialize, Validate)]
#[serde(deny_unknown_fields)]
struct LoginRequest {
    #[garde(skip)]
    phone: String,
    #[garde(length(chars, min = 6, max = 6))]
    code: String,
}

fn phone_of(text: &str) -> Result<Phone, ApiError> {
    Phone::new(text).map_err(|error| ApiError::Invalid {
        code: "invalid_body",
        field: "phone".to_owned(),
        limit: error.to_string(),
    })
}

async fn send_code(
    State(api): State<Shared>,
    JsonBody(request): JsonBody<CodeRequest>,
) -> Result<Response, ApiError> {
    let phone = phone_of(&request.phone)?;
    if matches!(api.delivery, CodeDelivery::Nowhere) {
        return Err(ApiError::LoginUnavailable);
    }
    let code = new_code()?;
    if let Issued::TooMany(wait) = api.codes.issue(&phone, &code).await? {
        return Err(ApiError::TooManyCodes { retry_after_s: wait.as_secs() });
    }
    let mut answer = json!({"expires_in_s": CODE_LIFE.as_secs()});
    match &api.delivery {
        CodeDelivery::InAnswer => answer["code"] = Value::from(code),
        CodeDelivery::Stdout => println!("{}", line(&phone, &code)),
        CodeDelivery::File(path) => append(path.clone(), line(&phone, &code)).await?,
        CodeDelivery::Nowhere => return Err(ApiError::LoginUnavailable),
    }
    Ok(accepted(answer))
}

/// Six digits, every one of the million as likely.
fn new_code() -> Result<String, ApiError> {
    const SIX_DIGITS: u32 = 1_000_000;
    const FAIR: u32 = u32::MAX - u32::MAX % SIX_DIGITS;
    // A draw is thrown away once in 4,000 times; 16 in a row means that randomness is broken.
    for _ in 0..16 {
        let random = getrandom::u32().map_err(|error| {
            tracing::error!(%error, "no randomness");
            ApiError::Internal
        })?;
        if random < FAIR {
            return Ok(format!("{:06}", random % SIX_DIGITS));
        }
    }
    Err(ApiError::Internal)
}

fn line(phone: &Phone, code: &str) -> String {
    json!({"login_code": code, "phone": phone.as_str()}).to_string()
}

async fn append(path: PathBuf, line: String) -> Result<(), ApiError> {
    let written = tokio::task::spawn_blocking(move || {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
        writeln!(file, "{line}")
    });
    match written.await {
        Ok(Ok(())) => Ok(()),
        outcome => {
            tracing::error!(?outcome, "a login code could not be handed on");
            Err(ApiError::LoginUnavailable)
        }
    }
}

async fn login(
    State(api): State<Shared>,
    JsonBody(request): JsonBody<LoginRequest>,
) -> Result<Json<Value>, ApiError> {
    let phone = phone_of(&request.phone)?;
    if !api.codes.redeem(&phone, &request.code).await? {
        return Err(ApiError::WrongCode);
    }
    let (user, role) = api.users.of_phone(&phone).await?;
    let (token, ends) =
        api.tokens.issue(Identity { user, role }, api.token_life).map_err(|error| {
            tracing::error!(%error, "a token could not be signed");
            ApiError::Internal
        })?;
    Ok(Json(json!({
        "token": token,
        "token_type": "Bearer",
        "expires_at": ends.format(&Rfc3339).unwrap_or_default(),
        "user": {"id": user, "phone": phone.masked(), "role": role.as_str()},
    })))
}

async fn me(State(api): State<Shared>, Caller(user): Caller) -> Result<Json<Value>, ApiError> {
    let (phone, role) = api.users.find(user).await?.ok_or(ApiError::Unauthorized)?;
    Ok(Json(json!({"id": user, "phone": phone.masked(), "role": role.as_str()})))
}
