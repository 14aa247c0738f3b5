//! Holds of one lock at once, in words.

use loadtest_judge::holds::HoldOverlaps;

/// How many there were, and why it is not always known.
pub fn words(overlaps: &HoldOverlaps) -> String {
    let told = overlaps.words();
    if overlaps.at_once == overlaps.certain {
        return told;
    }
    format!(
        "{told}. When a lock was held is known only by when its holder's answer came: a late \
         answer makes a hold look later than it was, and so beside the next one."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_shown_where_holds_are_not_known() {
        let told = |at_once, certain| {
            let text = words(&HoldOverlaps {
                holds: 9,
                at_once,
                longest_ms: 1.5,
                certain,
                resolution_ms: 2.0,
            });
            text.contains(". When a lock was held is known only by when")
        };
        assert!(told(3, 0) && told(3, 2));
        assert!(!told(0, 0) && !told(3, 3));
    }
}
