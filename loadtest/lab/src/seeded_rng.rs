//! Random numbers that are the same for the same seed and name, so that a seed reproduces a
//! schedule. Not for secrets.

use fastrand::Rng;

/// A sequence of numbers.
#[derive(Debug, Clone)]
pub(super) struct SeededRng(Rng);

impl SeededRng {
    /// The sequence of a seed and a name: cells of one run have different ones.
    pub(super) fn of(seed: u64, name: &str) -> Self {
        // FNV-1a, which is the same on every machine.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(Rng::with_seed(name.bytes().fold(0xcbf2_9ce4_8422_2325 ^ seed, mix)))
    }

    /// The next number.
    pub(super) fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Sixteen random bytes.
    pub(super) fn bytes(&mut self) -> [u8; 16] {
        self.0.u128(..).to_be_bytes()
    }

    /// A number of at least `from` and below `to`; `from` if there is none.
    pub(super) fn between(&mut self, from: u64, to: u64) -> u64 {
        if from < to { self.0.u64(from..to) } else { from }
    }

    /// Draws `count` of these, or all, each at most once and in their order.
    pub(super) fn some_of<T>(&mut self, choices: Vec<T>, count: usize) -> Vec<T> {
        let (mut left, mut wanted) = (choices.len() as u64, count.min(choices.len()) as u64);
        let mut is_drawn = |_: &T| {
            let drawn = self.between(0, left) < wanted;
            left -= 1;
            wanted -= u64::from(drawn);
            drawn
        };
        choices.into_iter().filter(|one| is_drawn(one)).collect()
    }

    /// Draws one of these; `None` from an empty list.
    pub(super) fn one_of<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        self.0.choice(choices).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_and_a_name_give_the_same_numbers_again_and_others_give_others() {
        let numbers = |seed, name| {
            let mut rng = SeededRng::of(seed, name);
            [(); 8].map(|()| rng.between(100, 200))
        };
        assert_eq!(numbers(7, "a"), numbers(7, "a"));
        assert_ne!(numbers(7, "a"), numbers(8, "a"));
        assert_ne!(numbers(7, "a"), numbers(7, "b"));
        assert!(numbers(7, "a").iter().all(|number| (100..200).contains(number)));
        assert_eq!(SeededRng::of(1, "x").one_of::<u8>(&[]), None);
        let some = |seed| SeededRng::of(seed, "x").some_of((0..100).collect::<Vec<_>>(), 30);
        assert!(some(1).len() == 30 && some(1).is_sorted_by(|one, next| one < next));
        assert_eq!(some(1), some(1));
        assert_ne!(some(1), some(2));
        assert_eq!(SeededRng::of(1, "x").some_of(vec![1, 2], 3), [1, 2]);
    }
}
