//! Snapshots of locks as JSON, and as text for people.

use std::time::Duration;

use distlock::{
    LockHolder, LockSnapshot, LockState, LockWaiter, LockWaiters, OwnerTag, RemainingLease,
};
use serde_json::{Value, json};

/// One lock as JSON. `kinds` are those that it may be of.
pub(super) fn as_json(lock: &LockSnapshot, kinds: &[&str]) -> Value {
    json!({
        "name": lock.name,
        "kinds": kinds,
        "state": state(&lock.state),
        "reason": reason(&lock.state),
        "holders": lock.state.holders().iter().map(holder_as_json).collect::<Vec<_>>(),
        "waiters": waiters_as_json(lock),
        "renewal": lock.renewal.to_string(),
    })
}

/// The word for a state.
pub(super) fn state(state: &LockState) -> &'static str {
    match state {
        LockState::Free => "free",
        LockState::Held(_) => "held",
        LockState::Partial(_) => "partial",
        LockState::Unknown { .. } => "unknown",
        LockState::Damaged(_) => "damaged",
    }
}

/// Why a state is unknown or damaged.
pub(super) fn reason(state: &LockState) -> Option<&str> {
    match state {
        LockState::Unknown { reason, .. } => Some(reason),
        LockState::Damaged(reason) => Some(reason),
        LockState::Free | LockState::Held(_) | LockState::Partial(_) => None,
    }
}

fn holder_as_json(holder: &LockHolder) -> Value {
    json!({
        "id": holder.id,
        "owner": holder.owner,
        "tag": holder.tag.as_ref().map(tag_as_json),
        "holds": holder.holds,
        "shares": holder.shares,
        "lease": lease_as_json(holder.lease),
        "held_ms": holder.held_for.map(milliseconds),
        "token": holder.token.map(|token| token.0.to_string()),
        "place": holder.place,
        "servers": holder.servers,
    })
}

fn tag_as_json(tag: &OwnerTag) -> Value {
    json!({
        "label": tag.label,
        "host": tag.host,
        "process": tag.process,
        "asked_at_ms": tag.asked_at_ms,
    })
}

fn lease_as_json(lease: RemainingLease) -> Value {
    match lease {
        RemainingLease::Ends(left) => json!({"kind": "ends", "left_ms": milliseconds(left)}),
        RemainingLease::NoExpiry => json!({"kind": "no_expiry"}),
        RemainingLease::Session => json!({"kind": "session"}),
        RemainingLease::ClientClock(until_ms) => {
            json!({"kind": "client_clock", "until_ms": until_ms})
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn waiters_as_json(lock: &LockSnapshot) -> Value {
    let (is_ordered, waiters) = match &lock.waiters {
        LockWaiters::Unknown => return json!({"known": false}),
        LockWaiters::Ordered(waiters) => (true, waiters),
        LockWaiters::Unordered(waiters) => (false, waiters),
    };
    json!({
        "known": true,
        "ordered": is_ordered,
        "complete": !lock.has_more_waiters,
        "ids": waiters.iter().map(|one| &one.id).collect::<Vec<_>>(),
        "tags": waiters.iter().map(|one| one.tag.as_ref().map(tag_as_json)).collect::<Vec<_>>(),
    })
}

/// How long a hold lasts, in words.
pub(super) fn lease(lease: RemainingLease) -> String {
    match lease {
        RemainingLease::Ends(left) => format!("{:.1} s", left.as_secs_f64()),
        RemainingLease::NoExpiry => "no expiry".to_owned(),
        RemainingLease::Session => "session".to_owned(),
        RemainingLease::ClientClock(until_ms) => format!("until {until_ms} by its own clock"),
    }
}

/// How many wait, in words.
pub(super) fn waiters(lock: &LockSnapshot) -> String {
    let more = if lock.has_more_waiters { "+" } else { "" };
    match &lock.waiters {
        LockWaiters::Unknown => "?".to_owned(),
        LockWaiters::Ordered(all) | LockWaiters::Unordered(all) => format!("{}{more}", all.len()),
    }
}

/// Who a holder is: what its owner tells of itself, or else its id.
pub(super) fn owner(holder: &LockHolder) -> String {
    let id = || holder.owner.clone().unwrap_or_else(|| holder.id.clone());
    holder.tag.as_ref().map_or_else(id, ToString::to_string)
}

/// One holder in a line.
pub(super) fn holder(holder: &LockHolder) -> String {
    let mut parts = vec![holder.owner.clone().unwrap_or_else(|| holder.id.clone())];
    parts.extend(holder.tag.as_ref().map(ToString::to_string));
    if holder.owner.as_ref().is_some_and(|owner| *owner != holder.id) {
        parts.push(format!("as {}", holder.id));
    }
    parts.extend(holder.holds.map(|holds| format!("entered {holds}x")));
    if holder.shares {
        parts.push("reads".to_owned());
    }
    parts.push(format!("lease {}", lease(holder.lease)));
    parts.extend(holder.held_for.map(|time| format!("held for {:.1} s", time.as_secs_f64())));
    parts.extend(holder.token.map(|token| format!("token {token}")));
    parts.extend(holder.place.as_ref().map(|place| format!("at {place}")));
    if holder.servers > 1 {
        parts.push(format!("on {} servers", holder.servers));
    }
    parts.join(", ").escape_debug().to_string()
}

/// One waiter in a line.
fn waiter(LockWaiter { id, tag }: &LockWaiter) -> String {
    tag.as_ref().map_or_else(|| id.clone(), |tag| format!("{id}, {tag}"))
}

/// All that is known of a lock, as text.
pub(super) fn as_text(lock: &LockSnapshot) -> String {
    let mut lines = vec![
        format!("name:    {}", lock.name.escape_debug()),
        format!("kind:    {}", lock.kind),
        format!("state:   {}", state(&lock.state)),
    ];
    lines.extend(reason(&lock.state).map(|reason| format!("reason:  {reason}")));
    lines.extend(lock.state.holders().iter().map(|one| format!("holder:  {}", holder(one))));
    lines.push(format!("renewal: {}", lock.renewal));
    let count = waiters(lock);
    lines.push(match &lock.waiters {
        LockWaiters::Unknown => "waiters: not known to the server".to_owned(),
        LockWaiters::Ordered(_) => format!("waiters: {count}, in order"),
        LockWaiters::Unordered(_) => format!("waiters: {count}"),
    });
    if let LockWaiters::Ordered(all) | LockWaiters::Unordered(all) = &lock.waiters {
        lines.extend(all.iter().map(|one| format!("  {}", waiter(one).escape_debug())));
    }
    lines.join("\n")
}
