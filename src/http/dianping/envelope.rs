//! The answer that hm-dianping's clients read.

use std::borrow::Cow;

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::http::error::ApiError;
use crate::http::success::not_logged_in;
use crate::sale::Refusal;
use crate::store::StoreError;

const SERVER_FAILED: &str = "服务器异常";
const OVERLOADED: &str = "系统繁忙，请稍后再试";
const TOO_MANY: &str = "请求过于频繁，请稍后再试";

/// The body of every answer. What is absent is left out, and never null. hm-dianping's `total` is
/// the length of a list that has pages with numbers, which none of these routes has.
#[derive(Serialize)]
struct Envelope<T> {
    success: bool,
    #[serde(rename = "errorMsg", skip_serializing_if = "Option::is_none")]
    error: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<T>,
}

/// Why a request was refused.
pub(super) enum DianpingFailure {
    /// With 401.
    NotLoggedIn,
    /// With 200 and this message.
    Because(Cow<'static, str>),
    /// As the native API says it: about the connection rather than the request.
    Native(ApiError),
}

/// A success with data.
pub(super) fn data<T: Serialize>(data: T) -> Response {
    Json(Envelope { success: true, error: None, data: Some(data) }).into_response()
}

/// A success without data.
pub(super) fn done() -> Response {
    Json(Envelope::<()> { success: true, error: None, data: None }).into_response()
}

impl DianpingFailure {
    /// A refusal with that message.
    pub(super) fn because(message: impl Into<Cow<'static, str>>) -> Self {
        Self::Because(message.into())
    }
}

impl From<StoreError> for DianpingFailure {
    fn from(error: StoreError) -> Self {
        ApiError::from(error).into()
    }
}

impl From<ApiError> for DianpingFailure {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Invalid { field, limit, .. } => Self::because(format!("{field}: {limit}")),
            ApiError::TooManyCodes { .. } | ApiError::TooManyRequests { .. } => {
                Self::because(TOO_MANY)
            }
            ApiError::Overloaded => Self::because(OVERLOADED),
            ApiError::LoginUnavailable | ApiError::Internal => Self::because(SERVER_FAILED),
            ApiError::Refused(refusal) => refusal.into(),
            native => Self::Native(native),
        }
    }
}

impl From<Refusal> for DianpingFailure {
    fn from(refusal: Refusal) -> Self {
        Self::because(match refusal {
            Refusal::SoldOut => "库存不足",
            // hm-dianping says the same of a purchase of the user that is under way.
            Refusal::AlreadyOrdered(_) | Refusal::InProgress => "不能重复下单",
            Refusal::NotStarted(_) => "秒杀尚未开始",
            Refusal::Ended(_) => "秒杀已经结束",
            Refusal::VoucherNotFound => "优惠券不存在",
            Refusal::Overloaded => OVERLOADED,
            _ => SERVER_FAILED,
        })
    }
}

impl IntoResponse for DianpingFailure {
    fn into_response(self) -> Response {
        match self {
            Self::NotLoggedIn => not_logged_in(),
            Self::Because(message) => {
                let body = Envelope::<()> { success: false, error: Some(message), data: None };
                Json(body).into_response()
            }
            Self::Native(error) => error.into_response(),
        }
    }
}
