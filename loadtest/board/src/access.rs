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

use crate::board_error::{BoardError, ErrorCode};

/// The header of the token; the query's name of it is `token`.
pub(crate) const TOKEN_HEADER: &str = "x-board-token";

/// The clients that may use the board.
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
    ) -> Option<BoardError> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let refused = |code, why: &str| Some(BoardError::new(code, why));
        let Some(host) = text(header::HOST.as_str()) else {
            return refused(ErrorCode::HostMissing, "the Host is missing");
        };
        if !self.hosts.iter().any(|own| own == host) {
            return refused(ErrorCode::ForeignHost, "the Host is not the address of this board");
        }
        let origin = text(header::ORIGIN.as_str());
        let is_own = |origin: &str| origin.strip_prefix("http://") == Some(host);
        let needs_origin = method != Method::GET && method != Method::HEAD;
        if origin.map_or(needs_origin, |origin| !is_own(origin)) {
            return refused(ErrorCode::ForeignOrigin, "the Origin is not this board");
        }
        let in_query = uri
            .query()
            .and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("token=")));
        let token = if needs_origin { text(TOKEN_HEADER) } else { in_query };
        if token == Some(&self.token) {
            return None;
        }
        let why = "the token is missing or wrong: open the address that was printed";
        refused(ErrorCode::WrongToken, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(method: &Method, path: &str, headers: &[(&str, &str)]) -> Option<ErrorCode> {
        let access = Access { token: "t".to_owned(), ..Access::new(([127, 0, 0, 1], 80).into()) };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: axum::http::HeaderName = name.parse().expect("a name");
            map.insert(name, value.parse().expect("a value"));
        }
        let refusal = access.refusal((method, &path.parse().expect("a path")), &map);
        refusal.map(|error| error.code)
    }

    #[test]
    fn a_page_of_another_site_and_one_without_the_token_are_refused() {
        let own = ("host", "127.0.0.1:80");
        assert_eq!(refusal(&Method::GET, "/?token=t", &[own]), None);
        assert_eq!(refusal(&Method::GET, "/?token=t", &[("host", "localhost:80")]), None);
        let rebound = refusal(&Method::GET, "/?token=t", &[("host", "evil.example:80")]);
        assert_eq!(rebound, Some(ErrorCode::ForeignHost));
        assert_eq!(refusal(&Method::GET, "/?token=t", &[]), Some(ErrorCode::HostMissing));
        for path in ["/", "/?token=", "/?token=u"] {
            assert_eq!(refusal(&Method::GET, path, &[own]), Some(ErrorCode::WrongToken), "{path}");
        }
        let token = (TOKEN_HEADER, "t");
        let post = |headers: &[(&str, &str)]| refusal(&Method::POST, "/fault", headers);
        assert_eq!(post(&[own, token, ("origin", "http://127.0.0.1:80")]), None);
        let foreign = Some(ErrorCode::ForeignOrigin);
        assert_eq!(post(&[own, token]), foreign);
        for origin in ["http://evil.example", "null", "http://localhost:80", "https://127.0.0.1:80"]
        {
            assert_eq!(post(&[own, token, ("origin", origin)]), foreign, "{origin}");
        }
        let without = post(&[own, ("origin", "http://127.0.0.1:80")]);
        assert_eq!(without, Some(ErrorCode::WrongToken));
    }
}
