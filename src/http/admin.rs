//! Routes for admins: vouchers and their audit.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use garde::Validate;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::audit_log::VoucherChange;
use super::auth::Admin;
use super::error::{ApiError, ProblemView};
use super::extract::{JsonBody, NoBody, PathId};
use super::openapi::schemas;
use super::routes::routes;
use super::success::{created, no_content};
use super::validation_messages::{
    FIRST_YEAR, LAST_YEAR, MAX_DESCRIPTION_CHARS, MAX_PRICE_CENTS, MAX_TITLE_CHARS, MAX_UNITS,
};
use super::views::{VoucherAnswer, VoucherView};
use super::{ApiState, text_rules};
use crate::domain::{MAX_STOCK, MAX_STOCK_BUCKETS, VoucherId, Window};
use crate::sale::Refusal;
use crate::store::{Audit, Change, ChangedVoucher, Draft, Edit, SaleTables, StoreError};

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(create))
        .routes(routes!(change, delete))
        .routes(routes!(put_on_sale))
        .routes(routes!(add_stock))
        .routes(routes!(audit))
}

/// A voucher to create; it begins as a draft.
#[derive(Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewVoucher {
    #[garde(length(chars, min = 1, max = MAX_TITLE_CHARS), custom(text_rules::title))]
    #[schema(schema_with = schemas::title)]
    title: String,
    #[garde(length(chars, max = MAX_DESCRIPTION_CHARS), custom(text_rules::description))]
    #[schema(schema_with = schemas::description)]
    description: String,
    #[garde(range(max = MAX_PRICE_CENTS))]
    #[schema(schema_with = schemas::cents)]
    price_cents: u64,
    #[garde(range(max = MAX_PRICE_CENTS))]
    #[schema(schema_with = schemas::cents)]
    face_value_cents: u64,
    #[serde(with = "time::serde::rfc3339")]
    #[garde(custom(moment))]
    #[schema(schema_with = schemas::moment)]
    starts_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    #[garde(custom(moment))]
    #[schema(schema_with = schemas::moment)]
    ends_at: OffsetDateTime,
    #[garde(range(min = 1, max = MAX_UNITS))]
    #[schema(schema_with = schemas::units)]
    stock: u32,
    #[serde(default = "one_bucket")]
    #[garde(range(min = 1, max = MAX_STOCK_BUCKETS))]
    #[schema(schema_with = schemas::stock_buckets)]
    stock_buckets: u32,
}

fn one_bucket() -> u32 {
    1
}

/// A change of a voucher; omitted fields stay as they are.
#[derive(Default, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields, default)]
struct VoucherEdit {
    #[garde(inner(length(chars, min = 1, max = MAX_TITLE_CHARS), custom(text_rules::title)))]
    #[schema(schema_with = schemas::new_title)]
    title: Option<String>,
    #[garde(inner(length(chars, max = MAX_DESCRIPTION_CHARS), custom(text_rules::description)))]
    #[schema(schema_with = schemas::new_description)]
    description: Option<String>,
    #[garde(inner(range(max = MAX_PRICE_CENTS)))]
    #[schema(schema_with = schemas::new_cents)]
    price_cents: Option<u64>,
    #[garde(inner(range(max = MAX_PRICE_CENTS)))]
    #[schema(schema_with = schemas::new_cents)]
    face_value_cents: Option<u64>,
    #[serde(with = "time::serde::rfc3339::option")]
    #[garde(inner(custom(moment)))]
    #[schema(schema_with = schemas::new_moment)]
    starts_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339::option")]
    #[garde(inner(custom(moment)))]
    #[schema(schema_with = schemas::new_moment)]
    ends_at: Option<OffsetDateTime>,
}

/// Units to add.
#[derive(Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct MoreStock {
    #[garde(range(min = 1, max = MAX_UNITS))]
    #[schema(schema_with = schemas::units)]
    units: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the validator's signature")]
pub(super) fn moment(moment: &OffsetDateTime, _: &()) -> garde::Result {
    if (FIRST_YEAR..=LAST_YEAR).contains(&moment.to_utc().year()) {
        return Ok(());
    }
    Err(garde::Error::new(format!("must be of the years {FIRST_YEAR} to {LAST_YEAR}")))
}

fn invalid(field: &str, limit: &str) -> ApiError {
    ApiError::Invalid { code: "invalid_body", field: field.to_owned(), limit: limit.to_owned() }
}

fn invalid_window() -> ApiError {
    invalid("ends_at", "must be after starts_at")
}

fn window(starts_at: OffsetDateTime, ends_at: OffsetDateTime) -> Result<Window, ApiError> {
    if starts_at < ends_at { Ok(Window { starts_at, ends_at }) } else { Err(invalid_window()) }
}

const VOUCHER_NOT_FOUND: ApiError = ApiError::Refused(Refusal::VoucherNotFound);

/// The change, if it was sent to the database.
fn into_changed_voucher(change: Change) -> Result<ChangedVoucher, ApiError> {
    match change {
        Change::Made(changed) => Ok(*changed),
        Change::NotFound => Err(VOUCHER_NOT_FOUND),
        Change::HasOrders => Err(ApiError::HasOrders),
        Change::NoWindow => Err(invalid_window()),
        Change::StockLimit => {
            let sentence = format!("the voucher would have more than {MAX_STOCK} units");
            Err(invalid("units", &sentence))
        }
    }
}

/// Makes a change and logs it, in a task that a client's hang-up does not abort. Boxed, because a
/// task moves its future when it is spawned.
fn apply_and_log(
    api: &ApiState,
    admin: Admin,
    about: VoucherChange,
    work: impl Future<Output = Result<Change, StoreError>> + Send + 'static,
) -> impl Future<Output = Result<ChangedVoucher, ApiError>> {
    let sale = api.sale.clone();
    let work = Box::pin(async move {
        let changed = into_changed_voucher(work.await?)?;
        sale.invalidate(changed.id);
        about.log(&admin, &changed);
        if changed.is_certain {
            return Ok(changed);
        }
        Err(ApiError::ChangeUnknown(changed.id))
    });
    async move { api.sale.run_to_end(work).await.unwrap_or(Err(ApiError::Internal)) }
}

fn view(changed: ChangedVoucher) -> Result<VoucherAnswer, ApiError> {
    let (voucher, now) = changed.after.ok_or(VOUCHER_NOT_FOUND)?;
    Ok(VoucherAnswer { voucher: VoucherView::new(voucher, now) })
}

/// Creates a draft with its first units.
#[utoipa::path(post, path = "/api/admin/vouchers", tag = "admin", security(("bearer" = [])),
    request_body = NewVoucher,
    responses(
        (status = 201, body = VoucherAnswer),
        (status = 504, description = "outcome_unknown: read the voucher first",
            body = ProblemView),
    ))]
async fn create(
    State(api): State<ApiState>,
    admin: Admin,
    JsonBody(new): JsonBody<NewVoucher>,
) -> Result<Response, ApiError> {
    let draft = Draft {
        window: window(new.starts_at, new.ends_at)?,
        title: new.title,
        description: new.description,
        price_cents: new.price_cents,
        face_value_cents: new.face_value_cents,
        stock: new.stock,
        stock_buckets: new.stock_buckets,
    };
    if draft.stock_buckets > 1 && api.orders.tables.stock != SaleTables::GUARDED.stock {
        return Err(invalid("stock_buckets", "must be 1 with --guards off"));
    }
    let vouchers = api.vouchers.clone();
    let work = async move { Ok(Change::Made(Box::new(vouchers.create(&draft).await?))) };
    let about = VoucherChange { action: "create", units: None };
    let changed = apply_and_log(&api, admin, about, work).await?;
    Ok(created(&format!("/api/vouchers/{}", changed.id), view(changed)?))
}

/// Changes a voucher; takes effect on every replica within a second.
#[utoipa::path(patch, path = "/api/admin/vouchers/{id}", tag = "admin",
    security(("bearer" = [])), params(("id" = VoucherId, Path)), request_body = VoucherEdit,
    responses(
        (status = 200, body = VoucherAnswer),
        (status = 404, description = "voucher_not_found", body = ProblemView),
        (status = 504, description = "outcome_unknown: read the voucher first",
            body = ProblemView),
    ))]
async fn change(
    State(api): State<ApiState>,
    admin: Admin,
    PathId(id): PathId<VoucherId>,
    JsonBody(change): JsonBody<VoucherEdit>,
) -> Result<Json<VoucherAnswer>, ApiError> {
    let edit = Edit {
        title: change.title,
        description: change.description,
        price_cents: change.price_cents,
        face_value_cents: change.face_value_cents,
        starts_at: change.starts_at,
        ends_at: change.ends_at,
    };
    let vouchers = api.vouchers.clone();
    let work = async move { vouchers.update(id, &edit).await };
    let about = VoucherChange { action: "change", units: None };
    Ok(Json(view(apply_and_log(&api, admin, about, work).await?)?))
}

/// Deletes a voucher without orders.
#[utoipa::path(delete, path = "/api/admin/vouchers/{id}", tag = "admin",
    security(("bearer" = [])), params(("id" = VoucherId, Path)),
    responses(
        (status = 204),
        (status = 404, description = "voucher_not_found", body = ProblemView),
        (status = 504, description = "outcome_unknown: read the voucher first",
            body = ProblemView),
        (status = 409, description = "has_orders", body = ProblemView),
    ))]
async fn delete(
    State(api): State<ApiState>,
    admin: Admin,
    PathId(id): PathId<VoucherId>,
) -> Result<Response, ApiError> {
    let vouchers = api.vouchers.clone();
    let work = async move { vouchers.delete(id).await };
    apply_and_log(&api, admin, VoucherChange { action: "delete", units: None }, work).await?;
    Ok(no_content())
}

/// Shows a voucher to customers.
#[utoipa::path(post, path = "/api/admin/vouchers/{id}/on-sale", tag = "admin",
    security(("bearer" = [])), params(("id" = VoucherId, Path)),
    responses(
        (status = 200, body = VoucherAnswer),
        (status = 404, description = "voucher_not_found", body = ProblemView),
        (status = 504, description = "outcome_unknown: read the voucher first",
            body = ProblemView),
    ))]
async fn put_on_sale(
    State(api): State<ApiState>,
    admin: Admin,
    PathId(id): PathId<VoucherId>,
    _: NoBody,
) -> Result<Json<VoucherAnswer>, ApiError> {
    let vouchers = api.vouchers.clone();
    let work = async move { vouchers.put_on_sale(id).await };
    let about = VoucherChange { action: "put_on_sale", units: None };
    Ok(Json(view(apply_and_log(&api, admin, about, work).await?)?))
}

/// Adds units.
#[utoipa::path(post, path = "/api/admin/vouchers/{id}/stock", tag = "admin",
    security(("bearer" = [])), params(("id" = VoucherId, Path)), request_body = MoreStock,
    responses(
        (status = 200, body = VoucherAnswer),
        (status = 400, description = "invalid_body, invalid_id; also if more than \
            1000000000 units were left", body = ProblemView),
        (status = 404, description = "voucher_not_found", body = ProblemView),
        (status = 504, description = "outcome_unknown: read the voucher first",
            body = ProblemView),
    ))]
async fn add_stock(
    State(api): State<ApiState>,
    admin: Admin,
    PathId(id): PathId<VoucherId>,
    JsonBody(more): JsonBody<MoreStock>,
) -> Result<Json<VoucherAnswer>, ApiError> {
    let (vouchers, units) = (api.vouchers.clone(), more.units);
    let work = async move { vouchers.add_stock(id, units).await };
    let about = VoucherChange { action: "add_stock", units: Some(units) };
    Ok(Json(view(apply_and_log(&api, admin, about, work).await?)?))
}

/// Counts of a voucher's tables.
#[derive(Serialize, ToSchema)]
struct AuditView {
    voucher_id: VoucherId,
    #[schema(example = 200)]
    initial_stock: i64,
    #[schema(example = 150)]
    stock_left: i64,
    /// Orders that are not cancelled.
    #[schema(example = 50)]
    orders: i64,
    #[schema(example = 3)]
    cancelled: i64,
    #[schema(example = 50)]
    distinct_users: i64,
    #[schema(example = 0)]
    duplicate_users: i64,
    #[schema(example = 0)]
    oversold: i64,
    #[schema(example = true)]
    consistent: bool,
    tables: AuditTables,
}

/// The tables that were read.
#[derive(Serialize, ToSchema)]
struct AuditTables {
    #[schema(example = "orders")]
    orders: &'static str,
    #[schema(example = "voucher_stock")]
    stock: &'static str,
    #[schema(example = "stock_grants")]
    grants: &'static str,
}

/// Counts a voucher's stock and orders in one statement. The proxy passes it on at the operators'
/// address only, and answers 404 at the public one.
#[utoipa::path(get, path = "/api/admin/vouchers/{id}/audit", tag = "admin",
    security(("bearer" = [])), params(("id" = VoucherId, Path)),
    responses(
        (status = 200, body = AuditView),
        (status = 404, description = "voucher_not_found, or not_found of the proxy",
            body = ProblemView),
    ))]
async fn audit(
    State(api): State<ApiState>,
    _: Admin,
    PathId(id): PathId<VoucherId>,
) -> Result<Json<AuditView>, ApiError> {
    let tables = api.orders.tables;
    let mut audit = Audit::read(&api.pool, tables, id).await?.ok_or(VOUCHER_NOT_FOUND)?;
    if api.falsifies_audit {
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
