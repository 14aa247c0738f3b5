//! New vouchers. hm-dianping lets anyone create them; here only those of `--dianping-admins` may.

use axum::extract::State;
use axum::response::Response;
use garde::Validate;
use serde::Deserialize;

use super::DianpingState;
use super::envelope::{DianpingFailure, data};
use super::params::time;
use super::users::{DianpingBody, TokenHolder};
use crate::domain::LAST_ID;
use crate::http::audit_log::log_dianping_voucher;
use crate::store::dianping::{DianpingVoucher, SeckillPart};

/// A voucher about to be created.
#[derive(Deserialize, Validate)]
#[serde(rename_all = "camelCase")]
pub(super) struct VoucherFields {
    #[garde(range(min = 1, max = LAST_ID))]
    shop_id: u64,
    #[garde(length(chars, min = 1, max = 255))]
    title: String,
    #[garde(inner(length(chars, max = 255)))]
    sub_title: Option<String>,
    #[garde(inner(length(chars, max = 1024)))]
    rules: Option<String>,
    #[garde(range(max = LAST_ID))]
    pay_value: u64,
    #[garde(range(max = LAST_ID))]
    actual_value: u64,
}

/// A voucher with its flash sale.
#[derive(Deserialize, Validate)]
#[serde(rename_all = "camelCase")]
pub(super) struct SeckillVoucherFields {
    #[serde(flatten)]
    #[garde(dive)]
    voucher: VoucherFields,
    #[garde(range(max = i32::MAX.unsigned_abs()))]
    stock: u32,
    #[garde(length(max = 32))]
    begin_time: String,
    #[garde(length(max = 32))]
    end_time: String,
}

impl VoucherFields {
    fn with(self, seckill: Option<SeckillPart>) -> DianpingVoucher {
        let Self { shop_id, title, sub_title, rules, pay_value, actual_value } = self;
        DianpingVoucher { shop: shop_id, title, sub_title, rules, pay_value, actual_value, seckill }
    }
}

/// Creates an ordinary voucher.
pub(super) async fn create(
    State(state): State<DianpingState>,
    caller: TokenHolder,
    DianpingBody(voucher): DianpingBody<VoucherFields>,
) -> Result<Response, DianpingFailure> {
    write(state, caller, voucher.with(None)).await
}

/// Creates a voucher with a flash sale.
pub(super) async fn create_seckill(
    State(state): State<DianpingState>,
    caller: TokenHolder,
    DianpingBody(new): DianpingBody<SeckillVoucherFields>,
) -> Result<Response, DianpingFailure> {
    let begins = time("beginTime", &new.begin_time)?;
    let ends = time("endTime", &new.end_time)?;
    if begins >= ends {
        return Err(DianpingFailure::because("endTime: must be after beginTime"));
    }
    let seckill = SeckillPart { stock: new.stock, begins, ends };
    write(state, caller, new.voucher.with(Some(seckill))).await
}

/// In a task of its own: a client that hangs up leaves nothing half done.
async fn write(
    state: DianpingState,
    TokenHolder { user, .. }: TokenHolder,
    new: DianpingVoucher,
) -> Result<Response, DianpingFailure> {
    let DianpingState { api, own } = state;
    if !own.admins.contains(&user.id) {
        return Err(DianpingFailure::because("没有权限"));
    }
    let creating = async move {
        let created = own.vouchers.create(&new).await;
        if let Ok(id) = &created {
            log_dianping_voucher(user.id, *id, &new);
        }
        created
    };
    let created = api.sale.run_to_end(creating).await;
    Ok(data(created.ok_or(DianpingFailure::because("服务器异常"))??.0))
}
