//! Who requests what: every user sends `per_user` requests for one voucher at the same moment.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::load::client::Target;
use crate::load::tokens::User;

/// Most requests one load may have: about 50 bytes of record are kept for each until the verdict.
pub const MAX_REQUESTS: usize = 1_000_000;
/// Most connections one load may open.
pub const MAX_CONNECTIONS: usize = 4096;
/// Most simultaneous requests of one user.
pub const MAX_PER_USER: usize = 16;

/// One closed-loop load.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where the requests go.
    pub target: Arc<Target>,
    /// The voucher that everybody wants.
    pub voucher: String,
    /// Who wants it.
    pub users: Arc<[User]>,
    /// Simultaneous requests of each user, each with an idempotency key of its own.
    pub per_user: usize,
    /// Connections that are kept busy.
    pub connections: usize,
    /// When a request without an answer is given up.
    pub timeout: Duration,
}

impl Plan {
    /// Checks the bounds: enough connections for one user, and no more of anything than can be
    /// kept.
    pub fn check(&self) -> Result<()> {
        let wrong = |text: String| Err(Error::Usage(text));
        if !(1..=MAX_PER_USER).contains(&self.per_user) {
            return wrong(format!("requests per user must be 1 to {MAX_PER_USER}"));
        }
        if self.connections < self.per_user || self.connections > MAX_CONNECTIONS {
            let least = self.per_user;
            return wrong(format!(
                "connections must be {least} (one user's requests) to {MAX_CONNECTIONS}"
            ));
        }
        if self.requests() > MAX_REQUESTS {
            let requests = self.requests();
            return wrong(format!(
                "{requests} requests are more than the {MAX_REQUESTS} a load may have"
            ));
        }
        if self.timeout.is_zero() {
            return wrong("the time-out must be at least one second".to_owned());
        }
        Ok(())
    }

    /// Requests in total.
    pub fn requests(&self) -> usize {
        self.users.len().saturating_mul(self.per_user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::tokens;

    fn plan(per_user: usize, connections: usize) -> Plan {
        Plan {
            target: Target::parse("http://127.0.0.1:1").expect("target"),
            voucher: "1".into(),
            users: tokens::parse(r#"{"user_id":"1","token":"a"}"#).expect("tokens").into(),
            per_user,
            connections,
            timeout: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_load_beyond_its_bounds_is_a_usage_error() {
        assert!(plan(3, 96).check().is_ok());
        for (per_user, connections) in [(0, 96), (17, 96), (3, 2), (3, 5000)] {
            let error = plan(per_user, connections).check().expect_err("out of bounds");
            assert_eq!(error.exit_code(), 2);
        }
    }
}
