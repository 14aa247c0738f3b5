//! The exporter: a thread of its own sends spans in batches.
//!
//! At most 2,048 spans wait to be sent; more are dropped. A batch has at most 512, leaves within
//! 5 s, and is given up after 10 s.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing::Span;
use tracing_subscriber::util::SubscriberInitExt;

use super::layers::{REQUEST, layers};
use crate::telemetry::log::log_filter;

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
    let log = layers(provider, json, std::io::stderr, log_filter(filter));
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
    let headers = parent.map(|parent| ("traceparent".to_owned(), parent.to_owned()));
    let headers: HashMap<_, _> = headers.into_iter().collect();
    // The span takes the context that is attached as its parent.
    let _parent = TraceContextPropagator::new().extract(&headers).attach();
    tracing::trace_span!(
        target: "seckill::trace",
        REQUEST,
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        otel.status_code = tracing::field::Empty,
        http.request.method = method,
        http.route = route,
        http.response.status_code = tracing::field::Empty,
    )
}
