//! How late renewals are, as the metrics tell it.

use std::sync::{Arc, Mutex};

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

/// How late renewals were begun, in seconds.
#[derive(Clone, Default)]
pub(crate) struct Lateness(Arc<Mutex<Vec<f64>>>);

impl Lateness {
    /// What was told since the last look.
    pub(crate) fn take(&self) -> Vec<f64> {
        std::mem::take(&mut self.0.lock().expect("no panic"))
    }
}

impl HistogramFn for Lateness {
    fn record(&self, late: f64) {
        self.0.lock().expect("no panic").push(late);
    }
}

impl Recorder for Lateness {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match key.name() {
            "distlock_renewal_late_seconds" => Histogram::from_arc(Arc::new(self.clone())),
            _ => Histogram::noop(),
        }
    }
}
