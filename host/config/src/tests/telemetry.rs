//! `[telemetry]`: the format of the log, and the destination of traces.

use super::*;

#[test]
fn without_telemetry_the_log_is_text_and_there_are_no_traces() {
    let config = load(LEAST, &[]).unwrap();
    let expected = Telemetry {
        log: LogFormat::Text,
        otlp: None,
        sample: 1.0,
    };
    assert_eq!(config.telemetry, expected);
    assert_eq!((config.telemetry.log, config.telemetry.sample), (LogFormat::Text, 1.0));
}

#[test]
fn telemetry_comes_from_the_file_and_from_variables() {
    let text = format!("{LEAST}[telemetry]\nlog = \"json\"\notlp = \"http://127.0.0.1:4318/\"\nsample = 0.25\n");
    let telemetry = load(&text, &[]).unwrap().telemetry;
    let expected = Telemetry {
        log: LogFormat::Json,
        otlp: Some("http://127.0.0.1:4318".to_owned()),
        sample: 0.25,
    };
    assert_eq!(telemetry, expected);
    let variables = [("TRUEUP_TELEMETRY_LOG", "text"), ("TRUEUP_TELEMETRY_SAMPLE", "1")];
    let telemetry = load(&text, &variables).unwrap().telemetry;
    assert_eq!((telemetry.log, telemetry.sample), (LogFormat::Text, 1.0));
}

#[test]
fn telemetry_that_can_not_be_is_said() {
    refused_with(
        "",
        "[telemetry]\nlog = \"xml\"\notlp = \"127.0.0.1:4318\"\nsample = 2\ntraces = true\n",
        &[
            "trueup.toml:12: telemetry.log: was \"xml\", must be \"text\" or \"json\"",
            "trueup.toml:13: telemetry.otlp: was \"127.0.0.1:4318\", must be the URL of a collector, such as \
             http://127.0.0.1:4318",
            "trueup.toml:14: telemetry.sample: was 2, must be a number from 0 to 1",
            "trueup.toml:15: unknown key `traces` in [telemetry] (known: log, otlp, sample)",
        ],
    );
    assert_eq!(
        LogFormat::named("xml").unwrap_err(),
        "TRUEUP_TELEMETRY_LOG: was \"xml\", must be \"text\" or \"json\""
    );
}
