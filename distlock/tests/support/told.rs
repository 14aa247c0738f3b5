//! What the library's metrics are told.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

/// How late renewals were begun, in seconds.
pub(crate) const LATE: &str = "distlock_renewal_delay_seconds";

/// What each histogram and each counter was told, by its name.
#[derive(Clone, Default)]
pub(crate) struct RecordedMetrics(Arc<Mutex<HashMap<String, Vec<f64>>>>);

impl RecordedMetrics {
    pub(crate) fn of(&self, name: &str) -> Vec<f64> {
        self.0.lock().expect("no panic").get(name).cloned().unwrap_or_default()
    }

    /// The messages since the last call.
    pub(crate) fn take(&self, name: &str) -> Vec<f64> {
        self.0.lock().expect("no panic").remove(name).unwrap_or_default()
    }

    fn one(&self, key: &Key) -> Arc<RecordedMetric> {
        Arc::new(RecordedMetric(self.clone(), key.name().to_owned()))
    }
}

struct RecordedMetric(RecordedMetrics, String);

impl HistogramFn for RecordedMetric {
    fn record(&self, value: f64) {
        let mut told = self.0.0.lock().expect("no panic");
        told.entry(self.1.clone()).or_default().push(value);
    }
}

impl CounterFn for RecordedMetric {
    fn increment(&self, _: u64) {
        self.record(1.0);
    }

    fn absolute(&self, _: u64) {}
}

impl Recorder for RecordedMetrics {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.one(key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.one(key))
    }
}
