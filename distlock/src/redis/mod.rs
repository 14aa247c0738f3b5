//! Mechanisms that live in Redis. All of them share one reconnecting connection.

pub(crate) mod lua_release;

/// The connection that the mechanisms share; clones use the same socket.
pub type RedisConnection = redis::aio::ConnectionManager;
