//! User and password in the address of a server.

/// The text with its bytes `%XX`; `None` if it has signs that part an address, or is no text.
pub(crate) fn decode(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'%' => {
                let digits = rest.get(..2).filter(|it| it.iter().all(u8::is_ascii_hexdigit))?;
                let digits = std::str::from_utf8(digits).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &rest[2..];
            }
            b':' | b'/' | b'?' | b'#' | b'@' | b',' | b' ' => return None,
            other => bytes.push(*other),
        }
    }
    String::from_utf8(bytes).ok()
}
