//! What a call to a server can end in. The texts stay inside: no answer carries SQL.

use sqlx::mysql::MySqlDatabaseError;

/// Which unique key a row ran into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplicate {
    /// The primary key.
    Primary,
    /// A key that stands for a rule of the business.
    Business,
    /// The ticket has ended already.
    Ticket,
    /// That of the requests: this user has used this `Idempotency-Key` before.
    Request,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The pool had no connection in time: the database is overloaded or cannot be reached.
    #[error("no database connection in time: overloaded, or not reachable")]
    PoolTimedOut,
    /// The server did not answer in time; the call may still take effect there.
    #[error("{server} did not answer in time")]
    TimedOut {
        /// `database` or `redis`.
        server: &'static str,
    },
    /// The server is away, or ended the connection.
    #[error("{server} is not available: {reason}")]
    Unavailable {
        /// `database` or `redis`.
        server: &'static str,
        /// What was seen, for the log.
        reason: String,
    },
    /// The server refuses the login, or the database that was named; trying again does not help.
    #[error("{server} denies access: {reason}")]
    AccessDenied {
        /// `database` or `redis`.
        server: &'static str,
        /// The server's words.
        reason: String,
    },
    /// A deadlock (1213) or a changed snapshot (1020): the transaction was rolled back and may be
    /// retried.
    #[error("the transaction met another one and was rolled back")]
    Conflict,
    /// A row stayed locked for too long (1205). Only the statement was undone: roll back.
    #[error("a row stayed locked for too long")]
    LockWait,
    /// A row with that key exists.
    #[error("a row with that key exists")]
    Duplicate(Duplicate),
    /// Fewer units are left than an order or a group of them asked for.
    #[error("fewer units are left than were asked for")]
    InsufficientStock,
    /// Anything else is a defect.
    #[error("unexpected answer of a server: {0}")]
    Unexpected(String),
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::PoolTimedOut => Self::PoolTimedOut,
            sqlx::Error::Io(_)
            | sqlx::Error::PoolClosed
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::WorkerCrashed => {
                Self::Unavailable { server: "database", reason: error.to_string() }
            }
            sqlx::Error::Database(answer) => match answer.try_downcast_ref() {
                Some(answer) => from_answer(answer),
                None => Self::Unexpected(error.to_string()),
            },
            _ => Self::Unexpected(error.to_string()),
        }
    }
}

fn from_answer(answer: &MySqlDatabaseError) -> StoreError {
    from_number(answer.number(), answer.message())
}

fn from_number(number: u16, text: &str) -> StoreError {
    match number {
        1213 | 1020 => StoreError::Conflict,
        1205 => StoreError::LockWait,
        // Too large a number: what an order or a group asks with whether it has got its units.
        1690 => StoreError::InsufficientStock,
        1062 => StoreError::Duplicate(duplicate_key(text)),
        // Wrong password, no right to the database, no such database, no such way to log in.
        1044 | 1045 | 1049 | 1698 => {
            StoreError::AccessDenied { server: "database", reason: text.to_owned() }
        }
        // Too many connections, shutting down, killed, interrupted, read only.
        1040 | 1053 | 1152 | 1184 | 1203 | 1290 | 1317 | 1836 | 1927 | 3024 | 1969
        // A front has no way to a shard, or lost it.
        | 1429 | 12701
        // A node of Galera without a quorum, or one that has not joined yet.
        | 1047
        // Trouble on the way, and a session that was silent for too long: the server has ended the
        // connection, and may have said so before it was asked.
        | 1158..=1161 | 4031 => {
            StoreError::Unavailable { server: "database", reason: text.to_owned() }
        }
        number => StoreError::Unexpected(format!("{number}: {text}")),
    }
}

/// `Duplicate entry '1' for key 'orders.PRIMARY'` in MySQL, `... for key 'PRIMARY'` in MariaDB.
fn duplicate_key(message: &str) -> Duplicate {
    let key = message.trim_end_matches('\'').rsplit('\'').next().unwrap_or_default();
    match key.rsplit('.').next() {
        Some("PRIMARY") => Duplicate::Primary,
        Some("uq_tickets_ticket") => Duplicate::Ticket,
        Some("uq_idempotency_keys_user_key") => Duplicate::Request,
        _ => Duplicate::Business,
    }
}

impl From<redis::RedisError> for StoreError {
    fn from(error: redis::RedisError) -> Self {
        // A reply that the server meant is a defect of ours; everything else is the connection.
        match error.kind() {
            _ if denies_access(&error) => {
                Self::AccessDenied { server: "redis", reason: error.to_string() }
            }
            redis::ErrorKind::UnexpectedReturnType | redis::ErrorKind::Client => {
                Self::Unexpected(error.to_string())
            }
            _ if error.is_timeout() => Self::TimedOut { server: "redis" },
            _ => Self::Unavailable { server: "redis", reason: error.to_string() },
        }
    }
}

/// How redis-rs begins what it says of a refused SELECT: for want of a password, or of that
/// database.
const SELECT_REFUSED: &str = "Redis server refused to switch database";

fn denies_access(error: &redis::RedisError) -> bool {
    error.kind() == redis::ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"))
        || error.to_string().starts_with(SELECT_REFUSED)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loss of a connection is no defect of the order, and the connection is discarded.
    #[test]
    fn errors_of_a_server_that_ends_the_connection_are_unavailable() {
        for number in [1047, 1053, 1152, 1158, 1159, 1160, 1161, 1184, 1429, 1927, 4031, 12701] {
            let error = from_number(number, "good-bye");
            assert!(matches!(error, StoreError::Unavailable { .. }), "{number}: {error}");
        }
        assert!(matches!(from_number(1644, "poison"), StoreError::Unexpected(_)));
    }

    #[test]
    fn the_key_of_a_duplicate_is_recognized_as_both_databases_spell_it() {
        for (key, expected) in [
            ("PRIMARY", Duplicate::Primary),
            ("orders.PRIMARY", Duplicate::Primary),
            ("uq_orders_user_voucher", Duplicate::Business),
            ("orders.uq_orders_user_voucher", Duplicate::Business),
            ("uq_tickets_ticket", Duplicate::Ticket),
            ("tickets.uq_tickets_ticket", Duplicate::Ticket),
            ("uq_idempotency_keys_user_key", Duplicate::Request),
            ("idempotency_keys.uq_idempotency_keys_user_key", Duplicate::Request),
        ] {
            let message = format!("Duplicate entry '1-2' for key '{key}'");
            assert_eq!(duplicate_key(&message), expected, "{message}");
        }
    }
}
