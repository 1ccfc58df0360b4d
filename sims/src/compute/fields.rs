//! Objects in answers.

use serde_json::Value;

/// The object without the fields that are null: the API leaves out a field without a value.
pub(super) fn without_nulls(mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.retain(|_, value| !value.is_null());
    }
    object
}
