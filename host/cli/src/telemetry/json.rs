//! Lines of log as JSON: one object a line, with the fields of the event and of the spans that it is in, side by side.

use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// The prefix of span fields that are not data, but set how a trace names the span.
const OF_TRACES: &str = "otel.";

/// Writes `{"timestamp","level","target","message", ...}`.
pub(super) struct Lines;

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Map::new();
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            let extensions = span.extensions();
            let of_span = extensions.get::<FormattedFields<N>>();
            let of_span = of_span.and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
            fields.extend(
                of_span
                    .into_iter()
                    .flatten()
                    .filter(|(name, _)| !name.starts_with(OF_TRACES)),
            );
        }
        let mut own = Fields(&mut fields);
        event.record(&mut own);
        let message = fields.remove("message").unwrap_or_else(|| Value::from(""));
        let metadata = event.metadata();
        let head = [
            ("timestamp", Value::from(format!("{:.6}", jiff::Timestamp::now()))),
            ("level", Value::from(metadata.level().as_str())),
            ("target", Value::from(metadata.target())),
            ("message", message),
        ];
        // This order makes a raw line readable.
        write!(writer, "{{")?;
        for (at, (name, value)) in head.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(writer, "{comma}{}:{value}", Value::from(*name))?;
        }
        for (name, value) in fields
            .iter()
            .filter(|(name, _)| head.iter().all(|(taken, _)| taken != name))
        {
            write!(writer, ",{}:{value}", Value::from(name.as_str()))?;
        }
        writeln!(writer, "}}")
    }
}

/// Collects the fields of an event, which override those of its spans.
struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}
