//! `seckill lock free`: frees a lock by force, and leaves a line in the audit trail.

use std::fs;

use distlock::{Guarantees, HoldKind, LockHolder, LockState, Locks, RenewalKind, guarantees};
use nix::unistd::{Uid, User, getuid};

use super::failure::{BAD_USAGE, Failure, UNUSABLE, ended};
use super::host_name;
use super::show::{inspect, open_one};
use super::snapshot_view as view;
use crate::config::LockFree;

/// Nothing was held, or another owner came first.
const NOTHING_FREED: u8 = 1;

/// Frees the lock. Returns the exit code, and the line for stderr if there is one.
pub async fn free(config: &LockFree) -> (u8, Option<String>) {
    ended(free_holders(config).await)
}

async fn free_holders(config: &LockFree) -> Result<u8, Failure> {
    let (name, kind) = (&config.lock.name, config.lock.kind);
    let locks = open_one(&config.lock).await?;
    let lock = inspect(&locks, &config.lock).await?;
    let holders = match &lock.state {
        LockState::Free => return Err(Failure::new(NOTHING_FREED, format!("{name} is not held"))),
        LockState::Unknown { reason, .. } => {
            return Err(Failure::new(UNUSABLE, format!("{name}: {reason}")));
        }
        LockState::Damaged(reason) => {
            let sentence = format!("{name}: {reason}; only its owner can know what to do with it");
            return Err(Failure::new(UNUSABLE, sentence));
        }
        LockState::Held(holders) | LockState::Partial(holders) => holders,
    };
    if !config.yes {
        let held: Vec<String> = holders.iter().map(view::holder).collect();
        let (held, risk) = (held.join("; "), risk(&guarantees(kind)));
        let sentence = format!("{name} ({kind}) is held by {held}. {risk}; --yes frees it");
        return Err(Failure::new(BAD_USAGE, sentence));
    }
    if !tracing::enabled!(target: "audit", tracing::Level::INFO) {
        let sentence =
            "--log (RUST_LOG) must let audit=info through: each freed hold leaves a line";
        return Err(Failure::new(BAD_USAGE, sentence));
    }
    let mut freed = 0;
    for holder in holders {
        freed += u32::from(free_one(config, &locks, holder).await?);
    }
    if freed == 0 {
        let sentence = format!("{name}: its holder ended meanwhile; nothing was freed");
        return Err(Failure::new(NOTHING_FREED, sentence));
    }
    Ok(0)
}

/// What may happen.
fn risk(of: &Guarantees) -> &'static str {
    match (of.hold, of.renewal) {
        (HoldKind::Transaction, _) => {
            "The server ends the connection of its transaction, and rolls its work back; if that \
             has just ended, it rolls back the next work of the connection"
        }
        (_, RenewalKind::Yes | RenewalKind::Heartbeat) => {
            "If it still works, it learns of the loss at its next renewal, and works beside the \
             next holder until then"
        }
        (_, RenewalKind::No | RenewalKind::NotApplicable) => {
            "If it still works, it does not notice, and works beside the next holder to its end"
        }
    }
}

async fn free_one(config: &LockFree, locks: &Locks, holder: &LockHolder) -> Result<bool, Failure> {
    let name = &config.lock.name;
    // Before the act as well: this process may end in the middle of it.
    record(config, holder, "begun");
    let freed = locks.force_release(name, &holder.id).await;
    let outcome = match &freed {
        Ok(true) => "done",
        Ok(false) => "gone",
        Err(_) => "unknown",
    };
    record(config, holder, outcome);
    freed.map_err(|error| Failure::about(name, &error))
}

/// Writes a line of the audit trail.
fn record(config: &LockFree, holder: &LockHolder, outcome: &str) {
    tracing::info!(
        target: "audit",
        actor = format!("{}@{}", user_name(getuid()), host_name()),
        login = login(config.sudo_user.as_deref()),
        action = "free_lock",
        lock = config.lock.name.as_str(),
        kind = %config.lock.kind,
        holder = view::holder(holder),
        reason = config.reason,
        outcome,
        "forced release"
    );
}

fn user_name(id: Uid) -> String {
    let user = User::from_uid(id).ok().flatten();
    user.map_or_else(|| format!("uid {id}"), |user| user.name)
}

/// The user that logged in; `actor` may be another one since, by `sudo`.
fn login(sudo_user: Option<&str>) -> Option<String> {
    let id = fs::read_to_string("/proc/self/loginuid").ok();
    login_of(id.as_deref(), sudo_user)
}

/// The login that the kernel knows, or else that of `sudo`. The kernel's id for none is all ones.
fn login_of(login_id: Option<&str>, sudo_user: Option<&str>) -> Option<String> {
    let id = login_id.and_then(|id| id.trim().parse().ok()).filter(|id| *id != u32::MAX);
    id.map(|id| user_name(Uid::from_raw(id))).or_else(|| sudo_user.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_is_that_of_the_kernel_or_else_the_user_of_sudo() {
        let root = user_name(Uid::from_raw(0));
        for (login_id, sudo_user, login) in [
            (Some("0\n"), Some("ann"), Some(root.as_str())),
            (Some("0"), None, Some(root.as_str())),
            (Some("4294967295"), Some("ann"), Some("ann")),
            (Some("4294967295"), None, None),
            (Some("no number"), Some("ann"), Some("ann")),
            (None, Some("ann"), Some("ann")),
            (None, None, None),
        ] {
            let found = login_of(login_id, sudo_user);
            assert_eq!(found.as_deref(), login, "{login_id:?} {sudo_user:?}");
        }
    }
}
