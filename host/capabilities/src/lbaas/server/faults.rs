//! The faults to inject, and how many times each has left.
//!
//! Knows requests only by method and path. The door (`door.rs`) applies faults to requests, the Engine (`engine.rs`) to
//! objects that settle.

use serde::{Deserialize, Serialize};

use crate::sim::pattern::fits_pattern;

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
        /// Default: the status's usual text.
        message: Option<String>,
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
    /// The next objects to settle fail (state `2` instead of `3`). `path` is matched against the object's own path,
    /// `method` against the request that it settles from: `POST` or `PUT`.
    FailNext {
        /// How many; `times` is not used.
        objects: u32,
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

/// A fault in its text form: exactly one of `status`, `delay_ms`, `close` and `fail_next`.
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
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    close: Option<When>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fail_next: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    when: Option<When>,
}

impl TryFrom<FaultText> for Fault {
    type Error = String;

    fn try_from(text: FaultText) -> Result<Self, String> {
        if text.message.is_some() && text.status.is_none() {
            return Err("fault: `message` goes with `status` alone".to_owned());
        }
        if text.when.is_some() && text.status.is_none() && text.delay_ms.is_none() {
            return Err("fault: `when` goes with `status` and `delay_ms` alone".to_owned());
        }
        let when = text.when.unwrap_or(When::Before);
        let effect = match (text.status, text.delay_ms, text.close, text.fail_next) {
            (Some(code), None, None, None) if !(400..=599).contains(&code) => {
                return Err(format!("fault: status was {code}, must be 400 to 599"));
            }
            (Some(code), None, None, None) => FaultEffect::Status {
                code,
                message: text.message,
                when,
            },
            (None, Some(ms), None, None) => FaultEffect::Delay { ms, when },
            (None, None, Some(when), None) => FaultEffect::Close { when },
            (None, None, None, Some(_)) if text.times.is_some() => {
                return Err("fault: `times` must be absent where `fail_next` says how many".to_owned());
            }
            (None, None, None, Some(objects)) => FaultEffect::FailNext { objects },
            _ => {
                return Err("fault: must hold exactly one of `status`, `delay_ms`, `close` and `fail_next`".to_owned());
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
            FaultEffect::Status { code, message, when } => Self {
                status: Some(code),
                message,
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
            FaultEffect::FailNext { objects } => Self {
                fail_next: Some(objects),
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
}

/// The remaining faults, oldest first, without those used up.
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    pub(super) fn new(faults: Vec<Fault>) -> Self {
        let mut armed = Self(Vec::new());
        faults.into_iter().for_each(|fault| armed.add(fault));
        armed
    }

    pub(super) fn add(&mut self, fault: Fault) {
        let spent = fault.times == Some(0) || fault.effect == FaultEffect::FailNext { objects: 0 };
        if !spent {
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
        let position = self.0.iter().position(|fault| {
            !matches!(fault.effect, FaultEffect::FailNext { .. }) && fault.fits(method, path, query)
        })?;
        let fault = self.0.get_mut(position)?;
        let effect = fault.effect.clone();
        if let Some(times) = &mut fault.times {
            *times -= 1;
            if *times == 0 {
                self.0.remove(position);
            }
        }
        Some(effect)
    }

    /// Whether the object at this path, created or updated by this method, fails to settle.
    pub(super) fn fails(&mut self, method: &str, path: &str) -> bool {
        let found = self.0.iter_mut().enumerate().find_map(|(position, fault)| {
            let fits = fault.fits(method, path, None);
            match &mut fault.effect {
                FaultEffect::FailNext { objects } if fits => Some((position, objects)),
                _ => None,
            }
        });
        let Some((position, objects)) = found else { return false };
        *objects -= 1;
        if *objects == 0 {
            self.0.remove(position);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fault_that_fits_happens_until_it_is_used_up() {
        let fault = |text: &str| serde_json::from_str::<Fault>(text).unwrap();
        let mut faults = Faults::new(vec![
            fault(r#"{"method": "post", "path": "/a*", "times": 1, "status": 503}"#),
            fault(r#"{"path": "/a?x=1", "close": "after"}"#),
            fault(r#"{"fail_next": 2, "path": "/a/*", "method": "PUT"}"#),
        ]);
        let unavailable = FaultEffect::Status {
            code: 503,
            message: None,
            when: When::Before,
        };
        let close = FaultEffect::Close { when: When::After };

        assert_eq!(
            faults.for_request("GET", "/a", None),
            None,
            "neither method nor query fits"
        );
        assert_eq!(faults.for_request("POST", "/a", Some("x=1")), Some(unavailable));
        assert_eq!(
            faults.for_request("POST", "/a", Some("x=1")),
            Some(close),
            "the first is used up"
        );

        assert!(!faults.fails("POST", "/a/1"));
        assert!(faults.fails("PUT", "/a/1"));
        assert!(faults.fails("PUT", "/a/1"));
        assert!(!faults.fails("PUT", "/a/1"));
        assert_eq!(faults.left().len(), 1);
    }

    #[test]
    fn a_fault_does_exactly_one_thing() {
        for (text, reason) in [
            (r#"{"path": "/a"}"#, "exactly one of"),
            (r#"{"status": 500, "close": "before"}"#, "exactly one of"),
            (r#"{"status": 200}"#, "must be 400 to 599"),
            (r#"{"fail_next": 1, "times": 2}"#, "`times` must be absent"),
            (
                r#"{"close": "before", "message": "no"}"#,
                "`message` goes with `status`",
            ),
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
            r#"{"method":"*","path":"*","times":2,"status":503,"message":"later","when":"after"}"#,
            r#"{"method":"GET","path":"/a","delay_ms":5,"when":"before"}"#,
            r#"{"method":"*","path":"*","close":"after"}"#,
            r#"{"method":"POST","path":"*","fail_next":3}"#,
        ] {
            let fault: Fault = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&fault).unwrap(), text);
        }
    }
}
