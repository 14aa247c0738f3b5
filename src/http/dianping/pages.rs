//! What is only read. A user's own page needs a login, the others do not.

use axum::extract::State;
use axum::response::Response;

use super::DianpingState;
use super::envelope::{DianpingFailure, data, done};
use super::params::{PathNumber, QueryParams};
use super::users::TokenHolder;
use crate::domain::LAST_ID;

/// The vouchers of a shop.
pub(super) async fn vouchers(
    State(state): State<DianpingState>,
    PathNumber(shop): PathNumber,
) -> Result<Response, DianpingFailure> {
    Ok(data(state.own.pages.vouchers(shop).await?))
}

/// A shop.
pub(super) async fn shop(
    State(state): State<DianpingState>,
    PathNumber(id): PathNumber,
) -> Result<Response, DianpingFailure> {
    let shop = state.own.pages.shop(id).await?;
    shop.map(data).ok_or(DianpingFailure::because("店铺不存在"))
}

/// A page of the shops of a kind.
pub(super) async fn shops(
    State(state): State<DianpingState>,
    params: QueryParams,
) -> Result<Response, DianpingFailure> {
    let kind = params.number("typeId", 1..=LAST_ID)?;
    let kind = kind.ok_or(DianpingFailure::because("typeId: is missing"))?;
    let (x, y) = (params.number("x", -180.0..=180.0)?, params.number("y", -90.0..=90.0)?);
    let near = x.zip(y).map(|(x, y)| [x, y]);
    Ok(data(state.own.pages.shops(kind, params.page()?, near).await?))
}

/// The kinds of shops.
pub(super) async fn shop_types(
    State(state): State<DianpingState>,
) -> Result<Response, DianpingFailure> {
    Ok(data(state.own.pages.shop_types().await?))
}

/// A page of the most liked posts.
pub(super) async fn hot_blogs(
    State(state): State<DianpingState>,
    params: QueryParams,
) -> Result<Response, DianpingFailure> {
    Ok(data(state.own.pages.hot_blogs(params.page()?).await?))
}

/// A page of the caller's own posts.
pub(super) async fn own_blogs(
    State(state): State<DianpingState>,
    caller: TokenHolder,
    params: QueryParams,
) -> Result<Response, DianpingFailure> {
    Ok(data(state.own.pages.blogs_of(caller.user.id, params.page()?).await?))
}

/// What a user says on the own page; a success without data if there is nothing.
pub(super) async fn user_info(
    State(state): State<DianpingState>,
    _caller: TokenHolder,
    PathNumber(user): PathNumber,
) -> Result<Response, DianpingFailure> {
    Ok(state.own.pages.user_info(user).await?.map_or_else(done, data))
}
