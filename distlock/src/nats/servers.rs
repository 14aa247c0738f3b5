//! The addresses of NATS servers, the login at them, and a connection.

use std::time::Duration;

use async_nats::{Client, ConnectErrorKind, ConnectOptions, ServerAddr};

use super::bucket::{CALL_TIMEOUT, NatsError};
use crate::LockError;
use crate::percent_encoding::decode;

/// A server that leaves two of these unanswered is left.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// The longest pause before the next try to connect.
const MAX_RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// The form of a list.
const FORM: &str = "must be nats://[user:password@]host:port[,nats://...]";

/// The servers of one NATS system.
#[derive(Clone)]
pub(crate) struct NatsServers {
    /// Without user and password: the client logs addresses.
    addresses: Vec<ServerAddr>,
    /// User and password at all of them.
    login: Option<[String; 2]>,
}

impl NatsServers {
    /// Reads `nats://user:password@host:port,nats://...`. An error shows no word of it, which may
    /// have a password anywhere.
    pub(crate) fn parse(list: &str) -> Result<Self, LockError> {
        let (mut addresses, mut logins) = (Vec::new(), Vec::new());
        for text in list.split(',') {
            let address: ServerAddr = text.trim().parse().map_err(|_| refusal(FORM))?;
            if address.scheme() != "nats" {
                let limit = "must be nats://, without TLS, which these locks do not speak";
                return Err(refusal(limit));
            }
            let mut url = address.into_inner();
            let is_bare = matches!(url.path(), "" | "/") && url.query().is_none();
            if url.host_str().is_none_or(str::is_empty) || url.port().is_none() || !is_bare {
                return Err(refusal(FORM));
            }
            let password = url.password().unwrap_or_default().to_owned();
            logins.push([url.username().to_owned(), password]);
            if url.set_username("").is_err() || url.set_password(None).is_err() {
                return Err(refusal(FORM));
            }
            addresses.push(ServerAddr::from_url(url).map_err(|_| refusal(FORM))?);
        }
        Ok(Self { addresses, login: only_login(logins)? })
    }

    /// Connects to one of them.
    pub(crate) async fn connect(self) -> Result<Client, NatsError> {
        let mut options = ConnectOptions::new()
            .name("distlock")
            .connection_timeout(CALL_TIMEOUT)
            .request_timeout(Some(CALL_TIMEOUT))
            .ping_interval(PING_INTERVAL)
            .reconnect_delay_callback(reconnect_pause);
        if let Some([user, password]) = self.login {
            options = options.user_and_password(user, password);
        }
        options.connect(self.addresses).await.map_err(|error| match error.kind() {
            ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                let reason = "NATS refused the user or the password".to_owned();
                NatsError::Refused(LockError::AccessDenied(reason))
            }
            _ => NatsError::Unanswered(error.to_string()),
        })
    }
}

fn refusal(limit: &str) -> LockError {
    LockError::BadRequest { field: "NATS servers", limit: limit.to_owned() }
}

/// The client sends one login to all servers, whatever their addresses say.
fn only_login(logins: Vec<[String; 2]>) -> Result<Option<[String; 2]>, LockError> {
    let mut logins = logins.into_iter();
    let first = logins.next().unwrap_or_default();
    if logins.any(|other| other != first) {
        return Err(refusal("must have the same user and password in all addresses"));
    }
    match first.map(|text| decode(&text)) {
        [Some(user), Some(password)] => Ok((!user.is_empty()).then_some([user, password])),
        _ => Err(refusal("must have user and password with other characters as %XX")),
    }
}

fn reconnect_pause(attempts: usize) -> Duration {
    let doublings = u32::try_from(attempts.min(10)).unwrap_or(10);
    Duration::from_millis(1 << doublings).min(MAX_RECONNECT_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_kept_beside_addresses_that_do_not_have_it() {
        let servers = NatsServers::parse("nats://m%40e:p%3A@a:1,nats://m%40e:p%3A@b:2").unwrap();
        assert_eq!(servers.login, Some(["m@e".to_owned(), "p:".to_owned()]));
        let addresses = format!("{:?}", servers.addresses);
        assert!(!addresses.contains("p%3A") && !addresses.contains("m%40e"), "{addresses}");
        assert!(NatsServers::parse("a:1,b:2").unwrap().login.is_none());
    }
}
