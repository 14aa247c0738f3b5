//! A law with its samples.

use crate::tree::Tree;

/// A file of a sample: its path and its text.
pub(crate) type Sample = (&'static str, String);

pub(crate) struct Law {
    pub(crate) name: &'static str,
    /// Findings, each as `path:line: what`.
    pub(crate) check: fn(&Tree) -> Vec<String>,
    pub(crate) breaks: Vec<Sample>,
    pub(crate) keeps: Vec<Sample>,
}

/// Makes a test of each law, and the list `all` of them.
macro_rules! laws {
    ($($name:ident: $check:path,
        breaks: [$(($bad_path:expr, $bad:expr)),+ $(,)?],
        keeps: [$(($good_path:expr, $good:expr)),* $(,)?];
    )+) => {
        $(#[test]
        fn $name() {
            let findings = $check(&REPOSITORY);
            assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
        })+

        pub(crate) fn all() -> Vec<Law> {
            vec![$(Law {
                name: stringify!($name),
                check: $check,
                breaks: vec![$(($bad_path, $bad.into())),+],
                keeps: vec![$(($good_path, $good.into())),*],
            }),+]
        }
    };
}

pub(crate) use laws;
