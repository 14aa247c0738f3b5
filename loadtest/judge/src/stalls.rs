//! Times in which the load generator itself stood still. They do not count against the service.

use loadtest_load::history::Mark;

/// The sort of marks that record a stall: `t` is its end, `detail` its length in nanoseconds.
pub const STALL: &str = "stall";

/// Stretches of the load's clock in nanoseconds, in order and apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stalls(Vec<[u64; 2]>);

impl Stalls {
    /// The stalls in a history's marks.
    pub fn of(marks: &[Mark<'_>]) -> Self {
        let stall = |mark: &Mark<'_>| {
            let length: u64 = mark.detail.parse().ok().filter(|_| mark.what == STALL)?;
            Some([mark.t.saturating_sub(length), mark.t])
        };
        let mut stalls: Vec<[u64; 2]> = marks.iter().filter_map(stall).collect();
        stalls.sort_unstable();
        let mut apart: Vec<[u64; 2]> = Vec::with_capacity(stalls.len());
        for [from, until] in stalls {
            match apart.last_mut() {
                Some([_, last]) if from <= *last => *last = until.max(*last),
                _ => apart.push([from, until]),
            }
        }
        Self(apart)
    }

    /// The time from one moment to another without the stalls in between.
    pub fn elapsed(&self, from: u64, until: u64) -> u64 {
        let stalled =
            |[begin, end]: &[u64; 2]| (*end).min(until).saturating_sub((*begin).max(from));
        until.saturating_sub(from).saturating_sub(self.0.iter().map(stalled).sum())
    }

    /// Whether there was one between two moments.
    pub fn met(&self, from: u64, until: u64) -> bool {
        self.0.iter().any(|[begin, end]| *begin <= until && from <= *end)
    }

    /// The sum of all stalls.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|[from, until]| until - from).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(t: u64, length: u64) -> Mark<'static> {
        let (what, name) = (STALL.into(), "generator".into());
        Mark { t, what, name, phase: "over".into(), detail: length.to_string().into() }
    }

    #[test]
    fn the_time_between_two_moments_leaves_out_the_stalls_between_them() {
        let stalls = Stalls::of(&[mark(50, 10), mark(20, 10), mark(22, 4)]);
        assert_eq!(stalls.total(), 22, "10 to 22 and 40 to 50");
        for (from, until, elapsed) in
            [(0, 60, 38), (0, 10, 10), (15, 45, 18), (10, 22, 0), (22, 40, 18), (60, 50, 0)]
        {
            assert_eq!(stalls.elapsed(from, until), elapsed, "{from} to {until}");
        }
        for (from, until, met) in [(0, 9, false), (0, 10, true), (22, 23, true), (23, 39, false)] {
            assert_eq!(stalls.met(from, until), met, "{from} to {until}");
        }
        assert_eq!(Stalls::default().elapsed(3, u64::MAX), u64::MAX - 3);
        let fault = Mark { what: "fault".into(), ..mark(9, 9) };
        assert_eq!(Stalls::of(&[fault]), Stalls::default());
    }
}
