//! Fencing tokens: a number that rises with each ownership. A resource refuses a lower one, and so
//! a holder that has lost its lock without noticing.

use std::fmt;

use futures_util::future::BoxFuture;

use crate::{LockError, LockName};

/// A fencing token. Of two owners of one name the later one has the higher token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Issues fencing tokens for mechanisms that have none of their own.
///
/// Each call must be one durable increment. Tokens of a name rise strictly, through a flushed
/// cache, a failover and a restart. A counter in Redis does not fulfil that.
pub trait TokenIssuer: Send + Sync + 'static {
    /// The next token of that name.
    fn next<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Token, LockError>>;
}
