//! Login by phone and code, and the user of a token.

use axum::extract::{FromRequest, FromRequestParts, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::response::Response;
use garde::Validate;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::DianpingState;
use super::envelope::{DianpingFailure, data, done};
use super::params::QueryParams;
use crate::domain::{Phone, UserId};
use crate::http::error::ApiError;
use crate::http::extract::JsonBody;
use crate::http::login::{new_code, random_hex};
use crate::http::rate_limits::LoginCodeRateLimit;
use crate::store::Rate;
use crate::store::dianping::DianpingUser;

/// The most wrong codes of a phone in the life of one.
const TRIES: u32 = 10;
/// The most characters of a token: its own have 32.
const TOKEN_LENGTH: usize = 64;

/// A user with a token that lives.
pub(super) struct TokenHolder {
    pub(super) user: DianpingUser,
    token: String,
}

impl FromRequestParts<DianpingState> for TokenHolder {
    type Rejection = DianpingFailure;

    async fn from_request_parts(
        parts: &mut Parts,
        api: &DianpingState,
    ) -> Result<Self, DianpingFailure> {
        let token = parts.headers.get(AUTHORIZATION).and_then(|token| token.to_str().ok());
        let fit = |token: &&str| {
            (1..=TOKEN_LENGTH).contains(&token.len())
                && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        let token = token.filter(fit).ok_or(DianpingFailure::NotLoggedIn)?.to_owned();
        let user = api.own.logins.user_of_token(&token).await?;
        Ok(Self { user: user.ok_or(DianpingFailure::NotLoggedIn)?, token })
    }
}

/// A JSON body; fields that hm-dianping does not know are ignored, as it does.
pub(super) struct DianpingBody<T>(pub(super) T);

impl<T> FromRequest<DianpingState> for DianpingBody<T>
where
    T: serde::de::DeserializeOwned + Validate<Context = ()>,
{
    type Rejection = DianpingFailure;

    async fn from_request(request: Request, api: &DianpingState) -> Result<Self, DianpingFailure> {
        let JsonBody(body) = JsonBody::from_request(request, api).await?;
        Ok(Self(body))
    }
}

/// What a login sends. What is absent is wrong as an empty one is.
#[derive(Default, Deserialize, Validate)]
#[serde(default)]
pub(super) struct Login {
    #[garde(length(chars, max = 32))]
    phone: String,
    #[garde(length(chars, max = 32))]
    code: String,
}

/// A user as others see one.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DianpingUserView {
    id: u64,
    nick_name: String,
    icon: String,
}

/// Eleven digits of a mobile number of China.
fn phone_of(text: &str) -> Result<&str, DianpingFailure> {
    let bytes = text.as_bytes();
    let is_phone = bytes.len() == 11
        && bytes.iter().all(u8::is_ascii_digit)
        && bytes[0] == b'1'
        && bytes[1] >= b'3';
    if is_phone { Ok(text) } else { Err(DianpingFailure::because("手机号格式错误")) }
}

/// Sends a code. With `--dev` it is in the answer.
pub(super) async fn send_code(
    State(state): State<DianpingState>,
    params: QueryParams,
    request: Request,
) -> Result<Response, DianpingFailure> {
    let phone = phone_of(params.text("phone").unwrap_or_default())?;
    let api = &state.api;
    let (mut parts, _) = request.into_parts();
    let asking = LoginCodeRateLimit::from_request_parts(&mut parts, api).await?;
    let code = new_code()?;
    // A client that hangs up must not leave a code counted that was not delivered.
    let sending = count_and_send(state.clone(), asking, phone.to_owned(), code.clone());
    let sent = api.sale.run_to_end(sending).await;
    sent.unwrap_or_else(|| Err(ApiError::Internal.into()))?;
    Ok(if api.outbox.is_answer() { data(code) } else { done() })
}

/// Counts a code, and sends it; one that was not sent is not counted.
async fn count_and_send(
    DianpingState { api, own }: DianpingState,
    asking: LoginCodeRateLimit,
    phone: String,
    code: String,
) -> Result<(), DianpingFailure> {
    // The name by which the native API counts.
    let international = Phone::from_stored(format!("+86{phone}"));
    let counted = api.limits.count_code(&international, &asking).await?;
    let sent = async {
        own.logins.set_code(&phone, &code, api.codes.life()).await?;
        if api.outbox.is_answer() {
            return Ok(());
        }
        let line = json!({"login_code": code, "phone": phone}).to_string();
        if api.outbox.deliver(line).await.is_ok() {
            return Ok(());
        }
        own.logins.void_code(&phone).await?;
        Err(DianpingFailure::from(ApiError::LoginUnavailable))
    };
    let outcome = sent.await;
    if outcome.is_err() {
        api.limits.give_back(counted.with_address(asking)).await;
    }
    outcome
}

/// Turns a code into a token.
pub(super) async fn login(
    State(state): State<DianpingState>,
    DianpingBody(Login { phone, code }): DianpingBody<Login>,
) -> Result<Response, DianpingFailure> {
    let phone = phone_of(&phone)?;
    let DianpingState { api, own } = &state;
    let rate = Rate { most: TRIES, period: api.codes.life() };
    if api.limits.counts.take(&format!("dianping:login:{phone}"), rate).await?.is_some() {
        return Err(ApiError::TooManyRequests { retry_after_s: rate.period.as_secs() }.into());
    }
    if !own.logins.redeem(phone, &code).await? {
        return Err(DianpingFailure::because("验证码错误"));
    }
    let name = format!("user_{:010x}", fastrand::u64(..1 << 40));
    let user = own.logins.user_of(phone, &name).await?;
    let token = random_hex()?;
    own.logins.set_token(&token, &user).await?;
    Ok(data(token))
}

/// The user of the token.
pub(super) async fn me(TokenHolder { user, .. }: TokenHolder) -> Response {
    let DianpingUser { id: UserId(id), nick_name, icon } = user;
    data(DianpingUserView { id, nick_name, icon })
}

/// Ends the token.
pub(super) async fn logout(
    State(state): State<DianpingState>,
    caller: TokenHolder,
) -> Result<Response, DianpingFailure> {
    state.own.logins.end_token(&caller.token).await?;
    Ok(done())
}
