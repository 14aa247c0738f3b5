//! The addresses of a cluster's members, and the user whom they know.

use std::time::Duration;

use tonic::transport::Endpoint;

use super::messages::AuthenticateRequest;
use crate::LockError;
use crate::percent_encoding::decode;

/// What a list of endpoints names.
pub(crate) struct Endpoints {
    pub(crate) members: Vec<Endpoint>,
    /// Who asks, if the list says so.
    pub(crate) login: Option<AuthenticateRequest>,
}

impl Endpoints {
    /// Reads `user:password@host:port,host:port`. An error says what is wrong without a word of the
    /// list, which may have a password anywhere.
    pub(crate) fn parse(list: &str) -> Result<Self, LockError> {
        let list = list.trim();
        if list.split(',').any(|text| text.trim().starts_with("https://")) {
            return Err(refusal("must be without TLS (https://), which these locks do not speak"));
        }
        let list = list.strip_prefix("http://").unwrap_or(list);
        let (login, hosts) = match list.rsplit_once('@') {
            None => (None, list),
            Some((user, hosts)) => (Some(login(user)?), hosts),
        };
        let members =
            hosts.split(',').map(|host| endpoint(host.trim())).collect::<Result<_, _>>()?;
        Ok(Self { members, login })
    }

    /// How long to wait for a connection to one of them.
    pub(crate) fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        let members = self.members.into_iter();
        self.members = members.map(|member| member.connect_timeout(timeout)).collect();
        self
    }
}

fn refusal(limit: &str) -> LockError {
    LockError::BadRequest { field: "etcd endpoints", limit: limit.to_owned() }
}

/// Reads `user:password`, before which all members are asked.
fn login(text: &str) -> Result<AuthenticateRequest, LockError> {
    let refuse = || {
        refusal(
            "must have user:password before the first host alone, other signs than letters, \
                 digits, '-', '.', '_' and '~' as %XX",
        )
    };
    let parts = text.split_once(':').ok_or_else(refuse)?;
    let (name, password) = (decode(parts.0), decode(parts.1));
    match (name, password) {
        (Some(name), Some(password)) if !name.is_empty() => {
            Ok(AuthenticateRequest { name, password })
        }
        _ => Err(refuse()),
    }
}

fn endpoint(text: &str) -> Result<Endpoint, LockError> {
    let refuse = || refusal("must be [user:password@]host:port[,host:port...]");
    let address = text.strip_prefix("http://").unwrap_or(text);
    let has_port = address
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if !has_port || address.contains('/') {
        return Err(refuse());
    }
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|_| refuse())?;
    Ok(endpoint.tcp_nodelay(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_addresses_with_ports_and_without_tls() {
        let list = Endpoints::parse("a:2379, http://b:2379,[::1]:2379").unwrap();
        assert!(list.members.len() == 3 && list.login.is_none());
        for bad in ["", "a", "a:", ":1", "a:x", "https://a:1", "a:1,", "a:1/b", "a b:1"] {
            let refused = Endpoints::parse(bad).err();
            assert!(matches!(refused, Some(LockError::BadRequest { .. })), "{bad}: {refused:?}");
        }
    }

    #[test]
    fn user_and_password_stand_once_before_all_hosts() {
        for list in ["m%40e:p%25%3A%2C@a:1,b:2", "http://m%40e:p%25%3A%2C@a:1,http://b:2"] {
            let Endpoints { members, login } = Endpoints::parse(list).unwrap();
            let login = login.expect("a login");
            assert_eq!((members.len(), &*login.name, &*login.password), (2, "m@e", "p%:,"));
        }
    }

    #[test]
    fn an_error_shows_nothing_of_the_list() {
        let secret = "s3cret";
        for bad in [
            "me:s3cret@a",
            "me:s3cret",
            "s3cret@a:1",
            ":s3cret@a:1",
            "me:s3cret%@a:1",
            "me:s3cret%f@a:1",
            "me:s3cret%ff@a:1",
            "me:s3:cret,s3cret@a:1",
            "me:s3cret@a:1,me:s3cret@b:2",
            "https://me:s3cret@a:1",
            "me:s3cret@https://a:1",
        ] {
            let refused = Endpoints::parse(bad).err().map(|error| error.to_string());
            let text = refused.unwrap_or_else(|| panic!("accepted: {bad}"));
            assert!(text.starts_with("etcd endpoints: must "), "{text}");
            assert!(!text.contains(secret) && !text.contains("s3"), "{text}");
        }
    }
}
