//! Objects in answers.

use serde_json::Value;

/// The object of these fields, without those that have no value.
pub(super) fn object(fields: impl IntoIterator<Item = (&'static str, Option<Value>)>) -> Value {
    let fields = fields.into_iter();
    let given = fields.filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(given.collect())
}
