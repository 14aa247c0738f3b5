//! Login by phone and one-time code.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use garde::Validate;
use serde::{Deserialize, Serialize};
use serde_json::json;
use time::OffsetDateTime;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::ApiState;
use super::auth::{Caller, identity};
use super::error::{ApiError, ProblemView};
use super::extract::{JsonBody, NoBody};
use super::openapi::schemas;
use super::rate_limits::LoginCodeRateLimit;
use super::routes::routes;
use super::success::{accepted, no_content};
use super::validation_messages::{CHALLENGE_LENGTH, CODE_LENGTH};
use super::views::UserView;
use crate::domain::Phone;
use crate::store::{LoginAttempt, LoginUser, StoreError};
use crate::token::{BadToken, Identity};

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(send_code))
        .routes(routes!(login))
        .routes(routes!(logout))
        .routes(routes!(me))
}

/// The phone that asks for a code.
#[derive(Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct CodeRequest {
    #[garde(skip)]
    #[schema(schema_with = schemas::phone)]
    phone: String,
}

/// A login code, with the challenge from the answer that announced it.
#[derive(Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct LoginRequest {
    #[garde(skip)]
    #[schema(schema_with = schemas::phone)]
    phone: String,
    #[garde(length(chars, min = CHALLENGE_LENGTH, max = CHALLENGE_LENGTH))]
    #[schema(schema_with = schemas::challenge)]
    challenge: String,
    #[garde(length(chars, min = CODE_LENGTH, max = CODE_LENGTH))]
    #[schema(schema_with = schemas::code)]
    code: String,
}

/// The phone that a body names. Parsing takes a millisecond, and the first time, when the rules of
/// all countries are loaded, a hundred: too long for a thread that serves others.
async fn phone_of(api: &ApiState, text: String) -> Result<Phone, ApiError> {
    let country = api.country;
    let parsing = tokio::task::spawn_blocking(move || Phone::parse(&text, country));
    // A parser that panicked has left its line in the log.
    let parsed = parsing.await.map_err(|_| ApiError::Internal)?;
    parsed.map_err(|error| ApiError::Invalid {
        code: "invalid_body",
        field: "phone".to_owned(),
        limit: error.to_string(),
    })
}

/// A code was sent.
#[derive(Serialize, ToSchema)]
struct CodeSent {
    /// Part of `POST /api/login`: the code is valid with this challenge only.
    #[schema(example = "0123456789abcdef0123456789abcdef")]
    challenge: String,
    #[schema(example = 300)]
    expires_in_s: u64,
    /// Only with `--dev`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "123456")]
    code: Option<String>,
}

/// A login.
#[derive(Serialize, ToSchema)]
struct LoggedIn {
    #[schema(example = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxNyJ9.c2lnbmVk")]
    token: String,
    #[schema(example = "Bearer")]
    token_type: &'static str,
    #[serde(with = "time::serde::rfc3339")]
    #[schema(example = "2026-11-12T00:00:00Z")]
    expires_at: OffsetDateTime,
    user: UserView,
}

/// Sends a one-time code to a phone, valid once with the challenge of this answer.
#[utoipa::path(post, path = "/api/login/codes", tag = "login", request_body = CodeRequest,
    responses(
        (status = 202, body = CodeSent),
        (status = 429, description = "too_many_codes of the phone, too_many_requests of the \
            address: none was sent", body = ProblemView),
        (status = 503, description = "login_unavailable, overloaded, dependency_unavailable: none \
            was sent", body = ProblemView),
    ))]
async fn send_code(
    State(api): State<ApiState>,
    asking: LoginCodeRateLimit,
    JsonBody(request): JsonBody<CodeRequest>,
) -> Result<Response, ApiError> {
    let phone = phone_of(&api, request.phone).await?;
    let (challenge, code) = (random_hex()?, new_code()?);
    let expires_in_s = api.codes.life().as_secs();
    let shown = api.outbox.is_answer().then(|| code.clone());
    let sent = CodeSent { challenge: challenge.clone(), expires_in_s, code: shown };
    // A client that hangs up must not leave a code counted that was not delivered.
    let sending = count_and_send(api.clone(), asking, phone, (challenge, code));
    api.sale.run_to_end(sending).await.unwrap_or(Err(ApiError::Internal))?;
    Ok(accepted(sent))
}

/// Counts a code, and sends it; one that was not sent is not counted.
async fn count_and_send(
    api: ApiState,
    asking: LoginCodeRateLimit,
    phone: Phone,
    (challenge, code): (String, String),
) -> Result<(), ApiError> {
    let counted = api.limits.count_code(&phone, &asking).await?;
    let issued = issue(&api, LoginAttempt { phone: &phone, challenge: &challenge, code: &code });
    let Err(error) = issued.await else { return Ok(()) };
    // A phone that has all its codes is no failure of ours: the address stays counted.
    let counted = match error {
        ApiError::TooManyCodes { .. } => counted,
        _ => counted.with_address(asking),
    };
    api.limits.give_back(counted).await;
    Err(error)
}

/// Stores a code and delivers it; a code that cannot be delivered is void.
async fn issue(api: &ApiState, new: LoginAttempt<'_>) -> Result<(), ApiError> {
    match api.codes.issue(new).await {
        Ok(None) => {}
        Ok(Some(wait)) => {
            return Err(ApiError::TooManyCodes { wait, rate: api.limits.rules.codes_of_phone });
        }
        Err(error) => {
            // It may be stored, and would be one of the phone's.
            if let Err(error) = api.codes.void(new.phone, new.challenge).await {
                tracing::warn!(%error, "code that was not sent may count until it ends");
            }
            return Err(error.into());
        }
    }
    if api.outbox.is_answer() {
        return Ok(());
    }
    let line = json!({"login_code": new.code, "phone": new.phone.as_str()}).to_string();
    if api.outbox.deliver(line).await.is_ok() {
        return Ok(());
    }
    api.codes.void(new.phone, new.challenge).await?;
    Err(ApiError::LoginUnavailable)
}

/// 128 random bits, in hexadecimal.
pub(super) fn random_hex() -> Result<String, ApiError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(no_randomness)?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

fn no_randomness(error: getrandom::Error) -> ApiError {
    tracing::error!(%error, "cannot get random bytes; no code is made");
    ApiError::Internal
}

/// Six digits, each of the million codes as likely as any other.
pub(super) fn new_code() -> Result<String, ApiError> {
    const SIX_DIGITS: u32 = 1_000_000;
    const FAIR: u32 = u32::MAX - u32::MAX % SIX_DIGITS;
    // One draw of 4,000 is rejected; 16 in a row mean that randomness is broken.
    for _ in 0..16 {
        let random = getrandom::u32().map_err(no_randomness)?;
        if random < FAIR {
            return Ok(format!("{:06}", random % SIX_DIGITS));
        }
    }
    Err(ApiError::Internal)
}

/// Turns a code into a token. After `outcome_unknown` the code may be used up.
#[utoipa::path(post, path = "/api/login", tag = "login", request_body = LoginRequest,
    responses(
        (status = 200, body = LoggedIn),
        (status = 401, description = "wrong_code", body = ProblemView),
        (status = 504, description = "outcome_unknown: send it again; if the code is wrong then, \
            ask for a new one", body = ProblemView),
    ))]
async fn login(
    State(api): State<ApiState>,
    JsonBody(request): JsonBody<LoginRequest>,
) -> Result<Json<LoggedIn>, ApiError> {
    let LoginRequest { phone, challenge, code } = request;
    let phone = phone_of(&api, phone).await?;
    let attempt = LoginAttempt { phone: &phone, challenge: &challenge, code: &code };
    if !api.codes.check(attempt).await? {
        return Err(ApiError::WrongCode);
    }
    let LoginUser { id: user, role, issued_ms } = api.users.of_phone(&phone).await?;
    let issued = api.tokens.issue_at(Identity { user, role }, api.token_life, issued_ms);
    let (token, expires_at) = issued.map_err(|error| {
        tracing::error!(%error, "cannot sign a token; the login fails");
        ApiError::Internal
    })?;
    // Last, so that a login that fails before keeps its code.
    if !api.codes.use_up(attempt).await.map_err(in_doubt)? {
        return Err(ApiError::WrongCode);
    }
    let user = UserView::new(user, &phone, role);
    Ok(Json(LoggedIn { token, token_type: "Bearer", expires_at, user }))
}

/// Ends all tokens of the user that were issued so far, on every replica within a second. A token
/// that was revoked already ends nothing and is answered the same.
#[utoipa::path(post, path = "/api/logout", tag = "login", security(("bearer" = [])),
    responses(
        (status = 204),
        (status = 504, description = "outcome_unknown: send it again", body = ProblemView),
    ))]
async fn logout(
    State(api): State<ApiState>,
    headers: HeaderMap,
    _: NoBody,
) -> Result<Response, ApiError> {
    match identity(&headers, &api) {
        Ok(Identity { user, .. }) => api.revocation.revoke(user).await.map_err(in_doubt)?,
        Err(ApiError::BadToken(BadToken::Revoked)) => {}
        Err(error) => return Err(error),
    }
    Ok(no_content())
}

/// What a failed change is answered with: without an answer it may have been carried out.
fn in_doubt(error: StoreError) -> ApiError {
    match error {
        StoreError::TimedOut { .. } | StoreError::Unavailable { .. } => {
            tracing::warn!(%error, "no answer to a change; answered 504");
            ApiError::CallUnknown
        }
        error => error.into(),
    }
}

/// The user of the token.
#[utoipa::path(get, path = "/api/me", tag = "login", security(("bearer" = [])),
    responses((status = 200, body = UserView)))]
async fn me(State(api): State<ApiState>, Caller(user): Caller) -> Result<Json<UserView>, ApiError> {
    let known = api.users.find(user).await?;
    let (phone, role) = known.ok_or(ApiError::BadToken(BadToken::Invalid))?;
    Ok(Json(UserView::new(user, &phone, role)))
}
