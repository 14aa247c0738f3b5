//! Token files: one JSON object a line, `{"user_id":"17","token":"eyJ..."}`, as `seckill token`
//! writes them.

use std::collections::HashSet;
use std::path::Path;

use http::HeaderValue;
use loadtest_measure::error::{Error, Result};
use serde::Deserialize;

/// Most users one file may hold: what a load of this program can use at most.
pub const MAX_USERS: usize = 900_000;
/// Longest line, in bytes; a JWT of this service has about 300.
const MAX_LINE_BYTES: usize = 8 * 1024;
/// Largest file, in bytes, that is read at all.
const MAX_FILE_BYTES: u64 = 512 * 1024 * 1024;

/// A user who can log in.
#[derive(Debug, Clone)]
pub struct User {
    /// The user's id.
    pub id: u64,
    /// `Bearer <token>`, ready to be sent; marked sensitive, so that no debug output shows it.
    pub authorization: HeaderValue,
}

#[derive(Deserialize)]
struct TokenLine<'a> {
    #[serde(borrow)]
    user_id: &'a str,
    #[serde(borrow)]
    token: &'a str,
}

/// Reads a token file; every error names the file, and the line if one is to blame.
pub fn read(path: &Path) -> Result<Vec<User>> {
    let shown = path.display();
    let size = std::fs::metadata(path)
        .map_err(|error| Error::Usage(format!("cannot read the token file {shown}: {error}")))?
        .len();
    if size > MAX_FILE_BYTES {
        return Err(Error::Usage(format!(
            "the token file {shown} is larger than {MAX_FILE_BYTES} bytes"
        )));
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::Usage(format!("cannot read the token file {shown}: {error}")))?;
    parse(&text).map_err(|fault| Error::Usage(format!("the token file {shown} is broken: {fault}")))
}

/// Parses the lines of a token file; the error names the line.
pub fn parse(text: &str) -> std::result::Result<Vec<User>, String> {
    let mut users = Vec::new();
    let mut seen = HashSet::new();
    for (number, line) in (1..).zip(text.lines()) {
        if users.len() == MAX_USERS {
            return Err(format!("line {number} is beyond the {MAX_USERS} users a load may have"));
        }
        let user = parse_line(line).map_err(|fault| format!("line {number} {fault}"))?;
        if !seen.insert(user.id) {
            return Err(format!("line {number} repeats the user {}", user.id));
        }
        users.push(user);
    }
    if users.is_empty() {
        return Err("it holds no user".to_owned());
    }
    Ok(users)
}

fn parse_line(line: &str) -> std::result::Result<User, String> {
    if line.len() > MAX_LINE_BYTES {
        return Err(format!("is longer than {MAX_LINE_BYTES} bytes"));
    }
    let parsed: TokenLine<'_> = serde_json::from_str(line)
        .map_err(|_| r#"is not an object like {"user_id":"17","token":"..."}"#.to_owned())?;
    let id = parsed.user_id.parse::<u64>().map_err(|_| "has a user_id that is no number")?;
    let visible = |byte: u8| (0x21..=0x7e).contains(&byte);
    if parsed.token.is_empty() || !parsed.token.bytes().all(visible) {
        return Err("has a token with characters that no token has".to_owned());
    }
    let mut authorization = HeaderValue::from_str(&format!("Bearer {}", parsed.token))
        .map_err(|_| "has a token that no header can carry")?;
    authorization.set_sensitive(true);
    Ok(User { id, authorization })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"user_id":"17","token":"a.b.c"}"#;

    #[test]
    fn a_good_file_gives_its_users_in_order() {
        let users = parse(&format!("{GOOD}\n{}\n", GOOD.replace("17", "4"))).expect("good");
        assert_eq!(users.iter().map(|user| user.id).collect::<Vec<_>>(), [17, 4]);
        assert_eq!(users[0].authorization, "Bearer a.b.c");
        assert!(!format!("{users:?}").contains("a.b.c"), "a token never shows");
    }

    #[test]
    fn each_broken_line_is_named() {
        let cases = [
            ("nonsense", "line 2 is not an object"),
            ("", "line 2 is not an object"),
            (r#"{"user_id":17,"token":"a"}"#, "line 2 is not an object"),
            (r#"{"user_id":"seventeen","token":"a"}"#, "line 2 has a user_id"),
            (r#"{"user_id":"-1","token":"a"}"#, "line 2 has a user_id"),
            (r#"{"user_id":"1","token":""}"#, "line 2 has a token"),
            (r#"{"user_id":"1","token":"a b"}"#, "line 2 has a token"),
            (GOOD, "line 2 repeats the user 17"),
        ];
        for (line, expected) in cases {
            let fault = parse(&format!("{GOOD}\n{line}\n")).expect_err(line);
            assert!(fault.starts_with(expected), "{line}: {fault}");
        }
        assert_eq!(parse("").expect_err("empty"), "it holds no user");
    }

    #[test]
    fn a_missing_file_is_a_usage_error_that_names_it() {
        let error = read(Path::new("/nonexistent/tokens")).expect_err("missing");
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("/nonexistent/tokens"));
    }
}
