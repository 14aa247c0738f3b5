//! Who is asking.

use std::time::Instant;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;

use super::error::ApiError;
use super::{Api, Shared};
use crate::domain::{Role, UserId};
use crate::telemetry::{Timed, took};
use crate::token::{BadToken, Identity};

/// Somebody with a valid token.
pub(super) struct Caller(pub(super) UserId);

/// Somebody with a valid token who may ask for a purchase now.
pub(super) struct Buyer(pub(super) UserId);

/// An admin with a valid token.
pub(super) struct Admin;

impl FromRequestParts<Shared> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Shared) -> Result<Self, ApiError> {
        Ok(Self(identity(&parts.headers, api)?.user))
    }
}

impl FromRequestParts<Shared> for Buyer {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Shared) -> Result<Self, ApiError> {
        let user = identity(&parts.headers, api)?.user;
        api.limits.order(user, parts).await?;
        Ok(Self(user))
    }
}

impl FromRequestParts<Shared> for Admin {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Shared) -> Result<Self, ApiError> {
        match identity(&parts.headers, api)?.role {
            Role::Admin => Ok(Self),
            Role::Buyer => Err(ApiError::Forbidden),
        }
    }
}

/// Who the request's token speaks for.
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
    took(Timed::Token, began.elapsed());
    judged.map_err(ApiError::BadToken)
}
