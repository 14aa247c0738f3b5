//! The web page, embedded in the binary.

use axum::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, Method, Uri};
use axum::response::{IntoResponse, Response};
use rust_embed::{EmbeddedFile, RustEmbed};

use super::error::ApiError;
use super::success::not_modified;

#[derive(RustEmbed)]
#[folder = "static/"]
struct PageFiles;

/// A file of the page, or 404. Browsers revalidate it each time.
pub(super) async fn file(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let path = match uri.path() {
        "/" => "index.html",
        path => path.trim_start_matches('/'),
    };
    let Some(file) = PageFiles::get(path) else { return ApiError::NotFound.into_response() };
    if method != Method::GET && method != Method::HEAD {
        return ([(ALLOW, "GET,HEAD")], ApiError::MethodNotAllowed).into_response();
    }
    let tag = tag(&file);
    if headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        return not_modified();
    }
    let kind = match file.metadata.mimetype() {
        text if text.starts_with("text/") => format!("{text}; charset=utf-8"),
        other => other.to_owned(),
    };
    let headers = [(CONTENT_TYPE, kind), (ETAG, tag), (CACHE_CONTROL, "no-cache".to_owned())];
    (headers, file.data).into_response()
}

fn tag(file: &EmbeddedFile) -> String {
    use std::fmt::Write;
    let mut tag = String::from("\"");
    for byte in &file.metadata.sha256_hash()[..16] {
        // Writing to a string does not fail.
        let _infallible = write!(tag, "{byte:02x}");
    }
    tag + "\""
}
