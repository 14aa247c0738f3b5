//! Login by phone and one-time code.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use garde::Validate;
use serde::{Deserialize, Serialize};
use serde_json::json;
use time::OffsetDateTime;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Shared;
use super::auth::Caller;
use super::error::{ApiError, ProblemView, accepted};
use super::extract::JsonBody;
use super::limits::MayAskForCode;
use super::views::UserView;
use super::words::CODE_LENGTH;
use crate::domain::Phone;
use crate::store::{CODE_LIFE, Issued};
use crate::token::{BadToken, Identity};

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

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(send_code)).routes(routes!(login)).routes(routes!(me))
}

/// Who wants a code.
#[derive(Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct CodeRequest {
    #[garde(skip)]
    phone: String,
}

/// The code of at most five minutes ago.
#[derive(Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct LoginRequest {
    #[garde(skip)]
    phone: String,
    #[garde(length(chars, min = CODE_LENGTH, max = CODE_LENGTH))]
    code: String,
}

fn phone_of(text: &str) -> Result<Phone, ApiError> {
    Phone::new(text).map_err(|error| ApiError::Invalid {
        code: "invalid_body",
        field: "phone".to_owned(),
        limit: error.to_string(),
    })
}

/// A code is on its way.
#[derive(Serialize, ToSchema)]
struct CodeSent {
    expires_in_s: u64,
    /// Only with `--dev`.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
}

/// A login.
#[derive(Serialize, ToSchema)]
struct LoggedIn {
    token: String,
    token_type: &'static str,
    #[serde(with = "time::serde::rfc3339")]
    expires_at: OffsetDateTime,
    user: UserView,
}

/// Sends a one-time code to a phone: good for five minutes and five tries; ten a day.
#[utoipa::path(post, path = "/api/login/codes", tag = "login", request_body = CodeRequest,
    responses(
        (status = 202, body = CodeSent),
        (status = 400, body = ProblemView),
        (status = 429, body = ProblemView),
    ))]
async fn send_code(
    State(api): State<Shared>,
    _: MayAskForCode,
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
    let mut answer = CodeSent { expires_in_s: CODE_LIFE.as_secs(), code: None };
    match &api.delivery {
        CodeDelivery::InAnswer => answer.code = Some(code),
        CodeDelivery::Stdout => write_line(std::io::stdout(), &line(&phone, &code))?,
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

fn write_line(mut to: impl Write, line: &str) -> Result<(), ApiError> {
    writeln!(to, "{line}").map_err(|error| not_handed_on(&error))
}

fn not_handed_on(error: &std::io::Error) -> ApiError {
    tracing::error!(%error, "a login code could not be handed on");
    ApiError::LoginUnavailable
}

async fn append(path: PathBuf, line: String) -> Result<(), ApiError> {
    let written = tokio::task::spawn_blocking(move || {
        let mut options = std::fs::OpenOptions::new();
        // Whoever reads the codes can log in as anybody.
        let file = options.create(true).append(true).mode(0o600).open(path);
        file.map_err(|error| not_handed_on(&error)).and_then(|file| write_line(file, &line))
    });
    written.await.unwrap_or(Err(ApiError::Internal))
}

/// Turns a code into a token.
#[utoipa::path(post, path = "/api/login", tag = "login", request_body = LoginRequest,
    responses(
        (status = 200, body = LoggedIn),
        (status = 400, body = ProblemView),
        (status = 401, body = ProblemView),
    ))]
async fn login(
    State(api): State<Shared>,
    JsonBody(request): JsonBody<LoginRequest>,
) -> Result<Json<LoggedIn>, ApiError> {
    let phone = phone_of(&request.phone)?;
    if !api.codes.redeem(&phone, &request.code).await? {
        return Err(ApiError::WrongCode);
    }
    let (user, role) = api.users.of_phone(&phone).await?;
    let (token, expires_at) =
        api.tokens.issue(Identity { user, role }, api.token_life).map_err(|error| {
            tracing::error!(%error, "a token could not be signed");
            ApiError::Internal
        })?;
    let user = UserView::new(user, &phone, role);
    Ok(Json(LoggedIn { token, token_type: "Bearer", expires_at, user }))
}

/// Who one is.
#[utoipa::path(get, path = "/api/me", tag = "login", security(("bearer" = [])),
    responses((status = 200, body = UserView), (status = 401, body = ProblemView)))]
async fn me(State(api): State<Shared>, Caller(user): Caller) -> Result<Json<UserView>, ApiError> {
    let known = api.users.find(user).await?;
    let (phone, role) = known.ok_or(ApiError::BadToken(BadToken::Invalid))?;
    Ok(Json(UserView::new(user, &phone, role)))
}
