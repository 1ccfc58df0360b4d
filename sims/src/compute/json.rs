//! Parts of requests and answers.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::refusal::Refusal;

/// What a client sent as `field`, in which `null` is not a value.
pub(super) fn read<T: DeserializeOwned>(field: &str, sent: &Value) -> Result<T, Refusal> {
    let mut members = sent.as_object().into_iter().flatten();
    if let Some((name, value)) = members.find(|(_, value)| value.is_null()) {
        let why = "A field without a value is left out.";
        return Err(Refusal::invalid_field(&format!("{field}.{name}"), value, why));
    }
    serde_path_to_error::deserialize(sent).map_err(|error| {
        let why = error.inner().to_string();
        let Some(member) = error.path().iter().next().map(ToString::to_string) else {
            return Refusal::invalid_field(field, sent, &why);
        };
        let value = sent.get(&member).unwrap_or(sent);
        Refusal::invalid_field(&format!("{field}.{member}"), value, &why)
    })
}

/// The object without the fields that are null: the API leaves out a field without a value.
pub(super) fn without_nulls(mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.retain(|_, value| !value.is_null());
    }
    object
}

/// RFC 3339 with milliseconds, such as `2026-01-31T12:00:00.000+00:00`; 1970 if the time is out of range.
pub(super) fn timestamp(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or_default();
    let time = jiff::Timestamp::from_millisecond(ms).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%S.%3f+00:00").to_string()
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
