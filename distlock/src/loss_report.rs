//! Why a hold was lost, and which owner has the lock now: logged once a minute for each name.

use std::time::Duration;

use crate::background::BackgroundTasks;
use crate::holder_reports::HolderReports;
use crate::{Lease, LockName, LockOptions, LossCause, Owner, RenewalKind};

/// What the report of a hold needs besides the cause.
pub(crate) struct LossReport {
    pub(crate) reports: HolderReports,
    pub(crate) background: BackgroundTasks,
    pub(crate) name: LockName,
    pub(crate) owner: Owner,
    pub(crate) options: LockOptions,
}

impl LossReport {
    /// Logs the loss in the background.
    pub(crate) fn log(self, cause: LossCause, held: Duration) {
        let Self { reports, background, name, owner, options } = self;
        if !reports.admits_loss(&name) {
            return;
        }
        let kind = reports.kind();
        let reason = reason((cause, held), kind, &options, reports.renewal());
        background.spawn(async move {
            let holder = reports.look(&name).await;
            // The server may still store the lost hold itself.
            let next = holder.filter(|holder| holder.owner.as_deref() != Some(owner.as_str()));
            let holder = next.map(|holder| holder.to_string());
            tracing::warn!(lock = %name, kind, %owner, holder, "lock was lost: {reason}");
        });
    }
}

fn reason(
    (cause, held): (LossCause, Duration),
    kind: &str,
    options: &LockOptions,
    renewal: RenewalKind,
) -> String {
    if let Some(most) = options.max_hold.filter(|most| held >= *most) {
        return format!("it was held for its `max_hold` of {} ms", most.as_millis());
    }
    let lease_ms = options.lease.length().as_millis();
    match (cause, options.lease, renewal) {
        (LossCause::Taken, ..) => "the server does not store the hold any more".to_owned(),
        (_, Lease::Renewed(_), RenewalKind::Yes | RenewalKind::Heartbeat) => {
            format!("its lease of {lease_ms} ms was not renewed in time")
        }
        (_, _, RenewalKind::No) => {
            format!("`{kind}` is not renewed; its lease of {lease_ms} ms ended")
        }
        _ => format!("its lease of {lease_ms} ms ended, and it was not to be renewed"),
    }
}
