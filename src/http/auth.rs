//! Extractors that verify the request's token.

use std::time::Instant;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;

use super::audit_log::RequestId;
use super::error::ApiError;
use super::{Api, ApiState};
use crate::domain::{Role, UserId};
use crate::telemetry::{DurationMetric, record_duration};
use crate::token::{BadToken, Identity};

/// Whom an injected bug takes for an admin.
const NO_USER: UserId = UserId(0);

/// A user with a valid token.
pub(super) struct Caller(pub(super) UserId);

/// A user with a valid token who is within the rate limit of purchases.
pub(super) struct Buyer(pub(super) UserId);

/// An admin by token and by database. The database is asked because these routes are rare, and a
/// removed role must count at once.
pub(super) struct Admin {
    pub(super) user: UserId,
    /// For the audit log.
    pub(super) request_id: String,
}

impl FromRequestParts<ApiState> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &ApiState) -> Result<Self, ApiError> {
        Ok(Self(identity(&parts.headers, api)?.user))
    }
}

impl FromRequestParts<ApiState> for Buyer {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &ApiState) -> Result<Self, ApiError> {
        let user = identity(&parts.headers, api)?.user;
        api.limits.order(user, parts).await?;
        Ok(Self(user))
    }
}

impl FromRequestParts<ApiState> for Admin {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &ApiState) -> Result<Self, ApiError> {
        let id = parts.extensions.get::<RequestId>();
        let request_id = id.map_or_else(String::new, |id| id.0.clone());
        if api.admits_strangers {
            return Ok(Self { user: NO_USER, request_id });
        }
        let Identity { user, role } = identity(&parts.headers, api)?;
        if role != Role::Admin {
            return Err(ApiError::Forbidden);
        }
        match api.users.role(user).await? {
            Some(Role::Admin) => Ok(Self { user, request_id }),
            Some(Role::Buyer) => Err(ApiError::Forbidden),
            None => Err(ApiError::BadToken(BadToken::Revoked)),
        }
    }
}

/// The identity that the request's token names.
pub(super) fn identity(headers: &HeaderMap, api: &Api) -> Result<Identity, ApiError> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let header = match (given.next(), given.next()) {
        (Some(header), None) => header,
        (Some(_), Some(_)) => return Err(ApiError::BadToken(BadToken::Invalid)),
        (None, _) => return Err(ApiError::Unauthorized),
    };
    let (scheme, token) = header
        .to_str()
        .ok()
        .and_then(|value| value.split_once(' '))
        .ok_or(ApiError::Unauthorized)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(ApiError::Unauthorized);
    }
    let began = Instant::now();
    let judged = api.tokens.judge(token.trim());
    record_duration(DurationMetric::Token, began.elapsed());
    judged.map_err(ApiError::BadToken)
}
