//! Fencing tokens: a number per ownership that rises for ever, so that a resource can refuse a
//! holder that does not know that it has lost its lock.

use std::fmt;

use async_trait::async_trait;

use crate::{LockError, LockName};

/// A fencing token. Of two owners of one name the later one has the higher token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Mints tokens for mechanisms that have none of their own.
///
/// Each call must be one durable increment, strictly rising per name for ever: through a flushed
/// cache, a failover, a restart. A counter in Redis is no mint.
#[async_trait]
pub trait Mint: Send + Sync + 'static {
    /// The next token of that name.
    async fn next(&self, name: &LockName) -> Result<Token, LockError>;
}
