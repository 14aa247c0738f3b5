//! The purchase that memory refuses, answered before the router.
//!
//! When a voucher is sold out nearly all requests are this one. What it costs beside its answer is
//! what the router, its layers and the purchase's future allocate and move. So the service looks
//! here first, and does what the long way does with such a request, by the same functions. Every
//! purchase that memory cannot refuse goes the long way, and every other request.

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

use super::envelope::Envelope;
use super::error::ApiError;
use super::{Api, auth, extract};
use crate::domain::{RequestKey, UserId, VoucherId};

/// What the router calls a purchase.
pub(super) const ROUTE: &str = "/api/vouchers/{id}/orders";

/// All routes, with the early rejections before them. Cheap to clone.
#[derive(Clone)]
pub struct HttpService {
    pub(super) envelope: Arc<Envelope>,
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
        match self.envelope.reject_early(&request) {
            Some(response) => Either::Left(ready(Ok(response))),
            None => Either::Right(self.routes.call(request)),
        }
    }
}

/// What the request is answered with, if it is a purchase that memory can refuse.
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

/// Whose request it is, and what its key comes to.
fn buyer(api: &Api, headers: &HeaderMap) -> Result<(UserId, Option<RequestKey>), ApiError> {
    let user = auth::identity(headers, api)?.user;
    Ok((user, extract::request_key(headers)?))
}
