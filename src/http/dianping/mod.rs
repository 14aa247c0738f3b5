//! hm-dianping's API, beside the native one, for its own front end and clients.
//!
//! An answer is an [`Envelope`] with status 200, also for a refusal; 401 without a body says that
//! the caller is not logged in. What the request layer refuses is a problem as everywhere.

mod envelope;
mod orders;
mod pages;
mod params;
mod users;
mod vouchers;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use super::ApiState;
use super::routes::AnyHandler;
use crate::domain::UserId;
use crate::sale::dianping::DianpingSale;
use crate::store::dianping::{DianpingLogins, DianpingPages, DianpingVouchers};

/// What the routes need besides those of the native API.
pub struct DianpingApi {
    /// Codes, tokens and users.
    pub logins: DianpingLogins,
    /// What is only read.
    pub pages: DianpingPages,
    /// New vouchers.
    pub vouchers: DianpingVouchers,
    /// The purchase.
    pub sale: DianpingSale,
    /// Who may create vouchers.
    pub admins: BTreeSet<UserId>,
}

/// The state of these routes.
#[derive(Clone)]
struct DianpingState {
    api: ApiState,
    own: Arc<DianpingApi>,
}

/// The routes.
pub(super) fn router(api: ApiState, own: DianpingApi) -> Router<ApiState> {
    Router::new()
        .route("/user/code", post(AnyHandler::of(users::send_code)))
        .route("/user/login", post(AnyHandler::of(users::login)))
        .route("/user/me", get(AnyHandler::of(users::me)))
        .route("/user/info/{id}", get(AnyHandler::of(pages::user_info)))
        .route("/user/logout", post(AnyHandler::of(users::logout)))
        .route("/voucher/list/{shopId}", get(AnyHandler::of(pages::vouchers)))
        .route("/voucher", post(AnyHandler::of(vouchers::create)))
        .route("/voucher/seckill", post(AnyHandler::of(vouchers::create_seckill)))
        .route("/voucher-order/seckill/{id}", post(AnyHandler::of(orders::buy)))
        .route("/shop/{id}", get(AnyHandler::of(pages::shop)))
        .route("/shop/of/type", get(AnyHandler::of(pages::shops)))
        .route("/shop-type/list", get(AnyHandler::of(pages::shop_types)))
        .route("/blog/hot", get(AnyHandler::of(pages::hot_blogs)))
        .route("/blog/of/me", get(AnyHandler::of(pages::own_blogs)))
        .with_state(DianpingState { api, own: Arc::new(own) })
}
