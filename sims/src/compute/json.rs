//! Parts of answers.

use serde_json::Value;

/// The object without the fields that are null: the API leaves out a field without a value.
pub(super) fn without_nulls(mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.retain(|_, value| !value.is_null());
    }
    object
}

/// RFC 3339 with milliseconds, such as `2026-01-31T12:00:00.000+00:00`; 1970 if the time is out of range.
pub(super) fn timestamp(ms: u64) -> String {
    let time = i64::try_from(ms)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    time.unwrap_or(jiff::Timestamp::UNIX_EPOCH)
        .strftime("%Y-%m-%dT%H:%M:%S.%3f+00:00")
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_with_milliseconds_and_an_offset() {
        assert_eq!(timestamp(1_767_225_600_007), "2026-01-01T00:00:00.007+00:00");
        assert_eq!(timestamp(u64::MAX), "1970-01-01T00:00:00.000+00:00");
    }
}
