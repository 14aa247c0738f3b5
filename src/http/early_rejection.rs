//! Rejects purchases from memory before the router sees them.
//!
//! When a voucher is sold out, nearly all requests are such purchases. Most of their cost is what
//! the router, its layer and the purchase's future allocate and move. This module answers them with
//! the same functions as the route. All other requests go to the router.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::HttpBody;
use axum::extract::Request;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use axum::routing::future::RouteFuture;
use bytes::Bytes;
use futures_util::future::Either;
use tower::Service;

use super::error::ApiError;
use super::request_layer::RequestContext;
use super::{Api, auth, extract};
use crate::domain::{IdempotencyKeyHash, UserId, VoucherId};

/// The route of a purchase.
pub(super) const ROUTE: &str = "/api/vouchers/{id}/orders";

/// All routes, with the early rejections before them. Cheap to clone.
#[derive(Clone)]
pub struct HttpService {
    pub(super) context: Arc<RequestContext>,
    pub(super) routes: Router,
}

impl<B> Service<Request<B>> for HttpService
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Either<Ready<Result<Response, Infallible>>, RouteFuture<Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // A router is always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.context.reject_early(&request) {
            Some(response) => Either::Left(ready(Ok(response))),
            None => Either::Right(self.routes.call(request)),
        }
    }
}

/// The error of a purchase that memory can refuse; `None` for every other request.
pub(super) fn rejection<B: HttpBody>(api: &Api, request: &Request<B>) -> Option<ApiError> {
    let path = request.uri().path().strip_prefix("/api/vouchers/")?.strip_suffix("/orders")?;
    if request.method() != Method::POST
        || !request.body().is_end_stream()
        || api.limits.rules.limit_orders()
    {
        return None;
    }
    let voucher: VoucherId = path.parse().ok()?;
    let mut wrong = None;
    let refusal = api.sale.reject_early(voucher, || {
        buyer(api, request.headers()).map_err(|error| wrong = Some(error)).ok()
    });
    wrong.or(refusal.map(ApiError::Refused))
}

/// The user of a request, and the hash of its idempotency key.
fn buyer(api: &Api, headers: &HeaderMap) -> Result<(UserId, Option<IdempotencyKeyHash>), ApiError> {
    let user = auth::identity(headers, api)?.user;
    Ok((user, extract::request_key(headers)?))
}
