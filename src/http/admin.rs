//! Keeping vouchers, and the audit.

use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, patch, post};
use axum::{Json, Router};
use garde::Validate;
use serde::Deserialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::macros::datetime;

use super::Shared;
use super::auth::Admin;
use super::error::{ApiError, created, no_content};
use super::extract::{JsonBody, NoBody, PathId};
use super::views::VoucherView;
use crate::domain::{VoucherId, Window};
use crate::sale::Refusal;
use crate::store::{Audit, Change, Draft};

/// The most units that a voucher may have left.
const MOST_STOCK: i64 = 1_000_000_000;

pub(super) fn router() -> Router<Shared> {
    Router::new()
        .route("/api/admin/vouchers", post(create))
        .route("/api/admin/vouchers/{id}", patch(change).delete(delete))
        .route("/api/admin/vouchers/{id}/on-sale", post(put_on_sale))
        .route("/api/admin/vouchers/{id}/stock", post(add_stock))
        .route("/api/admin/vouchers/{id}/audit", get(audit))
}

#[derive(Deserialize, Validate)]
#[serde(deny_unknown_fields)]
struct NewVoucher {
    #[garde(length(chars, min = 1, max = 100), custom(printable))]
    title: String,
    #[garde(length(chars, max = 1000), custom(printable))]
    description: String,
    #[garde(range(max = 10_000_000_000))]
    price_cents: u64,
    #[garde(range(max = 10_000_000_000))]
    face_value_cents: u64,
    #[serde(with = "time::serde::rfc3339")]
    #[garde(custom(moment))]
    starts_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    #[garde(custom(moment))]
    ends_at: OffsetDateTime,
    #[garde(range(min = 1, max = 1_000_000))]
    stock: u32,
}

#[derive(Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct VoucherChange {
    #[garde(inner(length(chars, min = 1, max = 100), custom(printable)))]
    title: Option<String>,
    #[garde(inner(length(chars, max = 1000), custom(printable)))]
    description: Option<String>,
    #[garde(inner(range(max = 10_000_000_000)))]
    price_cents: Option<u64>,
    #[garde(inner(range(max = 10_000_000_000)))]
    face_value_cents: Option<u64>,
    #[serde(with = "time::serde::rfc3339::option")]
    #[garde(inner(custom(moment)))]
    starts_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339::option")]
    #[garde(inner(custom(moment)))]
    ends_at: Option<OffsetDateTime>,
}

#[derive(Deserialize, Validate)]
#[serde(deny_unknown_fields)]
struct MoreStock {
    #[garde(range(min = 1, max = 1_000_000))]
    units: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the validator's signature")]
fn printable(text: &str, _: &()) -> garde::Result {
    if text.chars().any(|c| c.is_control() && c != '\n') {
        return Err(garde::Error::new("must not contain control characters"));
    }
    Ok(())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the validator's signature")]
fn moment(moment: &OffsetDateTime, _: &()) -> garde::Result {
    let range = datetime!(2000-01-01 0:00 UTC)..datetime!(9000-01-01 0:00 UTC);
    if range.contains(moment) {
        return Ok(());
    }
    Err(garde::Error::new("must be of the years 2000 to 8999"))
}

fn invalid(field: &str, limit: &str) -> ApiError {
    ApiError::Invalid { code: "invalid_body", field: field.to_owned(), limit: limit.to_owned() }
}

fn window(starts_at: OffsetDateTime, ends_at: OffsetDateTime) -> Result<Window, ApiError> {
    if starts_at < ends_at {
        Ok(Window { starts_at, ends_at })
    } else {
        Err(invalid("ends_at", "must be after starts_at"))
    }
}

const GONE: ApiError = ApiError::Refused(Refusal::VoucherNotFound);

fn done(change: Change) -> Result<(), ApiError> {
    match change {
        Change::Done => Ok(()),
        Change::NotFound => Err(GONE),
        Change::HasOrders => Err(ApiError::HasOrders),
    }
}

async fn view(api: &Shared, id: VoucherId) -> Result<Value, ApiError> {
    let (voucher, now) = api.vouchers.find(id).await?.ok_or(GONE)?;
    Ok(json!({"voucher": VoucherView::new(voucher, now)}))
}

async fn create(
    State(api): State<Shared>,
    _: Admin,
    JsonBody(new): JsonBody<NewVoucher>,
) -> Result<Response, ApiError> {
    let draft = Draft {
        window: window(new.starts_at, new.ends_at)?,
        title: new.title,
        description: new.description,
        price_cents: new.price_cents,
        face_value_cents: new.face_value_cents,
        stock: new.stock,
    };
    let id = api.vouchers.create(&draft).await?;
    Ok(created(&format!("/api/vouchers/{id}"), view(&api, id).await?))
}

async fn change(
    State(api): State<Shared>,
    _: Admin,
    PathId(id): PathId<VoucherId>,
    JsonBody(change): JsonBody<VoucherChange>,
) -> Result<Json<Value>, ApiError> {
    let (mut voucher, _) = api.vouchers.find(id).await?.ok_or(GONE)?;
    let starts_at = change.starts_at.unwrap_or(voucher.window.starts_at);
    voucher.window = window(starts_at, change.ends_at.unwrap_or(voucher.window.ends_at))?;
    voucher.title = change.title.unwrap_or(voucher.title);
    voucher.description = change.description.unwrap_or(voucher.description);
    voucher.price_cents = change.price_cents.unwrap_or(voucher.price_cents);
    voucher.face_value_cents = change.face_value_cents.unwrap_or(voucher.face_value_cents);
    done(api.vouchers.update(&voucher).await?)?;
    Ok(Json(view(&api, id).await?))
}

async fn delete(
    State(api): State<Shared>,
    _: Admin,
    PathId(id): PathId<VoucherId>,
) -> Result<Response, ApiError> {
    done(api.vouchers.delete(id).await?)?;
    Ok(no_content())
}

async fn put_on_sale(
    State(api): State<Shared>,
    _: Admin,
    PathId(id): PathId<VoucherId>,
    _: NoBody,
) -> Result<Json<Value>, ApiError> {
    done(api.vouchers.put_on_sale(id).await?)?;
    Ok(Json(view(&api, id).await?))
}

async fn add_stock(
    State(api): State<Shared>,
    _: Admin,
    PathId(id): PathId<VoucherId>,
    JsonBody(more): JsonBody<MoreStock>,
) -> Result<Json<Value>, ApiError> {
    let (voucher, _) = api.vouchers.find(id).await?.ok_or(GONE)?;
    if voucher.stock + i64::from(more.units) > MOST_STOCK {
        return Err(invalid("units", "the voucher would have more than 1000000000 units"));
    }
    done(api.vouchers.add_stock(id, more.units).await?)?;
    Ok(Json(view(&api, id).await?))
}

async fn audit(
    State(api): State<Shared>,
    _: Admin,
    PathId(id): PathId<VoucherId>,
) -> Result<Json<Value>, ApiError> {
    let tables = api.orders.tables;
    let mut audit = Audit::read(&api.pool, tables, id).await?.ok_or(GONE)?;
    if api.lying_audit {
        let sold = audit.initial_stock / 2;
        audit.stock_left = audit.initial_stock - sold;
        (audit.orders, audit.distinct_users, audit.duplicate_users) = (sold, sold, 0);
    }
    Ok(Json(json!({
        "voucher_id": id,
        "initial_stock": audit.initial_stock,
        "stock_left": audit.stock_left,
        "orders": audit.orders,
        "distinct_users": audit.distinct_users,
        "duplicate_users": audit.duplicate_users,
        "oversold": audit.oversold(),
        "consistent": audit.is_consistent(),
        "tables": {"orders": tables.orders, "stock": tables.stock, "grants": "stock_grants"},
    })))
}
