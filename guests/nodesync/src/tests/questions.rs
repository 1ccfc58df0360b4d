//! What a guest asks, and answers that are not the usual ones: for the native tests of several guests.

use serde_json::{Value, json};

/// An import that gives a different answer for a while.
#[derive(Debug, Clone)]
struct Fault {
    call: String,
    answer: Value,
    /// How many more calls it answers; `None` answers all.
    times: Option<u64>,
    /// Applies only to calls whose arguments contain this.
    matching: Value,
}

/// The questions since the last look, and the pending faults.
#[derive(Debug, Clone, Default)]
pub(crate) struct Questions {
    calls: Vec<Value>,
    faults: Vec<Fault>,
}

impl Questions {
    /// Records a question. Returns the answer of a pending fault, if there is one; then nothing else happens.
    pub(crate) fn ask(&mut self, call: &str, args: &Value) -> Option<Value> {
        self.calls.push(json!({"call": call, "args": args}));
        let fits = |fault: &Fault| fault.call == call && fault.times != Some(0) && contains(args, &fault.matching);
        let fault = self.faults.iter_mut().find(|fault| fits(fault))?;
        fault.times = fault.times.map(|times| times - 1);
        Some(fault.answer.clone())
    }

    /// The questions since the last call.
    pub(crate) fn take_calls(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.calls)
    }

    /// Removes all faults.
    pub(crate) fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// Makes an import fail: a `fault` step as scenarios write it.
    pub(crate) fn add_fault(&mut self, fault: &Value) {
        let answer = fault.get("answer").cloned();
        let call = fault.get("call").and_then(Value::as_str);
        self.faults.push(Fault {
            call: call.unwrap_or_else(|| panic!("{fault} has no text `call`")).to_owned(),
            answer: answer
                .unwrap_or_else(|| json!({"Err": fault.get("error").expect("a fault has an error or an answer")})),
            times: fault.get("times").map_or(Some(1), Value::as_u64),
            matching: fault.get("match").cloned().unwrap_or_else(|| json!({})),
        });
    }
}

/// Compares objects by subset, the rest by equality.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(key, part)| whole.get(key).is_some_and(|whole| contains(whole, part))),
        _ => whole == part,
    }
}
