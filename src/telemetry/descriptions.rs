//! What each metric is: the `# HELP` line of `/metrics`.

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram};

const COUNTERS: [(&str, &str); 26] = [
    ("seckill_orders_total", "Purchases by outcome"),
    ("seckill_groups_total", "Groups of orders that were begun"),
    ("seckill_batch_failures_total", "Batch transactions that failed, by cause"),
    ("seckill_settlements_total", "Orders paid and cancelled, by outcome"),
    ("seckill_orders_timed_out_total", "Orders that were not paid in time"),
    ("seckill_charges_resumed_total", "Open charges that housekeeping resumed, by outcome"),
    ("seckill_http_requests_total", "Requests by route, method and status"),
    ("seckill_queue_requests_total", "Purchases asked of the queue, by outcome of the admission"),
    ("seckill_queue_taken_over_total", "Entries taken over from a replica that showed no work"),
    ("seckill_queue_stale_total", "Entries of an epoch of the sale that has ended"),
    ("seckill_queue_unreadable_total", "Entries of a queue that could not be read"),
    ("seckill_queue_lock_wait_aborts_total", "Tries ended at a locked row, by mode"),
    ("seckill_tickets_total", "Tickets that ended, by state"),
    ("seckill_logins_failed_total", "Logins and requests for a code that failed, by reason"),
    ("seckill_requests_denied_total", "Requests answered 401 or 403, by reason"),
    ("seckill_token_revocation_reads_failed_total", "Failed reads of revoked tokens"),
    ("distlock_attempts_total", "Requests for a lock to its server, by kind"),
    ("distlock_acquisitions_total", "Locks acquired, by kind"),
    (
        "distlock_contended_attempts_total",
        "Attempts refused because another owner held the lock, by kind",
    ),
    ("distlock_timeouts_total", "Waits that ended without the lock, by kind"),
    ("distlock_errors_total", "Requests that the lock's server failed or did not answer, by kind"),
    ("distlock_stuck_total", "Waits that ended at a key that no holder frees, by kind and reason"),
    ("distlock_losses_total", "Locks lost before their release, by kind"),
    ("distlock_deadlocks_total", "Deadlocks seen among tasks that wait for locks"),
    (
        "distlock_cleanups_dropped_total",
        "Releases and abandoned attempts dropped by a full backlog",
    ),
    ("distlock_failpoints_reached_total", "Failpoints reached, by point (laboratory)"),
];

/// Counters whose first event is an alert. Prometheus sees an increase only of what was there.
const BEGIN_AT_ZERO: [&str; 3] = [
    "seckill_queue_taken_over_total",
    "seckill_queue_unreadable_total",
    "seckill_token_revocation_reads_failed_total",
];

const GAUGES: [(&str, &str); 3] = [
    ("seckill_purchases_in_progress", "Purchases that were begun and have not ended"),
    ("seckill_token_revocations", "Users whose tokens were revoked, in memory"),
    ("seckill_replica_info", "Always 1; its label is the name of the replica"),
];

const SECONDS: [(&str, &str); 8] = [
    ("seckill_order_seconds", "Time of a purchase up to its outcome"),
    ("seckill_order_part_seconds", "Time of each part of a purchase"),
    ("seckill_http_request_seconds", "Time of a request"),
    ("seckill_queue_request_seconds", "Time of an admission to the queue"),
    ("distlock_wait_seconds", "Time until a lock was acquired or the wait ended, by kind"),
    ("distlock_hold_seconds", "Time for which a lock was held, by kind"),
    ("distlock_hand_off_seconds", "From the message of a release to the waiter's hold, by kind"),
    ("distlock_renewal_delay_seconds", "How late renewals began, by kind"),
];

/// Describes all metrics to the recorder of the process, and begins some at 0.
pub(super) fn describe() {
    for (name, help) in COUNTERS {
        describe_counter!(name, help);
    }
    for (name, help) in GAUGES {
        describe_gauge!(name, help);
    }
    for (name, help) in SECONDS {
        describe_histogram!(name, Unit::Seconds, help);
    }
    for name in BEGIN_AT_ZERO {
        counter!(name).increment(0);
    }
    counter!("seckill_orders_total", "outcome" => "unknown").increment(0);
}
