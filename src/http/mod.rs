//! HTTP: extract, call, answer. Business rules are in `domain` and `sale`.
//!
//! Modules that are not routes:
//!
//! - `error`: the only table from errors to status codes; `problem`: the body of an error;
//! - `request_layer`: what every request and answer gets; `body_drain`: the rest of a refused body;
//! - `early_rejection`: purchases that are refused before the router;
//! - `auth`, `rate_limits`: which requests are let through;
//! - `routes`: handlers of one type;
//! - `extract`, `text_rules`, `validation_messages`: how input is checked, and what is said about
//!   it;
//! - `audit_log`: what is logged of admins;
//! - `dianping`: another API, for clients of hm-dianping;
//! - `server`: how connections are served and drained; `sse_limiter`: how many event streams.

mod admin;
mod audit_log;
mod auth;
mod body_drain;
mod dianping;
mod early_rejection;
mod error;
mod extract;
mod login;
mod openapi;
mod ops;
mod orders;
mod page;
mod payments;
mod problem;
mod rate_limits;
mod request_layer;
mod routes;
mod server;
mod sse_limiter;
mod success;
mod text_rules;
mod tickets;
mod validation_messages;
mod views;
mod vouchers;

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use secrecy::SecretString;
use utoipa_axum::router::OpenApiRouter;

use crate::domain::Country;
use crate::outbox::Outbox;
use crate::readiness::Readiness;
use crate::revocation::RevocationReader;
use crate::sale::Sale;
use crate::store::{Codes, Orders, Users, Vouchers};
use crate::token::Tokens;
pub use dianping::DianpingApi;
pub use early_rejection::HttpService;
use error::ApiError;
pub use rate_limits::{LimitRules, RateLimits};
use request_layer::{RequestContext, RequestLayer};
pub use server::{ServerLimits, serve};
pub use sse_limiter::SseLimiter;

/// The largest body that is read, in bytes.
const BODY_BYTES: usize = 16 * 1024;

/// What the routes need.
pub struct Api {
    /// Users.
    pub users: Users,
    /// Login codes.
    pub codes: Codes,
    /// Rate limits of users, addresses and phones.
    pub limits: RateLimits,
    /// The country in which a phone number without a country code is dialled.
    pub country: Country,
    /// Where login codes are delivered.
    pub outbox: Outbox,
    /// Tokens.
    pub tokens: Tokens,
    /// Reads which tokens are revoked.
    pub revocation: RevocationReader,
    /// How long a new token is valid.
    pub token_life: Duration,
    /// Vouchers.
    pub vouchers: Vouchers,
    /// Orders.
    pub orders: Orders,
    /// The purchase.
    pub sale: Sale,
    /// When an unpaid order is cancelled; `None` is never.
    pub unpaid_timeout: Option<Duration>,
    /// The pool, for the audit.
    pub pool: sqlx::MySqlPool,
    /// Whether this replica should get requests.
    pub readiness: Readiness,
    /// The name of this replica, for `X-Replica`.
    pub replica: String,
    /// How this replica locks, for `/readyz`.
    pub settings: String,
    /// The modes that a real sale must not have, for `X-Lab`: `lab`, `dev`, an injected bug.
    pub lab: Option<String>,
    /// Whether the answer to a purchase says when it held its lock (laboratory).
    pub tells_holds: bool,
    /// Whether the audit reports invented figures (an injected bug of the laboratory).
    pub falsifies_audit: bool,
    /// Whether the routes of admins ask for no token (an injected bug of the laboratory).
    pub admits_strangers: bool,
    /// The most requests in flight.
    pub max_requests: usize,
    /// The permits of tickets' event streams.
    pub streams: SseLimiter,
}

type ApiState = Arc<Api>;

/// The whole service; the routes of hm-dianping are served if `dianping` is there.
pub fn service(api: Api, dianping: Option<DianpingApi>) -> HttpService {
    let api = Arc::new(api);
    let context = Arc::new(RequestContext::new(Arc::clone(&api)));
    let layer = |is_for_operators| RequestLayer { context: Arc::clone(&context), is_for_operators };
    let not_allowed = async || ApiError::MethodNotAllowed;
    let (routes, description) = OpenApiRouter::with_openapi(openapi::description())
        .merge(login::router())
        .merge(vouchers::router())
        .merge(admin::router())
        .merge(orders::router())
        .merge(payments::router())
        .merge(tickets::router())
        .split_for_parts();
    let description = ([(CONTENT_TYPE, "application/json")], openapi::written(description));
    let routes = match dianping {
        Some(own) => routes.merge(dianping::router(Arc::clone(&api), own)),
        None => routes,
    };
    let routes = routes
        .route("/openapi.json", get(async move || description))
        .fallback(page::file)
        .method_not_allowed_fallback(not_allowed)
        .layer(layer(false));
    let operators = ops::router().method_not_allowed_fallback(not_allowed).layer(layer(true));
    HttpService { context, routes: routes.merge(operators).with_state(api) }
}

/// A secret of this process, for `--dev` without `JWT_SECRET`.
pub fn ephemeral_secret() -> SecretString {
    format!("{}{}", uuid::Uuid::new_v4(), uuid::Uuid::new_v4()).into()
}
