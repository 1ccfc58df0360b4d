//! Exports traces to a collector: a queue of ended spans, and the task that empties it. OTLP over HTTP, as protobuf.
//!
//! Only the end of the program waits for the collector, and only briefly. The exporter drops and counts spans that find
//! no room in the queue or that the collector does not take. It honours the standard variables of OpenTelemetry:
//! `OTEL_EXPORTER_OTLP_*` (endpoint, headers, timeout), `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`,
//! `OTEL_SDK_DISABLED`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry::{Context, Key, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    Sampler, SdkTracer, SdkTracerProvider, Span, SpanData, SpanExporter as _, SpanProcessor,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt as _};
use tracing_subscriber::Registry;
use trueup_config::Telemetry;

/// How many spans wait for export: at 1 KiB each 16 MiB, and some seconds of a busy host.
const QUEUE_SPANS_MAX: usize = 16_384;

/// How many spans one request holds: OpenTelemetry's own default.
const BATCH_SPANS_MAX: usize = 512;

/// How long the exporter gathers spans before it sends them.
const GATHER: Duration = Duration::from_secs(1);

/// The longest that a request takes, whatever the exporter's own timeouts and retries are.
const EXPORT_MAX: Duration = Duration::from_secs(10);

/// At the end of the program, the exporter sends the waiting spans within this time, or drops them.
const FLUSH_MAX: Duration = Duration::from_secs(3);

/// How often the log repeats that a collector takes nothing.
const REPORT_PAUSE: Duration = Duration::from_secs(60);

/// The variables by which OpenTelemetry names a collector, the more specific one first.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// Why spans are dropped that the collector was never sent.
const FULL: &str = "spans came faster than it took them";

/// The path for traces below a collector's base URL, by the OTLP specification.
const TRACES_PATH: &str = "/v1/traces";

/// The traces of this process: the queue of ended spans, and what empties it.
pub(crate) struct Traces {
    exporter: SpanExporter,
    collector: String,
    /// The provider through which spans end.
    provider: SdkTracerProvider,
    queue: mpsc::Receiver<SpanData>,
    /// How many spans found no room since the last check.
    full: Arc<AtomicU64>,
    /// When the log last reported that the collector takes nothing.
    reported: Option<Instant>,
    /// How many spans were dropped since the start.
    dropped: u64,
}

/// The sampled trace of a span, in hexadecimal digits.
pub(super) fn trace_of(span: &tracing::Span) -> Option<String> {
    let context = span.context();
    let of = context.span();
    let of = of.span_context();
    (of.is_valid() && of.is_sampled()).then(|| of.trace_id().to_string())
}

impl Traces {
    /// `None` if there is no collector.
    ///
    /// # Errors
    /// One line: which setting can't be used.
    pub(super) fn new(telemetry: &Telemetry) -> Result<Option<Self>, String> {
        let filled = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        if filled("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let of_environment = ENDPOINTS.iter().find_map(|name| filled(name));
        let Some(collector) = telemetry.otlp.clone().or(of_environment) else {
            return Ok(None);
        };
        // Ignore the error: another part of the program may have installed the same provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = SpanExporter::builder().with_http();
        if let Some(base) = &telemetry.otlp {
            builder = builder.with_endpoint(format!("{base}{TRACES_PATH}"));
        }
        let failed = |error| format!("traces to {collector}: {error}");
        let mut exporter = builder.build().map_err(failed)?;
        let resource = resource(filled("OTEL_SERVICE_NAME").is_some());
        exporter.set_resource(&resource);
        let (sender, queue) = mpsc::channel(QUEUE_SPANS_MAX);
        let full = Arc::new(AtomicU64::new(0));
        let sampler = Sampler::TraceIdRatioBased(telemetry.sample);
        let provider = SdkTracerProvider::builder()
            .with_resource(resource)
            .with_sampler(Sampler::ParentBased(Box::new(sampler)))
            .with_span_processor(Queue(sender, Arc::clone(&full)));
        Ok(Some(Self {
            exporter,
            collector,
            provider: provider.build(),
            queue,
            full,
            reported: None,
            dropped: 0,
        }))
    }

    /// The layer that records spans.
    pub(super) fn layer(&self) -> OpenTelemetryLayer<Registry, SdkTracer> {
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("trueup"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
    }

    /// Starts the export. Must be called inside a runtime. Returns what ends it: that sends the waiting spans, within a
    /// few seconds.
    pub(crate) fn spawn(self) -> impl AsyncFnOnce() {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(self.run(stopped));
        async move || {
            // Ignore the error: an exporter that has ended has nothing left to send.
            let _ = stop.send(());
            let _ = task.await;
        }
    }
}

/// `service.name` is `trueup` by default.
fn resource(is_named: bool) -> Resource {
    let builder = || Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    let detected = builder().build();
    let name = detected.get(&Key::from_static_str("service.name"));
    let is_default = name.is_none_or(|name| name.as_str().starts_with("unknown_service"));
    match is_named || !is_default {
        true => detected,
        false => builder().with_service_name("trueup").build(),
    }
}

/// Takes ended spans, and counts those that find no room. The thread that ends a span calls it; it never waits.
#[derive(Debug)]
struct Queue(mpsc::Sender<SpanData>, Arc<AtomicU64>);

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() && self.0.try_send(span).is_err() {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Empties the queue.
impl Traces {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let mut batch = Vec::with_capacity(BATCH_SPANS_MAX);
        loop {
            tokio::select! {
                biased;
                _ = &mut stopped => break,
                () = gather(&mut self.queue, &mut batch) => {}
            }
            self.export(std::mem::take(&mut batch), EXPORT_MAX).await;
        }
        // Sends the remaining spans, as long as there is time.
        let until = Instant::now() + FLUSH_MAX;
        loop {
            let room = BATCH_SPANS_MAX - batch.len();
            batch.extend(std::iter::from_fn(|| self.queue.try_recv().ok()).take(room));
            if batch.is_empty() {
                return self.drop_spans(0, FULL);
            }
            let left = until.saturating_duration_since(Instant::now());
            self.export(std::mem::take(&mut batch), left).await;
        }
    }

    async fn export(&mut self, batch: Vec<SpanData>, within: Duration) {
        let spans = batch.len() as u64;
        match tokio::time::timeout(within, self.exporter.export(batch)).await {
            Ok(Ok(())) => self.drop_spans(0, FULL),
            Ok(Err(error)) => self.drop_spans(spans, &error.to_string()),
            Err(_) => self.drop_spans(spans, &format!("no answer within {} s", within.as_secs())),
        }
    }

    /// Counts lost spans, and logs the number now and then.
    fn drop_spans(&mut self, spans: u64, why: &str) {
        let spans = spans + self.full.swap(0, Ordering::Relaxed);
        self.dropped += spans;
        if spans > 0 && self.reported.is_none_or(|at| at.elapsed() >= REPORT_PAUSE) {
            self.reported = Some(Instant::now());
            let collector = &self.collector;
            let dropped = self.dropped;
            tracing::warn!(
                "the collector of traces at {collector} does not take all of them: {why}; {dropped} spans were dropped so far"
            );
        }
    }
}

/// Waits for a span, and then a moment for more of them.
async fn gather(queue: &mut mpsc::Receiver<SpanData>, batch: &mut Vec<SpanData>) {
    queue.recv_many(batch, BATCH_SPANS_MAX).await;
    let more = async {
        while batch.len() < BATCH_SPANS_MAX {
            queue.recv_many(batch, BATCH_SPANS_MAX - batch.len()).await;
        }
    };
    // A moment without so many of them is no error.
    let _ = tokio::time::timeout(GATHER, more).await;
}
