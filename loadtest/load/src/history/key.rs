//! The hash of an idempotency key: the first 32 bits of its SHA-256. The service keeps more bits of
//! the same hash; 32 tell the few requests of one user apart.

use ring::digest::{SHA256, digest};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// The hash of a key as it is sent.
pub fn key_of(key: Uuid) -> u32 {
    let mut text = [0; Hyphenated::LENGTH];
    let text = key.hyphenated().encode_lower(&mut text);
    key_kept(digest(&SHA256, text.as_bytes()).as_ref()).unwrap_or_default()
}

/// The hash of what the service keeps of a key, the beginning of its SHA-256.
pub fn key_kept(kept: &[u8]) -> Option<u32> {
    kept.first_chunk().map(|first| u32::from_be_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_beginning_of_the_sha_256_of_its_text() {
        // printf 00000000-0000-0000-0000-000000000000 | sha256sum
        assert_eq!(key_of(Uuid::nil()), 0x12b9_377c);
        assert_eq!(key_kept(&[1, 2, 3, 4, 5]), Some(0x0102_0304));
        assert_eq!(key_kept(&[1, 2, 3]), None);
    }
}
