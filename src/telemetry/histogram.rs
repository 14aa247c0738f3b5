//! Histograms of fixed size.
//!
//! The exporter's own keep each value with its time until the next upkeep. At 45,000 requests a
//! second with three values each that is 3 MB a second. These add one to a bucket, which also costs
//! less. This module writes their part of the page in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{Histogram, HistogramFn, Key, SharedString};

/// The histograms of the process.
#[derive(Default)]
pub(super) struct Histograms(Mutex<BTreeMap<String, Family>>);

/// The histograms of one name, by their labels as the page shows them.
#[derive(Default)]
struct Family {
    help: Option<SharedString>,
    series: BTreeMap<String, Arc<Buckets>>,
}

/// One histogram.
struct Buckets {
    bounds: &'static [f64],
    /// The number of values up to each bound and above the one before; the last is for values above
    /// all bounds.
    counts: Box<[AtomicU64]>,
    /// The bits of an `f64`.
    sum: AtomicU64,
}

impl Buckets {
    fn new(bounds: &'static [f64]) -> Self {
        let counts = std::iter::repeat_with(AtomicU64::default).take(bounds.len() + 1).collect();
        Self { bounds, counts, sum: AtomicU64::new(0.0_f64.to_bits()) }
    }
}

impl HistogramFn for Buckets {
    fn record(&self, value: f64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        self.counts[place].fetch_add(1, Ordering::Relaxed);
        let add = |sum: u64| Some((f64::from_bits(sum) + value).to_bits());
        // Fails only if the closure returns `None`.
        let _always = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

impl Histograms {
    /// Sets the help text of a name.
    pub(super) fn describe(&self, name: &str, help: SharedString) {
        self.all().entry(name.to_owned()).or_default().help = Some(help);
    }

    /// The histogram of that name and those labels; makes it if there is none.
    pub(super) fn of(&self, key: &Key, bounds: &'static [f64]) -> Histogram {
        let mut all = self.all();
        let family = all.entry(key.name().to_owned()).or_default();
        let buckets = family.series.entry(labels(key));
        let buckets = buckets.or_insert_with(|| Arc::new(Buckets::new(bounds)));
        Histogram::from_arc(Arc::clone(buckets))
    }

    /// Appends all histograms to the page.
    pub(super) fn write(&self, page: &mut String) {
        for (name, family) in &*self.all() {
            if family.series.is_empty() {
                continue;
            }
            if let Some(help) = &family.help {
                let _always = writeln!(page, "# HELP {name} {help}");
            }
            let _always = writeln!(page, "# TYPE {name} histogram");
            for (labels, buckets) in &family.series {
                buckets.write(page, name, labels);
            }
            page.push('\n');
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Family>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buckets {
    fn write(&self, page: &mut String, name: &str, labels: &str) {
        let comma = if labels.is_empty() { "" } else { "," };
        let bounds = self.bounds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        let mut count = 0;
        for (bound, values) in bounds.zip(&self.counts) {
            count += values.load(Ordering::Relaxed);
            let line = format_args!("{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}");
            let _always = writeln!(page, "{line}");
        }
        let sum = f64::from_bits(self.sum.load(Ordering::Relaxed));
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _always = writeln!(page, "{name}_sum{labels} {sum}\n{name}_count{labels} {count}");
    }
}

/// The labels as the page writes them between braces.
fn labels(key: &Key) -> String {
    let escaped = |text: &str| text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
    let one = |label: &metrics::Label| format!("{}=\"{}\"", label.key(), escaped(label.value()));
    key.labels().map(one).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_at_its_bound_and_at_all_above() {
        let histograms = Histograms::default();
        histograms.describe("wait_seconds", "Time of waiting".into());
        histograms.describe("unused_seconds", "Nothing".into());
        let key = Key::from_parts("wait_seconds", vec![metrics::Label::new("of", "a \"b\"")]);
        for value in [0.5, 1.0, 1.5, 7.0] {
            histograms.of(&key, &[1.0, 2.5]).record(value);
        }
        histograms.of(&Key::from_name("wait_seconds"), &[1.0]).record(3.0);
        let mut page = String::new();
        histograms.write(&mut page);
        let expected = [
            "# HELP wait_seconds Time of waiting",
            "# TYPE wait_seconds histogram",
            r#"wait_seconds_bucket{le="1"} 0"#,
            r#"wait_seconds_bucket{le="+Inf"} 1"#,
            "wait_seconds_sum 3",
            "wait_seconds_count 1",
            r#"wait_seconds_bucket{of="a \"b\"",le="1"} 2"#,
            r#"wait_seconds_bucket{of="a \"b\"",le="2.5"} 3"#,
            r#"wait_seconds_bucket{of="a \"b\"",le="+Inf"} 4"#,
            r#"wait_seconds_sum{of="a \"b\""} 10"#,
            r#"wait_seconds_count{of="a \"b\""} 4"#,
            "",
        ];
        assert_eq!(page.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn simultaneous_values_all_count() {
        let buckets = Buckets::new(&[1.0]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| buckets.record(0.5)));
            }
        });
        assert_eq!(buckets.counts[0].load(Ordering::Relaxed), 40_000);
        let sum = f64::from_bits(buckets.sum.load(Ordering::Relaxed));
        assert!((sum - 20_000.0).abs() < 1e-6, "{sum}");
    }
}
