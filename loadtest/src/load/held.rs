//! When the service held the lock of a purchase, as the laboratory's header `x-lab-held` tells.
//!
//! `1500-200` says: granted 1,500 µs before the answer, of no more use from 200 µs before it on,
//! and given back then or right after. So no clocks have to agree. What the answer takes to come
//! makes the hold look as much later than it was.

use std::time::{Duration, Instant};

/// How long before the answer the lock was granted, and of no more use; `None` if it says anything
/// else.
pub(super) fn parse(value: &[u8]) -> Option<[Duration; 2]> {
    let (granted, given_back) = std::str::from_utf8(value).ok()?.split_once('-')?;
    let micros = |text: &str| text.parse().ok().map(Duration::from_micros);
    let (granted, given_back) = (micros(granted)?, micros(given_back)?);
    (granted >= given_back).then_some([granted, given_back])
}

/// From when until when that was for a request that was sent and answered then; `None` if it would
/// have begun before the request.
pub(super) fn within(ago: [Duration; 2], [sent, ended]: [Instant; 2]) -> Option<[Instant; 2]> {
    let [from, until] = ago.map(|ago| ended.checked_sub(ago));
    Some([from.filter(|from| *from >= sent)?, until?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_counts_back_from_the_answer_and_lies_within_its_request() {
        let ago = parse(b"1500-200").expect("a hold");
        let sent = Instant::now();
        let at = |us: u64| sent + Duration::from_micros(us);
        assert_eq!(within(ago, [sent, at(1500)]), Some([at(0), at(1300)]));
        assert_eq!(within(ago, [sent, at(1499)]), None, "granted before anybody asked");
        for odd in ["", "5", "5-", "-5", "5-6", "a-b", "7-6-5", "99999999999999999999999-1"] {
            assert_eq!(parse(odd.as_bytes()), None, "{odd}");
        }
    }
}
