//! The faults to inject, and how many times each has left.
//!
//! Knows requests only by method and path. The door (`door.rs`) applies faults to requests, the calls (`calls.rs`) to
//! operations.

use serde::{Deserialize, Serialize};

use super::operation::Failure;
use crate::sim::pattern::fits_pattern;

/// The default code of an operation that fails by a fault.
const CODE_DEFAULT: &str = "INTERNAL_ERROR";
const MESSAGE_DEFAULT: &str = "Internal error. Please try again.";

/// A fault to inject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "FaultText", into = "FaultText")]
pub struct Fault {
    /// The requests' method; `*` (the default) matches any.
    pub method: String,
    /// The requests' path as sent. Each `*` matches any text, including none and `/`; default `*`. A pattern that
    /// contains `?` is matched against path and query.
    pub path: String,
    /// How often; absent means forever.
    pub times: Option<u32>,
    /// What happens.
    pub effect: FaultEffect,
}

/// What a fault does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultEffect {
    /// The answer has this status with an error body.
    Status {
        /// 400 to 599.
        code: u16,
        /// Default: the one that belongs to the status.
        reason: Option<String>,
        /// Default: the status's usual text.
        message: Option<String>,
        /// The header `Retry-After`; default: none.
        retry_after_s: Option<u64>,
        /// The body itself, instead of an error in JSON.
        body: Option<String>,
        /// Before: there is no effect. After: the request is carried out, and its answer is replaced.
        when: When,
    },
    /// The request takes longer.
    Delay {
        /// By this many milliseconds.
        ms: u64,
        /// Before or after its effect.
        when: When,
    },
    /// The connection is closed without an answer.
    Close {
        /// Before: there is no effect. After: there is, and the client doesn't learn of it.
        when: When,
    },
    /// The next operations fail without an effect. `method` and `path` are those of their requests.
    FailOperations {
        /// How many; `times` is not used.
        operations: u32,
        /// Default: `INTERNAL_ERROR`.
        code: Option<String>,
        /// Default: `Internal error. Please try again.`
        message: Option<String>,
    },
}

/// Whether a fault happens before or after a request's effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// A request that is closed or ended here leaves no trace.
    Before,
    /// The effect remains, whatever the client sees.
    After,
}

/// A fault in its text form: exactly one of `status`, `delay_ms`, `close` and `fail_operations`.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FaultText {
    method: Option<String>,
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    close: Option<When>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fail_operations: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    when: Option<When>,
}

impl FaultText {
    /// The first field that belongs to another effect.
    fn stray(&self) -> Option<&'static str> {
        let of_status = self.reason.is_some() || self.retry_after_s.is_some() || self.body.is_some();
        if of_status && self.status.is_none() {
            return Some("fault: `reason`, `retry_after_s` and `body` go with `status` alone");
        }
        if self.message.is_some() && self.status.is_none() && self.fail_operations.is_none() {
            return Some("fault: `message` goes with `status` and `fail_operations` alone");
        }
        if self.code.is_some() && self.fail_operations.is_none() {
            return Some("fault: `code` goes with `fail_operations` alone");
        }
        if self.when.is_some() && self.status.is_none() && self.delay_ms.is_none() {
            return Some("fault: `when` goes with `status` and `delay_ms` alone");
        }
        (self.times.is_some() && self.fail_operations.is_some())
            .then_some("fault: `times` must be absent where `fail_operations` says how many")
    }
}

impl TryFrom<FaultText> for Fault {
    type Error = String;

    fn try_from(text: FaultText) -> Result<Self, String> {
        if let Some(problem) = text.stray() {
            return Err(problem.to_owned());
        }
        let when = text.when.unwrap_or(When::Before);
        let effect = match (text.status, text.delay_ms, text.close, text.fail_operations) {
            (Some(code), None, None, None) if !(400..=599).contains(&code) => {
                return Err(format!("fault: status was {code}, must be 400 to 599"));
            }
            (Some(code), None, None, None) => FaultEffect::Status {
                code,
                reason: text.reason,
                message: text.message,
                retry_after_s: text.retry_after_s,
                body: text.body,
                when,
            },
            (None, Some(ms), None, None) => FaultEffect::Delay { ms, when },
            (None, None, Some(when), None) => FaultEffect::Close { when },
            (None, None, None, Some(operations)) => FaultEffect::FailOperations {
                operations,
                code: text.code,
                message: text.message,
            },
            _ => {
                let effects = "`status`, `delay_ms`, `close` and `fail_operations`";
                return Err(format!("fault: must hold exactly one of {effects}"));
            }
        };
        Ok(Self {
            method: text.method.unwrap_or_else(|| "*".to_owned()),
            path: text.path.unwrap_or_else(|| "*".to_owned()),
            times: text.times,
            effect,
        })
    }
}

impl From<Fault> for FaultText {
    fn from(fault: Fault) -> Self {
        let text = Self {
            method: Some(fault.method),
            path: Some(fault.path),
            times: fault.times,
            ..Self::default()
        };
        match fault.effect {
            FaultEffect::Status {
                code,
                reason,
                message,
                retry_after_s,
                body,
                when,
            } => Self {
                status: Some(code),
                reason,
                message,
                retry_after_s,
                body,
                when: Some(when),
                ..text
            },
            FaultEffect::Delay { ms, when } => Self {
                delay_ms: Some(ms),
                when: Some(when),
                ..text
            },
            FaultEffect::Close { when } => Self {
                close: Some(when),
                ..text
            },
            FaultEffect::FailOperations {
                operations,
                code,
                message,
            } => Self {
                fail_operations: Some(operations),
                code,
                message,
                ..text
            },
        }
    }
}

impl Fault {
    fn fits(&self, method: &str, path: &str, query: Option<&str>) -> bool {
        if self.method != "*" && !self.method.eq_ignore_ascii_case(method) {
            return false;
        }
        match query {
            Some(query) if self.path.contains('?') => fits_pattern(&self.path, &format!("{path}?{query}")),
            _ => fits_pattern(&self.path, path),
        }
    }

    fn is_spent(&self) -> bool {
        self.times == Some(0) || matches!(self.effect, FaultEffect::FailOperations { operations: 0, .. })
    }
}

/// The remaining faults, oldest first, without those used up.
#[derive(Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    pub(super) fn new(faults: Vec<Fault>) -> Self {
        Self(faults.into_iter().filter(|fault| !fault.is_spent()).collect())
    }

    pub(super) fn add(&mut self, fault: Fault) {
        if !fault.is_spent() {
            self.0.push(fault);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn left(&self) -> &[Fault] {
        &self.0
    }

    /// The fault for this request, if any; uses up one of its times.
    pub(super) fn for_request(&mut self, method: &str, path: &str, query: Option<&str>) -> Option<FaultEffect> {
        let fault = self.0.iter_mut().find(|fault| {
            !matches!(fault.effect, FaultEffect::FailOperations { .. }) && fault.fits(method, path, query)
        })?;
        let effect = fault.effect.clone();
        if let Some(times) = &mut fault.times {
            *times -= 1;
        }
        self.0.retain(|fault| !fault.is_spent());
        Some(effect)
    }

    /// The planned failure of this request's operation, if any.
    pub(super) fn for_operation(&mut self, method: &str, path: &str) -> Option<Failure> {
        let failure = self.0.iter_mut().find_map(|fault| {
            let fits = fault.fits(method, path, None);
            match &mut fault.effect {
                FaultEffect::FailOperations {
                    operations,
                    code,
                    message,
                } if fits => {
                    *operations -= 1;
                    let code = code.as_deref().unwrap_or(CODE_DEFAULT);
                    Some(Failure::new(500, code, message.as_deref().unwrap_or(MESSAGE_DEFAULT)))
                }
                _ => None,
            }
        });
        self.0.retain(|fault| !fault.is_spent());
        failure
    }
}

/// The failure of an operation that fails by chance.
pub(super) fn failure_by_chance() -> Failure {
    Failure::new(500, CODE_DEFAULT, MESSAGE_DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fault_that_fits_happens_until_it_is_used_up() {
        let fault = |text: &str| serde_json::from_str::<Fault>(text).unwrap();
        let mut faults = Faults::new(vec![
            fault(r#"{"method": "post", "path": "*/attach*", "times": 1, "status": 503}"#),
            fault(r#"{"path": "*?x=1", "close": "after"}"#),
            fault(r#"{"fail_operations": 2, "path": "*/detach*", "code": "C", "message": "m"}"#),
        ]);
        assert_eq!(
            faults.for_request("GET", "/attach", None),
            None,
            "neither method nor query fits"
        );
        assert!(matches!(
            faults.for_request("POST", "/attach", Some("x=1")),
            Some(FaultEffect::Status { code: 503, .. })
        ));
        assert_eq!(
            faults.for_request("POST", "/attach", Some("x=1")),
            Some(FaultEffect::Close { when: When::After }),
            "the first is used up"
        );
        assert_eq!(faults.for_operation("POST", "/attach"), None);
        let failure = Some(Failure::new(500, "C", "m"));
        assert_eq!(faults.for_operation("POST", "/detach"), failure);
        assert_eq!(faults.for_operation("POST", "/detach"), failure);
        assert_eq!(faults.for_operation("POST", "/detach"), None);
        assert_eq!(faults.left().len(), 1);
    }

    #[test]
    fn a_fault_does_exactly_one_thing() {
        for (text, reason) in [
            (r#"{"path": "/a"}"#, "exactly one of"),
            (r#"{"status": 500, "close": "before"}"#, "exactly one of"),
            (r#"{"status": 200}"#, "must be 400 to 599"),
            (r#"{"fail_operations": 1, "times": 2}"#, "`times` must be absent"),
            (r#"{"close": "before", "message": "no"}"#, "`message` goes with"),
            (r#"{"close": "before", "code": "no"}"#, "`code` goes with"),
            (r#"{"delay_ms": 1, "reason": "no"}"#, "`reason`"),
            (r#"{"close": "before", "when": "after"}"#, "`when` goes with"),
            (r#"{"statsu": 500}"#, "unknown field `statsu`"),
        ] {
            let error = serde_json::from_str::<Fault>(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_fault_is_written_as_it_is_read() {
        for text in [
            r#"{"method":"*","path":"*","times":2,"status":403,"reason":"rateLimitExceeded","message":"later","retry_after_s":3,"when":"after"}"#,
            r#"{"method":"*","path":"*","status":502,"body":"<html>","when":"before"}"#,
            r#"{"method":"GET","path":"/a","delay_ms":5,"when":"before"}"#,
            r#"{"method":"*","path":"*","close":"after"}"#,
            r#"{"method":"POST","path":"*","fail_operations":3,"code":"C"}"#,
        ] {
            let fault: Fault = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&fault).unwrap(), text);
        }
    }
}
