//! Faults that a scenario injects: they replace the answers of the next calls of an import.
//!
//! Handles plain values and no particular interface. A request goes to its backend only if no fault answers it. A fault
//! whose answer has the wrong type changes nothing; it becomes a *misfit*, which the scenario runner reports.
//!
//! ```text
//! scenario -> add -> [oldest .. newest] <- whole <- each request
//!                                       <- entry, list <- the simulated backend, for a request with a list of answers
//! ```

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// An answer that replaces the simulation of one import.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// The import, `interface.function` in WIT spelling.
    pub call: String,
    /// The whole answer: `{"Err": E}` for an error.
    pub answer: Value,
    /// How many calls it answers; `None` means forever.
    pub times: Option<u64>,
    /// Limits the fault to calls whose arguments contain this. If the import takes a list and returns one, it limits
    /// the elements.
    pub matching: Option<Value>,
}

/// The faults of one simulated world, oldest first.
#[derive(Debug, Default)]
pub struct Faults(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    faults: Vec<Fault>,
    misfits: Vec<String>,
}

impl Faults {
    /// Adds a fault after all existing ones.
    pub fn add(&self, fault: Fault) {
        self.0.lock().faults.push(fault);
    }

    /// Removes every fault.
    pub fn clear(&self) {
        self.0.lock().faults.clear();
    }

    /// Takes the errors of misfits since the last call, one line each.
    pub fn take_misfits(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().misfits)
    }

    /// The answer to a call whose arguments match as a whole; `None` if no fault matches.
    pub fn whole<R: DeserializeOwned>(&self, call: &str, args: &(impl Serialize + ?Sized)) -> Option<R> {
        self.turn(call).entry(args)
    }

    /// Begins a call of an import in which each element is then looked up separately.
    pub fn turn<'a>(&'a self, call: &'a str) -> Turn<'a> {
        let state = self.0.lock();
        let fits = |fault: &Fault| fault.call == call && fault.times != Some(0);
        let fitting = state.faults.iter().any(fits);
        Turn {
            call,
            state: fitting.then_some(state),
            used: Vec::new(),
        }
    }
}

/// One call of an import. It uses up at most one of a fault's times, however many elements that fault answers.
#[derive(Debug)]
pub struct Turn<'a> {
    call: &'a str,
    /// `None` if no fault names this import: the usual case does not inspect the arguments.
    state: Option<MutexGuard<'a, State>>,
    /// Indices of the faults that have answered in this turn.
    used: Vec<usize>,
}

impl Turn<'_> {
    /// The answer for one element of the call's list, from the oldest matching fault; `None` if none matches.
    pub fn entry<R: DeserializeOwned>(&mut self, element: &(impl Serialize + ?Sized)) -> Option<R> {
        self.answer(|fault, value| fault.fits(value), element)
    }

    /// The answer to the whole list, from a fault that gives a list: the oldest one that matches any of the `elements`.
    pub fn list<R: DeserializeOwned>(&mut self, elements: &[impl Serialize]) -> Option<Vec<R>> {
        let fits = |fault: &Fault, value: &Value| {
            let any = |values: &Vec<Value>| values.iter().any(|element| fault.fits(element));
            fault.answer.is_array() && value.as_array().is_some_and(any)
        };
        self.answer(fits, &elements)
    }

    fn answer<R: DeserializeOwned>(
        &mut self,
        fits: impl Fn(&Fault, &Value) -> bool,
        args: &(impl Serialize + ?Sized),
    ) -> Option<R> {
        let state = self.state.as_deref_mut()?;
        let call = self.call;
        let used = &mut self.used;
        let value = serde_json::to_value(args);
        let value = value.map_err(|error| format!("faults on `{call}`: its arguments are no JSON: {error}"));
        let value = value.map_err(|misfit| state.misfits.push(misfit)).ok()?;
        let may_answer = |index: usize, fault: &Fault| {
            fault.call == call && (fault.times != Some(0) || used.contains(&index)) && fits(fault, &value)
        };
        let mut faults = state.faults.iter_mut().enumerate();
        let (index, fault) = faults.find(|(index, fault)| may_answer(*index, fault))?;
        if !used.contains(&index) {
            used.push(index);
            fault.times = fault.times.map(|times| times.saturating_sub(1));
        }
        let answer = serde_json::from_value(fault.answer.clone());
        let answer = answer.map_err(|error| format!("fault on `{call}`: {} is no answer of it: {error}", fault.answer));
        answer.map_err(|misfit| state.misfits.push(misfit)).ok()
    }
}

impl Fault {
    fn fits(&self, args: &Value) -> bool {
        self.matching.as_ref().is_none_or(|wanted| contains(args, wanted))
    }
}

/// Compares objects by subset at every depth, and everything else by equality.
pub fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(key, part)| whole.get(key).is_some_and(|value| contains(value, part))),
        _ => whole == part,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    type Answer = Result<u32, String>;

    fn fault(answer: Value, times: Option<u64>, matching: Option<Value>) -> Fault {
        Fault {
            call: "kv.put".into(),
            answer,
            times,
            matching,
        }
    }

    fn put(faults: &Faults) -> Option<Answer> {
        faults.whole("kv.put", &json!({"key": "/a/b", "value": "1"}))
    }

    #[test]
    fn a_fault_answers_its_own_import_as_often_as_it_says() {
        let faults = Faults::default();
        faults.add(fault(json!({"Err": "down"}), Some(2), None));
        assert_eq!(faults.whole::<Answer>("kv.get", &json!({})), None);
        assert_eq!(put(&faults), Some(Err("down".into())));
        assert_eq!(put(&faults), Some(Err("down".into())));
        assert_eq!(put(&faults), None);
    }

    #[test]
    fn for_ever_ends_with_clear() {
        let faults = Faults::default();
        faults.add(fault(json!({"Ok": 7}), None, None));
        for _ in 0..100 {
            assert_eq!(put(&faults), Some(Ok(7)));
        }
        faults.clear();
        assert_eq!(put(&faults), None);
    }

    #[test]
    fn of_several_that_fit_the_oldest_with_times_left_answers() {
        let faults = Faults::default();
        faults.add(fault(json!({"Ok": 0}), None, Some(json!({"key": "/other"}))));
        faults.add(fault(json!({"Ok": 1}), Some(1), None));
        faults.add(fault(json!({"Ok": 2}), Some(1), Some(json!({"key": "/a/b"}))));
        assert_eq!(put(&faults), Some(Ok(1)));
        assert_eq!(put(&faults), Some(Ok(2)));
        assert_eq!(put(&faults), None);
    }

    #[test]
    fn one_call_uses_up_one_time_however_many_entries_fail() {
        let faults = Faults::default();
        faults.add(fault(json!({"Err": "a"}), Some(1), Some(json!({"name": "a"}))));
        faults.add(fault(json!({"Err": "any"}), Some(2), None));
        let names = [
            json!({"name": "a", "port": 1}),
            json!({"name": "b"}),
            json!({"name": "a", "port": 2}),
        ];
        let ask = |turn: &mut Turn<'_>| -> Vec<Option<Answer>> { names.iter().map(|name| turn.entry(name)).collect() };
        let (a, any) = (Some(Err("a".to_owned())), Some(Err("any".to_owned())));
        assert_eq!(ask(&mut faults.turn("kv.put")), [a.clone(), any.clone(), a]);
        assert_eq!(ask(&mut faults.turn("kv.put")), [any.clone(), any.clone(), any]);
        assert_eq!(ask(&mut faults.turn("kv.put")), [None, None, None]);
    }

    #[test]
    fn entries_that_are_not_asked_for_use_up_nothing() {
        let faults = Faults::default();
        faults.add(fault(json!({"Err": "late"}), Some(1), None));
        drop(faults.turn("kv.put"));
        assert_eq!(put(&faults), Some(Err("late".into())));
    }

    #[test]
    fn a_list_as_answer_is_the_answer_to_the_whole_list() {
        let faults = Faults::default();
        faults.add(fault(json!([{"Ok": 1}]), Some(1), Some(json!({"name": "b"}))));
        let list = |names: &[Value]| faults.turn("kv.put").list::<Answer>(names);
        assert_eq!(list(&[json!({"name": "a"})]), None);
        assert_eq!(list(&[]), None);
        assert_eq!(list(&[json!({"name": "a"}), json!({"name": "b"})]), Some(vec![Ok(1)]));
        assert_eq!(list(&[json!({"name": "b"})]), None);
        assert_eq!(faults.take_misfits(), [""; 0]);
    }

    #[test]
    fn an_answer_of_another_type_changes_nothing_and_is_told() {
        let faults = Faults::default();
        faults.add(fault(json!({"Err": 5}), Some(1), None));
        assert_eq!(put(&faults), None);
        let misfits = faults.take_misfits();
        assert_eq!(misfits.len(), 1);
        assert!(
            misfits[0].starts_with("fault on `kv.put`: {\"Err\":5} is no answer of it: "),
            "{misfits:?}"
        );
        assert_eq!(faults.take_misfits(), [""; 0]);
    }

    #[test]
    fn only_objects_match_by_subset() {
        let whole = json!({"neg": {"name": "n", "zone": "z"}, "list": [1, 2]});
        assert!(contains(&whole, &json!({})));
        assert!(contains(&whole, &json!({"neg": {"zone": "z"}})));
        assert!(contains(&whole, &json!({"list": [1, 2]})));
        assert!(!contains(&whole, &json!({"list": [1]})));
        assert!(!contains(&whole, &json!({"neg": {"zone": "y"}})));
        assert!(!contains(&whole, &json!({"absent": null})));
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..4).prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map("[ab]", inner, 0..3).prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn containing_is_an_order_up_to_equality(a in values(), b in values(), c in values()) {
            prop_assert!(contains(&a, &a));
            if contains(&a, &b) && contains(&b, &a) {
                prop_assert_eq!(&a, &b);
            }
            if contains(&a, &b) && contains(&b, &c) {
                prop_assert!(contains(&a, &c));
            }
        }
    }
}
