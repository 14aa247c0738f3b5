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
        .route("/user/code", post(users::send_code))
        .route("/user/login", post(users::login))
        .route("/user/me", get(users::me))
        .route("/user/logout", post(users::logout))
        .route("/voucher/list/{shopId}", get(pages::vouchers))
        .route("/voucher", post(vouchers::create))
        .route("/voucher/seckill", post(vouchers::create_seckill))
        .route("/voucher-order/seckill/{id}", post(orders::buy))
        .route("/shop/{id}", get(pages::shop))
        .route("/shop/of/type", get(pages::shops))
        .route("/shop-type/list", get(pages::shop_types))
        .route("/blog/hot", get(pages::hot_blogs))
        .with_state(DianpingState { api, own: Arc::new(own) })
}
