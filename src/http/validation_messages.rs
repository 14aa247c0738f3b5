//! What each field must be, in the terms of this API.
//!
//! Messages of the parser name Rust types and line numbers, which mean nothing to a client.

use crate::domain::{BadPhone, MAX_STOCK_BUCKETS};

/// The highest price, in cents.
pub(super) const MAX_PRICE_CENTS: u64 = 10_000_000_000;
/// The most units at a time.
pub(super) const MAX_UNITS: u32 = 1_000_000;
/// The longest title and description, in characters.
pub(super) const MAX_TITLE_CHARS: usize = 100;
pub(super) const MAX_DESCRIPTION_CHARS: usize = 1000;
/// The years of UTC in which a sale may begin and end.
pub(super) const FIRST_YEAR: i32 = 2000;
pub(super) const LAST_YEAR: i32 = 8999;
/// The most orders on a page.
pub(super) const MAX_PAGE_SIZE: u32 = 100;
/// The number of digits of a login code.
pub(super) const CODE_LENGTH: usize = 6;

/// The number of hexadecimal digits of a challenge: 128 bits.
pub(super) const CHALLENGE_LENGTH: usize = 32;

/// The longest field name, in characters, that an answer repeats.
const MAX_NAME_CHARS: usize = 64;

/// What the field of that name must be; a name means the same in all bodies.
pub(super) fn must_be(field: &str) -> Option<String> {
    Some(match field {
        "phone" => BadPhone::Format.to_string(),
        "code" => format!("must be text of {CODE_LENGTH} characters"),
        "challenge" => format!("must be text of {CHALLENGE_LENGTH} characters, as in the answer"),
        "title" => format!("must be text of 1 to {MAX_TITLE_CHARS} characters"),
        "description" => format!("must be text of at most {MAX_DESCRIPTION_CHARS} characters"),
        "price_cents" | "face_value_cents" => {
            format!("must be a whole number from 0 to {MAX_PRICE_CENTS}")
        }
        "stock" | "units" => format!("must be a whole number from 1 to {MAX_UNITS}"),
        "stock_buckets" => format!("must be a whole number from 1 to {MAX_STOCK_BUCKETS}"),
        "starts_at" | "ends_at" => {
            "must be a moment as in RFC 3339, such as 2026-11-11T20:00:00+08:00".to_owned()
        }
        _ => return None,
    })
}

/// The field and what is wrong with it, from the path and the message of serde's error.
pub(super) fn explain(path: &str, said: &str) -> (String, String) {
    if let Some(field) = said.strip_prefix("missing field ") {
        return (quoted(field).next().unwrap_or("body").to_owned(), "is missing".to_owned());
    }
    if let Some(field) = said.strip_prefix("duplicate field ") {
        return (quoted(field).next().unwrap_or("body").to_owned(), ONCE.to_owned());
    }
    if let Some(rest) = said.strip_prefix("unknown field `") {
        // The name is the client's and may contain the same words, so the last occurrence counts.
        let fieldless = rest.rsplit_once("`, there are no fields").map(|(name, _)| (name, ""));
        let (name, known) =
            fieldless.or_else(|| rest.rsplit_once("`, expected ")).unwrap_or((rest, ""));
        let known: Vec<&str> = quoted(known).collect();
        let known = match &known[..] {
            [] => "no fields are allowed".to_owned(),
            names => format!("allowed: {}", names.join(", ")),
        };
        return (shortened(name), format!("unknown field; {known}"));
    }
    let limit = must_be(path).unwrap_or_else(|| "has the wrong type".to_owned());
    // serde_path_to_error writes a path without names so.
    let field = if matches!(path, "." | "?") { "body" } else { path };
    (shortened(field), limit)
}

/// What is wrong with a field or parameter that occurs twice.
pub(super) const ONCE: &str = "must be given once";

/// The texts between back quotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// At most 64 characters of the name of a field.
pub(super) fn shortened(name: &str) -> String {
    name.chars().take(MAX_NAME_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strange_name_of_a_field_is_quoted_literally_and_truncated() {
        for name in ["x", "", "a`b", "`, expected ", "missing field `y`"] {
            let said = format!("unknown field `{name}`, expected `phone` or `code` at line 1");
            let (field, limit) = explain("?", &said);
            assert_eq!(
                (field.as_str(), limit.as_str()),
                (name, "unknown field; allowed: phone, code")
            );
            let said = format!("unknown field `{name}`, there are no fields at line 1");
            let (field, limit) = explain("?", &said);
            assert_eq!(
                (field.as_str(), limit.as_str()),
                (name, "unknown field; no fields are allowed")
            );
        }
        let long = "\u{fc}".repeat(20_000);
        let (field, limit) = explain("?", &format!("unknown field `{long}`, there are no fields"));
        assert_eq!(field.chars().count(), MAX_NAME_CHARS);
        assert_eq!(limit, "unknown field; no fields are allowed");
    }
}
