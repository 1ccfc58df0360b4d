//! `[telemetry]`: the format of the log, and the destination of traces.

use super::section::Section;

/// `[telemetry]`: what the host reports beyond its metrics.
#[derive(Debug, Clone, PartialEq)]
pub struct Telemetry {
    /// The format of log lines on stderr. Default: text.
    pub log: LogFormat,
    /// The base URL of a collector for OTLP over HTTP, such as `http://127.0.0.1:4318`. `None`: no traces, unless the
    /// standard variable `OTEL_EXPORTER_OTLP_ENDPOINT` names a collector.
    pub otlp: Option<String>,
    /// The sampled fraction of decisions, 0 to 1. Default: 1.
    pub sample: f64,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON object per line.
    Json,
}

/// The names of the formats.
const FORMATS: [(&str, LogFormat); 2] = [("text", LogFormat::Text), ("json", LogFormat::Json)];

impl LogFormat {
    /// The variable for the key.
    pub const VARIABLE: &'static str = "TRUEUP_TELEMETRY_LOG";

    /// The format with this name, for commands that read no configuration.
    ///
    /// # Errors
    /// One line that says what the name must be.
    pub fn named(word: &str) -> Result<Self, String> {
        let named = FORMATS.iter().find(|(name, _)| *name == word);
        named.map(|(_, format)| *format).ok_or_else(|| {
            let words = super::section::words(&FORMATS);
            format!("{}: was \"{word}\", must be {words}", Self::VARIABLE)
        })
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            log: LogFormat::default(),
            otlp: None,
            sample: 1.0,
        }
    }
}

impl Telemetry {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let default = Self::default();
        let log = section.choice("log", default.log, &FORMATS);
        let url = "be the URL of a collector, such as http://127.0.0.1:4318";
        let otlp = section.value("otlp", url, |given| {
            let text = given.filled()?;
            let url = url::Url::parse(text).ok()?;
            let is_http = matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none();
            // The log shows the URL. Secrets belong in `OTEL_EXPORTER_OTLP_HEADERS`.
            let is_public = url.username().is_empty() && url.password().is_none();
            (is_http && is_public).then(|| text.trim_end_matches('/').to_owned())
        });
        let sample = section.value("sample", "be a number from 0 to 1", |given| {
            given.number().filter(|part| (0.0..=1.0).contains(part))
        });
        Self {
            log,
            otlp,
            sample: sample.unwrap_or(default.sample),
        }
    }
}
