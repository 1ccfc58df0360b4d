//! Lines of log as JSON: one object a line, with the fields of the event and of the spans that it is in, side by side.

use std::fmt;

use serde_json::{Map, Value};
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
            let of_span = parsed(of_span.map_or("", |fields| &fields.fields)).into_iter();
            fields.extend(of_span.filter(|(name, _)| !name.starts_with(OF_TRACES)));
        }
        // The fields of the event override those of its spans.
        let mut own = String::new();
        context.format_fields(Writer::new(&mut own), event)?;
        fields.extend(parsed(&own));
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
        fields.retain(|name, _| head.iter().all(|(taken, _)| taken != name));
        for (name, value) in fields {
            write!(writer, ",{}:{value}", Value::from(name))?;
        }
        writeln!(writer, "}}")
    }
}

/// What `JsonFields` wrote.
fn parsed(fields: &str) -> Map<String, Value> {
    serde_json::from_str(fields).unwrap_or_default()
}
