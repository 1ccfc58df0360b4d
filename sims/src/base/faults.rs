//! Faults: what is to go wrong, and what of it is left.
//!
//! Knows requests by method and path alone. The pipeline applies faults to requests; each server applies the counted
//! failures (`fail`) to what it does later, and says how its faults are written.

use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::pattern::fits_pattern;

/// A fault. `T` is how the server writes it.
#[derive(Clone, Debug)]
pub struct Fault<T> {
    fields: FaultFields,
    text: PhantomData<fn() -> T>,
}

/// On which side of a request's effect a fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum When {
    /// A request that is ended here leaves no trace.
    Before,
    /// The effect stays, whatever the client sees.
    After,
}

/// The fields with which one server writes its faults.
pub trait FaultText: Clone + Serialize + DeserializeOwned + 'static {
    /// The field that counts what fails later.
    const FAIL: &'static str;
    /// Whether `message` goes with it.
    const FAIL_HAS_MESSAGE: bool;

    /// All fields; those that the server does not know are `None`.
    fn into_fields(self) -> FaultFields;

    /// The fields that the server knows.
    fn from_fields(fields: FaultFields) -> Self;
}

/// Every field of every server's faults. A [`Fault`] has exactly one of `status`, `delay_ms`, `close` and `fail`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultFields {
    /// The requests' method; `*` (the default) is any.
    pub(crate) method: Option<String>,
    /// The requests' path as it was sent, where each `*` (the default) stands for any text, `/` and none included. A
    /// path that holds a `?` is compared with path and query.
    pub(crate) path: Option<String>,
    /// How often the fault happens; absent means without end.
    pub(crate) times: Option<u32>,
    /// The request is answered with an error of this status, 400 to 599.
    pub(crate) status: Option<u16>,
    /// The reason in the answer. Default: the usual one of the status, as for the message.
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) retry_after_s: Option<u64>,
    /// The body itself, in place of an error in JSON.
    pub(crate) body: Option<String>,
    /// The request takes longer.
    pub(crate) delay_ms: Option<u64>,
    /// The connection is closed without an answer.
    pub(crate) close: Option<When>,
    /// The server's later work fails this many times, with `code` and `message`.
    pub(crate) fail: Option<u32>,
    pub(crate) code: Option<String>,
    /// The side of `status` and `delay_ms`. Default: before.
    pub(crate) when: Option<When>,
}

/// Declares the fields of one server's faults, in the order in which they are written.
macro_rules! fault_text {
    (
        $(#[$outer:meta])*
        $name:ident, fail = $fail:literal, fail_has_message = $message:literal,
        { $($(#[$inner:meta])* $field:ident: $type:ty),* $(,)? }
    ) => {
        $(#[$outer])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[$inner])* #[serde(skip_serializing_if = "Option::is_none")] $field: Option<$type>),*
        }

        impl $crate::base::faults::FaultText for $name {
            const FAIL: &'static str = $fail;
            const FAIL_HAS_MESSAGE: bool = $message;

            fn into_fields(self) -> $crate::base::faults::FaultFields {
                let mut fields = $crate::base::faults::FaultFields::default();
                $(fields.$field = self.$field;)*
                fields
            }

            fn from_fields(fields: $crate::base::faults::FaultFields) -> Self {
                Self { $($field: fields.$field),* }
            }
        }
    };
}
pub(crate) use fault_text;

impl FaultFields {
    /// Sets the defaults, or returns the first problem.
    fn checked<T: FaultText>(mut self) -> Result<Self, String> {
        let fail = T::FAIL;
        let (has_status, has_delay, has_fail) = (self.status.is_some(), self.delay_ms.is_some(), self.fail.is_some());
        let of_status = self.reason.is_some() || self.retry_after_s.is_some() || self.body.is_some();
        let and_fail = if T::FAIL_HAS_MESSAGE {
            format!(" and `{fail}`")
        } else {
            String::new()
        };
        let has_place_for_message = has_status || (T::FAIL_HAS_MESSAGE && has_fail);
        let effects = [has_status, has_delay, self.close.is_some(), has_fail];
        let rules = [
            (
                of_status && !has_status,
                "`reason`, `retry_after_s` and `body` go with `status` alone".to_owned(),
            ),
            (
                self.message.is_some() && !has_place_for_message,
                format!("`message` goes with `status`{and_fail} alone"),
            ),
            (
                self.code.is_some() && !has_fail,
                format!("`code` goes with `{fail}` alone"),
            ),
            (
                self.when.is_some() && !has_status && !has_delay,
                "`when` goes with `status` and `delay_ms` alone".to_owned(),
            ),
            (
                self.times.is_some() && has_fail,
                format!("`times` must be absent where `{fail}` says how many"),
            ),
            (
                effects.iter().filter(|is_set| **is_set).count() != 1,
                format!("must hold exactly one of `status`, `delay_ms`, `close` and `{fail}`"),
            ),
            (
                self.status.is_some_and(|status| !(400..=599).contains(&status)),
                format!("status was {}, must be 400 to 599", self.status.unwrap_or_default()),
            ),
        ];
        if let Some((_, problem)) = rules.into_iter().find(|(is_broken, _)| *is_broken) {
            return Err(format!("fault: {problem}"));
        }
        self.method.get_or_insert_with(|| "*".to_owned());
        self.path.get_or_insert_with(|| "*".to_owned());
        if has_status || has_delay {
            self.when.get_or_insert(When::Before);
        }
        Ok(self)
    }

    fn fits(&self, method: &str, path: &str, query: Option<&str>) -> bool {
        let fits_method = |wanted: &str| wanted == "*" || wanted.eq_ignore_ascii_case(method);
        let fits_path = |wanted: &str| match query {
            Some(query) if wanted.contains('?') => fits_pattern(wanted, &format!("{path}?{query}")),
            _ => fits_pattern(wanted, path),
        };
        self.method.as_deref().is_none_or(fits_method) && self.path.as_deref().is_none_or(fits_path)
    }
}

impl<T: FaultText> Serialize for Fault<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        T::from_fields(self.fields.clone()).serialize(serializer)
    }
}

impl<'de, T: FaultText> Deserialize<'de> for Fault<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = T::deserialize(deserializer)?.into_fields().checked::<T>();
        Ok(Self {
            fields: fields.map_err(D::Error::custom)?,
            text: PhantomData,
        })
    }
}

/// The faults that are left, oldest first.
pub(crate) struct Faults<T>(Vec<Fault<T>>);

impl<T> Faults<T> {
    pub(crate) fn new(faults: Vec<Fault<T>>) -> Self {
        let mut left = Self(faults);
        left.drop_spent();
        left
    }

    pub(crate) fn add(&mut self, fault: Fault<T>) {
        self.0.push(fault);
        self.drop_spent();
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn left(&self) -> &[Fault<T>] {
        &self.0
    }

    /// The fault of this request.
    pub(crate) fn for_request(&mut self, method: &str, path: &str, query: Option<&str>) -> Option<FaultFields> {
        self.take(|fault| fault.fail.is_none() && fault.fits(method, path, query))
    }

    /// The fault of what the server does after this request.
    pub(crate) fn for_later(&mut self, method: &str, path: &str) -> Option<FaultFields> {
        self.take(|fault| fault.fail.is_some() && fault.fits(method, path, None))
    }

    /// The first fault that is wanted. Uses up one of its times.
    fn take(&mut self, is_wanted: impl Fn(&FaultFields) -> bool) -> Option<FaultFields> {
        let mut wanted = self.0.iter_mut().map(|fault| &mut fault.fields);
        let fault = wanted.find(|fault| is_wanted(fault))?;
        let taken = fault.clone();
        for left in [&mut fault.times, &mut fault.fail] {
            *left = left.map(|left| left - 1);
        }
        self.drop_spent();
        Some(taken)
    }

    fn drop_spent(&mut self) {
        let is_spent = |fault: &FaultFields| fault.times == Some(0) || fault.fail == Some(0);
        self.0.retain(|fault| !is_spent(&fault.fields));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{compute, lbaas};

    #[test]
    fn the_first_fault_that_fits_happens_until_it_is_used_up() {
        let fault = |text: &str| serde_json::from_str::<compute::Fault>(text).unwrap();
        let mut faults = Faults::new(vec![
            fault(r#"{"method": "post", "path": "/a*", "times": 1, "status": 503}"#),
            fault(r#"{"path": "*?x=1", "close": "after"}"#),
            fault(r#"{"fail_operations": 2, "path": "/a/*", "method": "PUT", "code": "C"}"#),
        ]);
        let none = faults.for_request("GET", "/a", None);
        assert_eq!(none, None, "neither method nor query fits");
        let first = faults.for_request("POST", "/a", Some("x=1")).unwrap();
        assert_eq!((first.status, first.when), (Some(503), Some(When::Before)));
        let second = faults.for_request("POST", "/a", Some("x=1")).unwrap();
        assert_eq!(second.close, Some(When::After), "the first is used up");

        assert_eq!(faults.for_later("POST", "/a/1"), None);
        for _ in 0..2 {
            let failure = faults.for_later("PUT", "/a/1").unwrap();
            assert_eq!(failure.code.as_deref(), Some("C"));
        }
        assert_eq!(faults.for_later("PUT", "/a/1"), None);
        assert_eq!(faults.left().len(), 1);
    }

    fn check_refused<T: FaultText + std::fmt::Debug>(refused: &[(&str, &str)]) {
        for (text, reason) in refused {
            let error = serde_json::from_str::<Fault<T>>(text).unwrap_err().to_string();
            assert!(error.starts_with(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_fault_does_exactly_one_thing() {
        let both = [
            (
                r#"{"path": "/a"}"#,
                "fault: must hold exactly one of `status`, `delay_ms`",
            ),
            (
                r#"{"status": 500, "close": "before"}"#,
                "fault: must hold exactly one of",
            ),
            (r#"{"status": 200}"#, "fault: status was 200, must be 400 to 599"),
            (
                r#"{"close": "before", "message": "m"}"#,
                "fault: `message` goes with `status`",
            ),
            (r#"{"close": "before", "when": "after"}"#, "fault: `when` goes with"),
            (r#"{"statsu": 500}"#, "unknown field `statsu`, expected one of `method`"),
        ];
        check_refused::<lbaas::EngineFaultText>(&both);
        check_refused::<compute::ComputeFaultText>(&both);
        check_refused::<lbaas::EngineFaultText>(&[
            (
                r#"{"fail_next": 1, "times": 2}"#,
                "fault: `times` must be absent where `fail_next`",
            ),
            (
                r#"{"fail_next": 1, "message": "m"}"#,
                "fault: `message` goes with `status` alone",
            ),
            (r#"{"status": 500, "reason": "r"}"#, "unknown field `reason`"),
            (r#"{"fail_operations": 1}"#, "unknown field `fail_operations`"),
        ]);
        check_refused::<compute::ComputeFaultText>(&[
            (r#"{"fail_operations": 1, "times": 2}"#, "fault: `times` must be absent"),
            (
                r#"{"delay_ms": 1, "message": "m"}"#,
                "fault: `message` goes with `status` and `fail_operations`",
            ),
            (
                r#"{"delay_ms": 1, "code": "C"}"#,
                "fault: `code` goes with `fail_operations` alone",
            ),
            (
                r#"{"delay_ms": 1, "reason": "r"}"#,
                "fault: `reason`, `retry_after_s` and `body`",
            ),
            (r#"{"fail_next": 1}"#, "unknown field `fail_next`"),
        ]);
    }

    fn check_written<T: FaultText>(written: &[&str]) {
        for text in written {
            let fault: Fault<T> = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&fault).unwrap(), *text);
        }
    }

    #[test]
    fn a_fault_is_written_as_it_is_read() {
        let both = [
            r#"{"method":"*","path":"*","times":2,"status":503,"message":"later","when":"after"}"#,
            r#"{"method":"GET","path":"/a","delay_ms":5,"when":"before"}"#,
            r#"{"method":"*","path":"*","close":"after"}"#,
        ];
        check_written::<lbaas::EngineFaultText>(&both);
        check_written::<compute::ComputeFaultText>(&both);
        check_written::<lbaas::EngineFaultText>(&[r#"{"method":"POST","path":"*","fail_next":3}"#]);
        check_written::<compute::ComputeFaultText>(&[
            r#"{"method":"*","path":"*","status":403,"reason":"r","retry_after_s":3,"when":"after"}"#,
            r#"{"method":"*","path":"*","status":502,"body":"<html>","when":"before"}"#,
            r#"{"method":"POST","path":"*","fail_operations":3,"code":"C"}"#,
        ]);
    }
}
