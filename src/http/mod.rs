//! HTTP: extract, call, answer. No rule of the business stands here.
//!
//! `error` is the only table from errors to status codes, `problem` how they are written,
//! `envelope` what every answer gets, `early` what is answered before the router, `rest` what
//! happens to a body that nobody wants, `extract` how input is checked, `words` what is said of it,
//! `server` how connections are served and drained; the other files are the routes, one subject
//! each.

mod admin;
mod auth;
mod early;
mod envelope;
mod error;
mod extract;
mod limits;
mod login;
mod openapi;
mod ops;
mod orders;
mod page;
mod payments;
mod problem;
mod rest;
mod server;
mod streams;
mod tickets;
mod views;
mod vouchers;
mod words;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::routing::get;
use secrecy::SecretString;
use utoipa_axum::router::OpenApiRouter;

use crate::readiness::Readiness;
use crate::sale::Sale;
use crate::store::{Codes, Orders, Users, Vouchers};
use crate::token::Tokens;
pub use early::HttpService;
use envelope::{Envelope, Wrapping};
use error::ApiError;
pub use limits::{LimitRules, RateLimits};
pub use login::CodeDelivery;
pub use server::{Limits, serve};
pub use streams::Streams;

/// The largest body that is read, in bytes.
const BODY_BYTES: usize = 16 * 1024;

/// What the routes need.
pub struct Api {
    /// Users.
    pub users: Users,
    /// Login codes.
    pub codes: Codes,
    /// How often somebody may ask.
    pub limits: RateLimits,
    /// How login codes reach their people.
    pub delivery: CodeDelivery,
    /// Tokens.
    pub tokens: Tokens,
    /// How long a token is good for.
    pub token_life: Duration,
    /// Vouchers.
    pub vouchers: Vouchers,
    /// Orders.
    pub orders: Orders,
    /// The purchase.
    pub sale: Sale,
    /// After how long an unpaid order is cancelled, if it is.
    pub unpaid_timeout: Option<Duration>,
    /// The pool, for the audit.
    pub pool: sqlx::MySqlPool,
    /// Whether this replica should be sent requests.
    pub readiness: Readiness,
    /// Who is asked: `X-Replica`.
    pub replica: String,
    /// How this replica locks, for `/readyz`.
    pub settings: String,
    /// What speaks against trusting this replica with a real sale: `lab`, `dev`, a plant.
    pub lab: Option<String>,
    /// Whether the answer to a purchase tells when it held its lock (the laboratory).
    pub tells_holds: bool,
    /// Whether the audit is to lie (a planted bug of the laboratory).
    pub lying_audit: bool,
    /// The most requests at a time.
    pub max_requests: usize,
    /// The places of tickets' event streams.
    pub streams: Streams,
}

type Shared = Arc<Api>;

/// The whole service.
pub fn service(api: Api) -> HttpService {
    let api = Arc::new(api);
    let envelope = Arc::new(Envelope::new(Arc::clone(&api)));
    let wrapping =
        |is_for_operators| Wrapping { envelope: Arc::clone(&envelope), is_for_operators };
    let not_allowed = async || ApiError::MethodNotAllowed;
    let (routes, description) = OpenApiRouter::with_openapi(openapi::description())
        .merge(login::router())
        .merge(vouchers::router())
        .merge(admin::router())
        .merge(orders::router())
        .merge(payments::router())
        .merge(tickets::router())
        .split_for_parts();
    let description = openapi::complete(description);
    let routes = routes
        .route("/openapi.json", get(async move || Json(description)))
        .fallback(page::file)
        .method_not_allowed_fallback(not_allowed)
        .layer(wrapping(false));
    let operators = ops::router().method_not_allowed_fallback(not_allowed).layer(wrapping(true));
    HttpService { envelope, routes: routes.merge(operators).with_state(api) }
}

/// A secret of this process, for `--dev` without `JWT_SECRET`.
pub fn passing_secret() -> SecretString {
    format!("{}{}", uuid::Uuid::new_v4(), uuid::Uuid::new_v4()).into()
}
