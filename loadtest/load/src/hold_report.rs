//! What a replica tells of the lock of a purchase, in the laboratory's header `x-lab-held`.
//!
//! `300-1500-200` says: granted 300 µs after the request arrived, given back 1,500 µs later, and
//! answered 200 µs after that. `-lost` at the end says that the lock's validity time had ended
//! before it was given back; `-lost-400`, that it ended 400 µs after the grant. ` 7/8` after that
//! says that the holder showed fencing token 7 to a fence that knows token 8, which refuses it; an
//! accepted token is the highest. The lengths are the replica's own, each rounded down, so no
//! clocks have to agree. On the generator's clock the hold is known up to the network time of
//! request and answer. It began after the request was sent, and ended before the answer was
//! complete.

use std::time::{Duration, Instant};

/// The header's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldReport {
    /// From the request's arrival to the grant.
    pub waited: Duration,
    /// From the grant to the release.
    pub held: Duration,
    /// From the release to the answer.
    pub since: Duration,
    /// Whether the lock's validity had ended by the release.
    pub lost: bool,
    /// From the grant to the end of validity, if that is told.
    pub valid: Option<Duration>,
    /// The fencing token that was shown, and the highest that the fence knows.
    pub fence: Option<[u64; 2]>,
}

/// A hold on the generator's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacedHold {
    /// The latest moment at which it can have begun.
    pub(super) from: Instant,
    /// The end that belongs to it.
    pub(super) until: Instant,
    /// How long after its request's sending it began at the earliest.
    pub(super) waited: Duration,
    pub(super) lost: bool,
    /// When its validity ended, if that is told.
    pub(super) invalid_from: Option<Instant>,
    pub(super) fence: Option<[u64; 2]>,
}

/// The hold as a line of the history has it: members `h`, `w`, `l`, `d` and `f` of `Completion`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToldHold {
    /// The latest begin, and the end that belongs to it, in nanoseconds since the load began.
    pub h: [u64; 2],
    /// From the sending of the request to the earliest begin, in nanoseconds.
    pub w: u64,
    /// Whether the lock was lost.
    pub l: bool,
    /// When its validity ended, if that is told, in nanoseconds since the load began.
    pub d: Option<u64>,
    /// The fencing token that was shown, and the highest that the fence knows.
    pub f: Option<[u64; 2]>,
}

impl PlacedHold {
    /// By the history's clock.
    pub fn told(self, since: impl Fn(Instant) -> u64) -> ToldHold {
        let w = u64::try_from(self.waited.as_nanos()).unwrap_or(0);
        let d = self.invalid_from.map(&since);
        ToldHold { h: [self.from, self.until].map(&since), w, l: self.lost, d, f: self.fence }
    }
}

impl HoldReport {
    /// The header's value; `None` if it says anything else.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        let (text, fence) = match text.split_once(' ') {
            Some((text, fence)) => {
                let (token, highest) = fence.split_once('/')?;
                (text, Some([token.parse().ok()?, highest.parse().ok()?]))
            }
            None => (text, None),
        };
        let (text, lost, valid) = match text.split_once("-lost") {
            Some((text, "")) => (text, true, None),
            Some((text, valid)) => {
                let valid = valid.strip_prefix('-')?.parse().ok()?;
                (text, true, Some(Duration::from_micros(valid)))
            }
            None => (text, false, None),
        };
        let mut parts = text.split('-').map(|part| part.parse().ok().map(Duration::from_micros));
        let mut next = || parts.next().flatten();
        let report = Self { waited: next()?, held: next()?, since: next()?, lost, valid, fence };
        parts.next().is_none().then_some(report)
    }

    /// The hold of a request that was sent and answered then; `None` if it does not fit in between.
    pub fn placed(self, [sent, ended]: [Instant; 2]) -> Option<PlacedHold> {
        let Self { waited, held, since, lost, valid, fence } = self;
        let until = ended.checked_sub(since)?;
        let from = until.checked_sub(held)?;
        let invalid_from = valid.map(|valid| from + valid.min(held));
        let hold = PlacedHold { from, until, waited, lost, invalid_from, fence };
        (from >= sent + waited).then_some(hold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report([waited, held, since]: [u64; 3], lost: bool) -> HoldReport {
        let [waited, held, since] = [waited, held, since].map(Duration::from_micros);
        HoldReport { waited, held, since, lost, valid: None, fence: None }
    }

    #[test]
    fn a_hold_counts_back_from_the_answer_and_lies_within_its_request() {
        let told = HoldReport::parse(b"300-1500-200").expect("a hold");
        assert_eq!(told, report([300, 1500, 200], false));
        let sent = Instant::now();
        let at = |us: u64| sent + Duration::from_micros(us);
        let placed = told.placed([sent, at(2100)]).expect("within");
        assert_eq!([placed.from, placed.until], [at(400), at(1900)]);
        assert_eq!(placed.waited, Duration::from_micros(300));
        assert!(told.placed([sent, at(2000)]).is_some(), "it was nowhere on its way");
        assert_eq!(told.placed([sent, at(1999)]), None, "it does not fit");
    }

    #[test]
    fn the_end_of_validity_lies_within_the_hold() {
        let told = HoldReport::parse(b"300-1500-200-lost-400 7/8").expect("a hold");
        let valid = Some(Duration::from_micros(400));
        let expected = HoldReport { valid, fence: Some([7, 8]), ..report([300, 1500, 200], true) };
        assert_eq!(told, expected);
        let sent = Instant::now();
        let at = |us: u64| sent + Duration::from_micros(us);
        let of = |us| {
            let valid = Some(Duration::from_micros(us));
            HoldReport { valid, ..told }.placed([sent, at(2100)]).expect("within")
        };
        assert_eq!(of(400).invalid_from, Some(at(800)));
        assert_eq!(of(9000).invalid_from, Some(at(1900)), "no later than the release");
        let line = of(400).told(|moment| {
            u64::try_from(moment.duration_since(sent).as_nanos()).expect("it is small")
        });
        assert_eq!((line.l, line.d), (true, Some(800_000)));
    }

    #[test]
    fn a_header_in_any_other_form_is_ignored() {
        assert_eq!(HoldReport::parse(b"1-2-3-lost"), Some(report([1, 2, 3], true)));
        let fenced = HoldReport { fence: Some([7, 8]), ..report([1, 2, 3], true) };
        assert_eq!(HoldReport::parse(b"1-2-3-lost 7/8"), Some(fenced));
        for odd in ["1-2-3 7", "1-2-3 7/", "1-2-3 7/8/9", "1-2-3  7/8", " 7/8"] {
            assert_eq!(HoldReport::parse(odd.as_bytes()), None, "{odd}");
        }
        for odd in [
            "",
            "5",
            "5-6",
            "5-6-",
            "-5-6",
            "5-6-7-8",
            "a-b-c",
            "1-2-3-found",
            "1-2-lost",
            "1-2-3-lost-",
            "1-2-3-lost-x",
        ] {
            assert_eq!(HoldReport::parse(odd.as_bytes()), None, "{odd}");
        }
        let huge = format!("1-2-{}0", u64::MAX);
        assert_eq!(HoldReport::parse(huge.as_bytes()), None);
    }
}
