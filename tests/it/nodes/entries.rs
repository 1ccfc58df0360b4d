//! The contents of a recording: each call with its questions and its end, matched by their numbers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use support::files_under;

/// The recording of one instance, over all its segments.
pub(crate) struct Entries {
    by_number: BTreeMap<u64, Value>,
}

/// A call of an export.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) n: u64,
    pub(crate) name: String,
    pub(crate) args: Value,
    /// The entry of another instance that caused it; null if there is none.
    pub(crate) by: Value,
    /// Its result; `None` if it has not ended or was cut.
    pub(crate) result: Option<Value>,
}

/// The segments of the recording of an instance, in order of their names.
pub(crate) fn segments(state: &Path, guest: &str, instance: &str) -> Vec<PathBuf> {
    let all = files_under(&state.join("journals").join(guest).join(instance));
    all.into_iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "jsonl"))
        .collect()
}

impl Entries {
    /// Works while the host writes: skips an incomplete last line.
    pub(crate) fn read(state: &Path, guest: &str, instance: &str) -> Self {
        let mut by_number = BTreeMap::new();
        for file in segments(state, guest, instance) {
            let text = fs::read_to_string(file).unwrap();
            let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            for line in whole {
                let entry: Value = serde_json::from_str(line).unwrap();
                by_number.insert(entry["n"].as_u64().unwrap(), entry);
            }
        }
        Self { by_number }
    }

    #[track_caller]
    pub(crate) fn at(&self, n: u64) -> &Value {
        self.by_number.get(&n).unwrap_or_else(|| panic!("no entry {n}"))
    }

    /// All calls, in order.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let mut calls: Vec<Call> = Vec::new();
        for (n, entry) in &self.by_number {
            if let Some(name) = entry["call"].as_str() {
                calls.push(Call {
                    n: *n,
                    name: name.to_owned(),
                    args: entry["args"].clone(),
                    by: entry["by"].clone(),
                    result: None,
                });
            } else if let (Some(result), Some(call)) = (entry.get("result"), calls.last_mut()) {
                call.result = Some(result.clone());
            }
        }
        calls
    }

    /// The calls of this name.
    pub(crate) fn calls_of(&self, name: &str) -> Vec<Call> {
        self.calls().into_iter().filter(|call| call.name == name).collect()
    }

    /// The call of an entry.
    #[track_caller]
    pub(crate) fn call_of(&self, n: u64) -> Call {
        let calls = self.calls().into_iter().rev();
        calls
            .into_iter()
            .find(|call| call.n <= n)
            .unwrap_or_else(|| panic!("no call before entry {n}"))
    }

    /// The questions of this name, in order: their arguments.
    pub(crate) fn asks_of(&self, name: &str) -> Vec<Value> {
        let all = self.by_number.values().filter(|entry| entry["ask"] == name);
        all.map(|entry| entry["args"].clone()).collect()
    }
}
