//! Requests as bytes, written into a connection's buffer.

use std::io::Write as _;

use http::HeaderValue;
use uuid::Uuid;

use crate::client::{Connection, Target};
use crate::tokens::User;

/// The purchase of one voucher: all of its bytes but the caller's token and the idempotency key.
#[derive(Debug)]
pub struct Purchase {
    head: Vec<u8>,
}

impl Purchase {
    /// A purchase of this voucher at this target.
    pub fn new(target: &Target, voucher: u64) -> Self {
        let mut head = format!("POST /api/vouchers/{voucher}/orders HTTP/1.1\r\nhost: ");
        head.push_str(target.host());
        head.push_str("\r\ncontent-length: 0\r\nauthorization: ");
        Self { head: head.into_bytes() }
    }

    /// Makes it the connection's next request.
    pub fn write(&self, connection: &mut Connection, user: &User, key: Option<Uuid>) {
        let request = connection.request();
        request.extend_from_slice(&self.head);
        request.extend_from_slice(user.authorization.as_bytes());
        if let Some(key) = key {
            request.extend_from_slice(b"\r\nidempotency-key: ");
            let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
            request.extend_from_slice(key.hyphenated().encode_lower(&mut text).as_bytes());
        }
        request.extend_from_slice(b"\r\n\r\n");
    }
}

/// Makes any other call the connection's next request; `head` is its first line.
pub fn write_call(
    connection: &mut Connection,
    head: &str,
    authorization: Option<&HeaderValue>,
    body: Option<&str>,
) {
    let target = connection.target().clone();
    let request = connection.request();
    // Writing to memory cannot fail.
    let _ = write!(request, "{head}\r\nhost: {}\r\n", target.host());
    if let Some(authorization) = authorization {
        request.extend_from_slice(b"authorization: ");
        request.extend_from_slice(authorization.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    if let Some(body) = body {
        let length = body.len();
        let _ = write!(request, "content-type: application/json\r\ncontent-length: {length}\r\n");
    }
    request.extend_from_slice(b"\r\n");
    request.extend_from_slice(body.unwrap_or_default().as_bytes());
}
