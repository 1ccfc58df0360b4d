//! A collector of traces: receives OTLP over HTTP, as protobuf, and keeps it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use prost::Message as _;
use tokio::runtime::Runtime;

/// A span, its attributes as text.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) trace: String,
    pub(crate) id: String,
    /// Empty for a root.
    pub(crate) parent: String,
    pub(crate) name: String,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: u64,
    /// OTLP's number: 2 is an error.
    pub(crate) status: i32,
}

#[derive(Default)]
struct Kept {
    spans: Vec<Span>,
    resource: BTreeMap<String, String>,
    headers: Vec<HeaderMap>,
}

/// Listens on its own port until it is dropped.
pub(crate) struct Collector {
    kept: Arc<Mutex<Kept>>,
    url: String,
    _runtime: Runtime,
}

impl Collector {
    pub(crate) fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let kept = Arc::<Mutex<Kept>>::default();
        let router = Router::new()
            .route("/v1/traces", post(take))
            .with_state(Arc::clone(&kept));
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self {
            kept,
            url,
            _runtime: runtime,
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        self.kept.lock().unwrap().spans.clone()
    }

    pub(crate) fn resource(&self) -> BTreeMap<String, String> {
        self.kept.lock().unwrap().resource.clone()
    }

    /// The value of a header of each request.
    pub(crate) fn header(&self, name: &str) -> Vec<Option<String>> {
        let kept = self.kept.lock().unwrap();
        let value = |headers: &HeaderMap| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        kept.headers.iter().map(value).collect()
    }
}

async fn take(State(kept): State<Arc<Mutex<Kept>>>, headers: HeaderMap, body: Bytes) -> Vec<u8> {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    let mut kept = kept.lock().unwrap();
    kept.headers.push(headers);
    for of_resource in request.resource_spans {
        kept.resource
            .extend(texts(of_resource.resource.unwrap_or_default().attributes));
        for of_scope in of_resource.scope_spans {
            kept.spans.extend(of_scope.spans.into_iter().map(|span| Span {
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                name: span.name,
                attributes: texts(span.attributes),
                began_ns: span.start_time_unix_nano,
                ended_ns: span.end_time_unix_nano,
                status: span.status.unwrap_or_default().code,
            }));
        }
    }
    Vec::new()
}

fn texts(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value: Option<AnyValue>| match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        other => format!("{other:?}"),
    };
    attributes.into_iter().map(|it| (it.key, text(it.value))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
