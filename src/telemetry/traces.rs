//! Traces: the spans of sampled requests, sent by OTLP (feature `otlp`, `--otlp-endpoint`).
//!
//! A request is sampled at its begin, or not at all. All spans of traces have targets that end with
//! `::trace`, here and in `distlock`. The filter before all layers admits the span of a request,
//! and spans inside of one. What is not sampled costs a look at a number of the thread.

#[cfg(not(feature = "otlp"))]
mod absent;
#[cfg(feature = "otlp")]
mod layers;
#[cfg(feature = "otlp")]
mod otlp;

#[cfg(not(feature = "otlp"))]
use self::absent as exporter;
#[cfg(feature = "otlp")]
use self::otlp as exporter;

use tracing::Span;

/// Sends traces to a collector.
pub struct TraceExport(
    #[cfg(feature = "otlp")] opentelemetry_sdk::trace::SdkTracerProvider,
    #[cfg(not(feature = "otlp"))] std::convert::Infallible,
);

impl TraceExport {
    /// Opens the exporter, which samples that share of the requests. The collector need not answer.
    /// Fails if this program was built without the feature `otlp`.
    pub fn open(endpoint: &str, ratio: f64) -> anyhow::Result<Self> {
        exporter::open(endpoint, ratio).map(Self)
    }

    /// Starts the log beside the traces, as [`start_log`](super::start_log) does alone.
    pub fn start_log(&self, filter: &str, json: bool) {
        exporter::start_log(&self.0, filter, json);
    }

    /// Sends what is left, for 5 s at most.
    pub async fn close(self) {
        exporter::close(self.0).await;
    }
}

/// The span of a request, if it is sampled; else one that is disabled. `parent` is the caller's
/// `traceparent`, which does not decide.
pub fn request_span(parent: Option<&str>, method: &str, route: &str) -> Span {
    exporter::request_span(parent, method, route)
}

/// The span of what an order's writer does, up to the end of its transaction.
pub fn write_span() -> Span {
    tracing::trace_span!(target: "seckill::trace", "order.write")
}
