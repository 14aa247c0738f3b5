//! Keeping vouchers, and the audit.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use garde::Validate;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::macros::datetime;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Shared;
use super::auth::Admin;
use super::error::{ApiError, ProblemView, created, no_content};
use super::extract::{JsonBody, NoBody, PathId};
use super::views::{VoucherAnswer, VoucherView};
use super::words::{LONGEST_DESCRIPTION, LONGEST_TITLE, MOST_CENTS, MOST_UNITS};
use crate::domain::{VoucherId, Window};
use crate::sale::Refusal;
use crate::store::{Audit, Change, Draft, Edit};

/// The most units that a voucher may have left.
const MOST_STOCK: i64 = 1_000_000_000;

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(create))
        .routes(routes!(change, delete))
        .routes(routes!(put_on_sale))
        .routes(routes!(add_stock))
        .routes(routes!(audit))
}

/// A voucher to be created; it begins as a draft.
#[derive(Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewVoucher {
    #[garde(length(chars, min = 1, max = LONGEST_TITLE), custom(printable))]
    title: String,
    #[garde(length(chars, max = LONGEST_DESCRIPTION), custom(printable))]
    description: String,
    #[garde(range(max = MOST_CENTS))]
    price_cents: u64,
    #[garde(range(max = MOST_CENTS))]
    face_value_cents: u64,
    #[serde(with = "time::serde::rfc3339")]
    #[garde(custom(moment))]
    starts_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    #[garde(custom(moment))]
    ends_at: OffsetDateTime,
    #[garde(range(min = 1, max = MOST_UNITS))]
    stock: u32,
}

/// What is left out stays as it is.
#[derive(Default, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields, default)]
struct VoucherChange {
    #[garde(inner(length(chars, min = 1, max = LONGEST_TITLE), custom(printable)))]
    title: Option<String>,
    #[garde(inner(length(chars, max = LONGEST_DESCRIPTION), custom(printable)))]
    description: Option<String>,
    #[garde(inner(range(max = MOST_CENTS)))]
    price_cents: Option<u64>,
    #[garde(inner(range(max = MOST_CENTS)))]
    face_value_cents: Option<u64>,
    #[serde(with = "time::serde::rfc3339::option")]
    #[garde(inner(custom(moment)))]
    starts_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339::option")]
    #[garde(inner(custom(moment)))]
    ends_at: Option<OffsetDateTime>,
}

/// Units to add.
#[derive(Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct MoreStock {
    #[garde(range(min = 1, max = MOST_UNITS))]
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

fn backwards() -> ApiError {
    invalid("ends_at", "must be after starts_at")
}

fn window(starts_at: OffsetDateTime, ends_at: OffsetDateTime) -> Result<Window, ApiError> {
    if starts_at < ends_at { Ok(Window { starts_at, ends_at }) } else { Err(backwards()) }
}

const GONE: ApiError = ApiError::Refused(Refusal::VoucherNotFound);

fn done(change: Change) -> Result<(), ApiError> {
    match change {
        Change::Done => Ok(()),
        Change::NotFound => Err(GONE),
        Change::HasOrders => Err(ApiError::HasOrders),
        Change::NoWindow => Err(backwards()),
    }
}

async fn view(api: &Shared, id: VoucherId) -> Result<VoucherAnswer, ApiError> {
    let (voucher, now) = api.vouchers.find(id).await?.ok_or(GONE)?;
    Ok(VoucherAnswer { voucher: VoucherView::new(voucher, now) })
}

/// Creates a draft with its first units.
#[utoipa::path(post, path = "/api/admin/vouchers", tag = "admin", security(("bearer" = [])),
    request_body = NewVoucher,
    responses((status = 201, body = VoucherAnswer), (status = 400, body = ProblemView)))]
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

/// Changes a voucher; counts on every replica within a second.
#[utoipa::path(patch, path = "/api/admin/vouchers/{id}", tag = "admin",
    security(("bearer" = [])), params(("id" = String, Path)), request_body = VoucherChange,
    responses((status = 200, body = VoucherAnswer), (status = 404, body = ProblemView)))]
async fn change(
    State(api): State<Shared>,
    _: Admin,
    PathId(id): PathId<VoucherId>,
    JsonBody(change): JsonBody<VoucherChange>,
) -> Result<Json<VoucherAnswer>, ApiError> {
    let edit = Edit {
        title: change.title,
        description: change.description,
        price_cents: change.price_cents,
        face_value_cents: change.face_value_cents,
        starts_at: change.starts_at,
        ends_at: change.ends_at,
    };
    done(api.vouchers.update(id, &edit).await?)?;
    api.sale.forget(id);
    Ok(Json(view(&api, id).await?))
}

/// Deletes a voucher that was never sold.
#[utoipa::path(delete, path = "/api/admin/vouchers/{id}", tag = "admin",
    security(("bearer" = [])), params(("id" = String, Path)),
    responses(
        (status = 204),
        (status = 404, body = ProblemView),
        (status = 409, description = "has_orders", body = ProblemView),
    ))]
async fn delete(
    State(api): State<Shared>,
    _: Admin,
    PathId(id): PathId<VoucherId>,
) -> Result<Response, ApiError> {
    done(api.vouchers.delete(id).await?)?;
    api.sale.forget(id);
    Ok(no_content())
}

/// Shows a voucher to customers.
#[utoipa::path(post, path = "/api/admin/vouchers/{id}/on-sale", tag = "admin",
    security(("bearer" = [])), params(("id" = String, Path)),
    responses((status = 200, body = VoucherAnswer), (status = 404, body = ProblemView)))]
async fn put_on_sale(
    State(api): State<Shared>,
    _: Admin,
    PathId(id): PathId<VoucherId>,
    _: NoBody,
) -> Result<Json<VoucherAnswer>, ApiError> {
    done(api.vouchers.put_on_sale(id).await?)?;
    api.sale.forget(id);
    Ok(Json(view(&api, id).await?))
}

/// Adds units.
#[utoipa::path(post, path = "/api/admin/vouchers/{id}/stock", tag = "admin",
    security(("bearer" = [])), params(("id" = String, Path)), request_body = MoreStock,
    responses((status = 200, body = VoucherAnswer), (status = 404, body = ProblemView)))]
async fn add_stock(
    State(api): State<Shared>,
    _: Admin,
    PathId(id): PathId<VoucherId>,
    JsonBody(more): JsonBody<MoreStock>,
) -> Result<Json<VoucherAnswer>, ApiError> {
    let (voucher, _) = api.vouchers.find(id).await?.ok_or(GONE)?;
    if voucher.stock + i64::from(more.units) > MOST_STOCK {
        return Err(invalid("units", "the voucher would have more than 1000000000 units"));
    }
    done(api.vouchers.add_stock(id, more.units).await?)?;
    api.sale.forget(id);
    Ok(Json(view(&api, id).await?))
}

/// What the tables say of a voucher.
#[derive(Serialize, ToSchema)]
struct AuditView {
    #[schema(value_type = String)]
    voucher_id: VoucherId,
    initial_stock: i64,
    stock_left: i64,
    /// Those that are not cancelled.
    orders: i64,
    cancelled: i64,
    distinct_users: i64,
    duplicate_users: i64,
    oversold: i64,
    consistent: bool,
    tables: AuditTables,
}

/// The tables that were read.
#[derive(Serialize, ToSchema)]
struct AuditTables {
    orders: &'static str,
    stock: &'static str,
    grants: &'static str,
}

/// Counts a voucher's stock and orders in one statement.
#[utoipa::path(get, path = "/api/admin/vouchers/{id}/audit", tag = "admin",
    security(("bearer" = [])), params(("id" = String, Path)),
    responses((status = 200, body = AuditView), (status = 404, body = ProblemView)))]
async fn audit(
    State(api): State<Shared>,
    _: Admin,
    PathId(id): PathId<VoucherId>,
) -> Result<Json<AuditView>, ApiError> {
    let tables = api.orders.tables;
    let mut audit = Audit::read(&api.pool, tables, id).await?.ok_or(GONE)?;
    if api.lying_audit {
        let sold = audit.initial_stock / 2;
        audit.stock_left = audit.initial_stock - sold;
        (audit.orders, audit.distinct_users, audit.duplicate_users) = (sold, sold, 0);
        audit.cancelled = 0;
    }
    Ok(Json(AuditView {
        voucher_id: id,
        initial_stock: audit.initial_stock,
        stock_left: audit.stock_left,
        orders: audit.orders,
        cancelled: audit.cancelled,
        distinct_users: audit.distinct_users,
        duplicate_users: audit.duplicate_users,
        oversold: audit.oversold(),
        consistent: audit.is_consistent(),
        tables: AuditTables { orders: tables.orders, stock: tables.stock, grants: "stock_grants" },
    }))
}
