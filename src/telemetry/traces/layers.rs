//! The subscriber of the log and of traces.
//!
//! Most requests are not sampled, so what those cost counts. Filters of single layers
//! (`with_filter`) ask for each span that is entered or left whether it is theirs, also for the
//! log's. Here one filter stands before all layers: to the log's spans and events it says once what
//! the log's own filter says. To a span of traces that is not inside of a sampled request, it says
//! no after a look at a number of this thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::{Targets, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::telemetry::log::log_lines;

/// The name of a request's span.
pub(super) const REQUEST: &str = "request";
/// How the targets of all spans of traces end.
const TARGET_SUFFIX: &str = "::trace";

/// How many spans of traces are open. While there are none, no span that is entered is one.
static OPEN_SPANS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// How many spans of traces this thread has entered.
    static ENTERED_SPANS: Cell<usize> = const { Cell::new(0) };
}

/// The lines of the log, as `filter` has them, beside the spans of sampled requests.
pub(super) fn layers<W>(
    provider: &SdkTracerProvider,
    json: bool,
    writer: W,
    filter: Targets,
) -> impl Subscriber + Send + Sync + use<W>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let spans = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("seckill"))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false);
    // Otherwise the lines of the log would name the spans of traces beside their requests.
    let lines = log_lines(json, writer).with_filter(filter_fn(|metadata| !is_of_traces(metadata)));
    tracing_subscriber::registry()
        .with(SampledSpans(spans))
        .with(LogLines(lines))
        .with(LogOrSampled(filter))
}

fn is_of_traces(metadata: &Metadata<'_>) -> bool {
    metadata.target().ends_with(TARGET_SUFFIX)
}

/// The filter before all layers: admits what the log wants, the spans of sampled requests, and
/// those inside of them.
struct LogOrSampled(Targets);

impl<S: Subscriber> Layer<S> for LogOrSampled {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_of_traces(metadata) {
            return Interest::sometimes();
        }
        Layer::<S>::register_callsite(&self.0, metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>, context: Context<'_, S>) -> bool {
        if is_of_traces(metadata) {
            return metadata.name() == REQUEST || ENTERED_SPANS.get() > 0;
        }
        self.0.enabled(metadata, context)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }
}

/// The exporter's layer, which gets the spans of traces and nothing else.
struct SampledSpans<L>(L);

impl<L, S> Layer<S> for SampledSpans<L>
where
    L: Layer<S>,
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if is_of_traces(attributes.metadata()) {
            OPEN_SPANS.fetch_add(1, Ordering::Relaxed);
            self.0.on_new_span(attributes, id, context);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if has_span_of_traces(id, &context) {
            self.0.on_record(id, values, context);
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if has_span_of_traces(id, &context) {
            ENTERED_SPANS.set(ENTERED_SPANS.get() + 1);
            self.0.on_enter(id, context);
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        if has_span_of_traces(id, &context) {
            ENTERED_SPANS.set(ENTERED_SPANS.get() - 1);
            self.0.on_exit(id, context);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        if has_span_of_traces(&id, &context) {
            OPEN_SPANS.fetch_sub(1, Ordering::Relaxed);
            self.0.on_close(id, context);
        }
    }
}

/// Whether that span is one of traces. The span's metadata are looked up only while such spans are
/// open: a look-up costs about as much as all else of an entry.
fn has_span_of_traces<S>(id: &Id, context: &Context<'_, S>) -> bool
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    OPEN_SPANS.load(Ordering::Relaxed) > 0 && context.metadata(id).is_some_and(is_of_traces)
}

/// The log's layer with its filter. The log prints nothing when a span is entered, left or closed,
/// so its filter is not asked then.
struct LogLines<L>(L);

impl<L, S> Layer<S> for LogLines<L>
where
    L: Layer<S>,
    S: Subscriber,
{
    fn on_layer(&mut self, subscriber: &mut S) {
        self.0.on_layer(subscriber);
    }

    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        self.0.register_callsite(metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>, context: Context<'_, S>) -> bool {
        self.0.enabled(metadata, context)
    }

    fn event_enabled(&self, event: &Event<'_>, context: Context<'_, S>) -> bool {
        self.0.event_enabled(event, context)
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        self.0.on_new_span(attributes, id, context);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        self.0.on_record(id, values, context);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        self.0.on_event(event, context);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex, PoisonError};

    use tracing::Span;
    use tracing::subscriber::with_default;

    use super::*;
    use crate::telemetry::log::log_filter;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Written {
        /// The lines without their times.
        fn lines(&self) -> Vec<String> {
            let written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let written = String::from_utf8(written.clone()).expect("text");
            let without_time = |line: &str| {
                let end = if line.starts_with('{') { ',' } else { 'Z' };
                line.split_once(end).expect("a time").1.to_owned()
            };
            written.lines().map(without_time).collect()
        }
    }

    /// A request with its lock, as far as the log and traces see it.
    fn serve_request(is_sampled: bool) {
        let span = tracing::info_span!("request", id = 7, status = tracing::field::Empty);
        let trace = span.in_scope(|| {
            if is_sampled {
                tracing::trace_span!(target: "seckill::trace", REQUEST, otel.kind = "server")
            } else {
                Span::none()
            }
        });
        span.in_scope(|| {
            trace.in_scope(|| {
                let hold = tracing::trace_span!(target: "distlock::trace", "lock.hold");
                assert_eq!(hold.is_disabled(), !is_sampled, "a span inside of the request");
                hold.in_scope(|| {
                    tracing::warn!(rest = 3, "the lock ends soon");
                    tracing::info_span!("write", rows = 1).in_scope(|| tracing::info!("written"));
                    tracing::debug!("released");
                });
            });
            span.record("status", 201);
            tracing::info!("answered");
        });
        tracing::info!("outside of the request");
        let hold = tracing::trace_span!(target: "distlock::trace", "lock.hold");
        assert!(hold.is_disabled(), "a span outside of the request");
    }

    #[test]
    fn traces_change_no_line_of_the_log() {
        let provider = SdkTracerProvider::builder().build();
        for json in [false, true] {
            for filter in ["warn", "warn,seckill=info", "seckill=debug"] {
                let alone = Written::default();
                let writer = alone.clone();
                let lines = log_lines(json, move || writer.clone());
                let log = tracing_subscriber::registry().with(lines).with(log_filter(filter));
                with_default(log, || serve_request(false));
                assert!(!alone.lines().is_empty(), "{filter}");
                for is_sampled in [true, false] {
                    let beside = Written::default();
                    let writer = beside.clone();
                    let log = layers(&provider, json, move || writer.clone(), log_filter(filter));
                    with_default(log, || serve_request(is_sampled));
                    assert_eq!(beside.lines(), alone.lines(), "{filter} {is_sampled}");
                }
            }
        }
    }
}
