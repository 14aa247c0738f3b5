//! Which requests the board answers. Only a page that was opened with the token, on this machine,
//! may read or do anything:
//!
//! - the `Host` must be the board's own address, so that no name of another site can lead here (DNS
//!   rebinding);
//! - a `POST` must have the board's own `Origin`;
//! - everything needs the token of the printed address, in the query or in a header.

use std::net::SocketAddr;

use axum::http::{HeaderMap, Method, Uri, header};
use uuid::Uuid;

/// The header of the token; the query's name of it is `token`.
pub(crate) const TOKEN_HEADER: &str = "x-board-token";

/// Who may use the board.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    hosts: [String; 2],
    token: String,
}

impl Access {
    /// Access to a board at that address, with a new token.
    pub(crate) fn new(address: SocketAddr) -> Self {
        let port = address.port();
        let hosts = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
        Self { hosts, token: Uuid::new_v4().simple().to_string() }
    }

    /// The address of the page.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/?token={}", self.hosts[0], self.token)
    }

    /// Why the request is refused, if it is.
    pub(crate) fn refusal(
        &self,
        (method, uri): (&Method, &Uri),
        headers: &HeaderMap,
    ) -> Option<&'static str> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let Some(host) = text(header::HOST.as_str()) else { return Some("the Host is missing") };
        if !self.hosts.iter().any(|own| own == host) {
            return Some("the Host is not the address of this board");
        }
        let origin = text(header::ORIGIN.as_str());
        let is_own = |origin: &str| origin.strip_prefix("http://") == Some(host);
        let needs_origin = method != Method::GET && method != Method::HEAD;
        if origin.map_or(needs_origin, |origin| !is_own(origin)) {
            return Some("the Origin is not this board");
        }
        let in_query = uri
            .query()
            .and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("token=")));
        let token = if needs_origin { text(TOKEN_HEADER) } else { in_query };
        (token != Some(&self.token))
            .then_some("the token is missing or wrong: open the address that was printed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(method: &Method, path: &str, headers: &[(&str, &str)]) -> Option<&'static str> {
        let access = Access { token: "t".to_owned(), ..Access::new(([127, 0, 0, 1], 80).into()) };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: axum::http::HeaderName = name.parse().expect("a name");
            map.insert(name, value.parse().expect("a value"));
        }
        access.refusal((method, &path.parse().expect("a path")), &map)
    }

    #[test]
    fn a_page_of_another_site_and_one_without_the_token_are_refused() {
        let own = ("host", "127.0.0.1:80");
        assert_eq!(refusal(&Method::GET, "/?token=t", &[own]), None);
        assert_eq!(refusal(&Method::GET, "/?token=t", &[("host", "localhost:80")]), None);
        let told = |refusal: Option<&'static str>| refusal.expect("refused").to_owned();
        let rebound = refusal(&Method::GET, "/?token=t", &[("host", "evil.example:80")]);
        assert!(told(rebound).contains("Host"));
        assert!(told(refusal(&Method::GET, "/?token=t", &[])).contains("Host"));
        for path in ["/", "/?token=", "/?token=u"] {
            assert!(told(refusal(&Method::GET, path, &[own])).contains("token"), "{path}");
        }
        let token = (TOKEN_HEADER, "t");
        let post = |headers: &[(&str, &str)]| refusal(&Method::POST, "/fault", headers);
        assert_eq!(post(&[own, token, ("origin", "http://127.0.0.1:80")]), None);
        assert!(told(post(&[own, token])).contains("Origin"));
        for origin in ["http://evil.example", "null", "http://localhost:80", "https://127.0.0.1:80"]
        {
            assert!(told(post(&[own, token, ("origin", origin)])).contains("Origin"), "{origin}");
        }
        let without = post(&[own, ("origin", "http://127.0.0.1:80")]);
        assert!(told(without).contains("token"));
    }
}
