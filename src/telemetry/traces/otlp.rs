//! The exporter: a thread of its own sends spans in batches.
//!
//! At most 2,048 spans wait to be sent; more are dropped. A batch has at most 512, leaves within
//! 5 s, and is given up after 10 s.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Metadata, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::{DynFilterFn, FilterExt};
use tracing_subscriber::layer::{Context as LayerContext, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// The name of a request's span.
const REQUEST: &str = "request";
/// How the targets of all spans of traces end.
const TARGET_SUFFIX: &str = "::trace";
/// How long the last batch may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The share of the requests that are sampled; none until an exporter is open.
static RATIO: OnceLock<f64> = OnceLock::new();

pub(super) fn open(endpoint: &str, ratio: f64) -> anyhow::Result<SdkTracerProvider> {
    let exporter = SpanExporter::builder().with_http().with_endpoint(endpoint).build();
    let exporter = exporter.context("--otlp-endpoint")?;
    // A second exporter of a process has no requests of its own.
    let _is_first = RATIO.set(ratio);
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        // What comes here is sampled already.
        .with_sampler(Sampler::AlwaysOn)
        .with_resource(Resource::builder().with_service_name("seckill").build())
        .build())
}

pub(super) fn start_log(provider: &SdkTracerProvider, filter: &str, json: bool) {
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    // Otherwise a filter for all levels would print the spans of traces beside their requests.
    let filter = filter.and(tracing_subscriber::filter::filter_fn(|one| !is_of_traces(one)));
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let lines = if json { lines.json().boxed() } else { lines.boxed() };
    let spans = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("seckill"))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(sampled());
    let log = tracing_subscriber::registry().with(lines.with_filter(filter)).with(spans);
    // Fails only if a log was started before, which stays in use.
    let _started_before = log.try_init();
}

pub(super) async fn close(provider: SdkTracerProvider) {
    let closing = move || provider.shutdown_with_timeout(CLOSE_TIMEOUT);
    match tokio::task::spawn_blocking(closing).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the last traces were not sent"),
        Err(error) => tracing::warn!(%error, "the last traces were not sent"),
    }
}

/// A span of a request, if it is sampled.
pub(super) fn request_span(parent: Option<&str>, method: &str, route: &str) -> Span {
    if RATIO.get().is_none_or(|ratio| fastrand::f64() >= *ratio) {
        return Span::none();
    }
    let span = tracing::trace_span!(
        target: "seckill::trace",
        REQUEST,
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        otel.status_code = tracing::field::Empty,
        http.request.method = method,
        http.route = route,
        http.response.status_code = tracing::field::Empty,
    );
    if let Some(parent) = parent {
        let headers = HashMap::from([("traceparent".to_owned(), parent.to_owned())]);
        if let Err(error) = span.set_parent(TraceContextPropagator::new().extract(&headers)) {
            tracing::debug!(%error, "a request's trace has no parent");
        }
    }
    span
}

fn is_of_traces(metadata: &Metadata<'_>) -> bool {
    metadata.target().ends_with(TARGET_SUFFIX)
}

/// Admits the spans of sampled requests, and those inside of them.
fn sampled<S>() -> impl tracing_subscriber::layer::Filter<S>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    let is_sampled = |metadata: &Metadata<'_>, context: &LayerContext<'_, S>| {
        is_of_traces(metadata) && (metadata.name() == REQUEST || context.lookup_current().is_some())
    };
    DynFilterFn::new(is_sampled)
        .with_callsite_filter(|metadata: &'static Metadata<'static>| {
            if is_of_traces(metadata) { Interest::sometimes() } else { Interest::never() }
        })
        .with_max_level_hint(LevelFilter::TRACE)
}
