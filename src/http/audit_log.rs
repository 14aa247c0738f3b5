//! Logs each change by an admin with the target `audit`, and counts refusals.

use super::auth::Admin;
use super::error::ApiError;
use super::views::VoucherView;
use crate::domain::{UserId, VoucherId};
use crate::store::dianping::DianpingVoucher;
use crate::store::{ChangedVoucher, VoucherReading};
use crate::telemetry::{login_failed, request_denied};
use crate::token::BadToken;

/// The id of an admin's request.
#[derive(Clone)]
pub(super) struct RequestId(pub(super) String);

/// A change of a voucher by an admin.
pub(super) struct VoucherChange {
    pub(super) action: &'static str,
    /// The units that were added.
    pub(super) units: Option<u32>,
}

impl VoucherChange {
    /// Writes the log line, with the voucher as the transaction of the change read it.
    pub(super) fn log(&self, admin: &Admin, changed: &ChangedVoucher) {
        let json = |reading: &Option<VoucherReading>| {
            reading.clone().map(|(voucher, now)| {
                serde_json::to_string(&VoucherView::new(voucher, now)).unwrap_or_default()
            })
        };
        tracing::info!(
            target: "audit",
            actor = %admin.user,
            action = self.action,
            voucher = %changed.id,
            units = self.units,
            before = json(&changed.before),
            after = json(&changed.after),
            outcome = if changed.is_certain { "done" } else { "unknown" },
            request_id = admin.request_id,
            "voucher changed by an admin"
        );
    }
}

/// Writes the log line of a voucher that was created by the API of hm-dianping.
pub(super) fn log_dianping_voucher(actor: UserId, voucher: VoucherId, new: &DianpingVoucher) {
    tracing::info!(target: "audit", %actor, action = "create", %voucher, after = ?new,
        "voucher of hm-dianping created by an admin");
}

/// Counts failed logins, and requests without a valid token or the needed role.
pub(super) fn count_refusal(error: &ApiError) {
    use ApiError as E;
    match error {
        E::WrongCode => login_failed("wrong_code"),
        E::TooManyCodes { .. } => login_failed("too_many_codes"),
        E::LoginUnavailable => login_failed("unavailable"),
        E::Unauthorized => request_denied("no_token"),
        E::BadToken(BadToken::Expired) => request_denied("expired"),
        E::BadToken(BadToken::Invalid) => request_denied("invalid"),
        E::BadToken(BadToken::Revoked) => request_denied("revoked"),
        E::Forbidden => request_denied("no_admin"),
        E::BadSignature => request_denied("bad_signature"),
        _ => {}
    }
}
