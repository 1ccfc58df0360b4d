//! Faults: what is to go wrong, and what of it is left.
//!
//! Knows requests by method and path alone. The pipeline applies faults to requests; each server applies the counted
//! failures (`fail_next`) to what it does later.

use serde::{Deserialize, Serialize};

/// A fault of a simulated server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "FaultFields")]
pub struct Fault(FaultFields);

/// On which side of a request's effect a fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum When {
    /// A request that is ended here leaves no trace.
    Before,
    /// The effect stays, whatever the client sees.
    After,
}

/// The fields of a fault, in the order in which they are written: exactly one of `status`, `delay_ms`, `close` and
/// `fail_next`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FaultFields {
    /// The requests' method; `*` (the default) is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    /// The requests' path as it was sent, where each `*` (the default) stands for any text, `/` and none included. A
    /// path that holds a `?` is compared with path and query.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// How often the fault happens; absent means without end.
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<u32>,
    /// The request is answered with an error of this status, 400 to 599.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    /// The reason in an answer of the Compute Engine. Default: the usual one of the status, as for the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// The header `Retry-After`, in seconds. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_s: Option<u64>,
    /// The body itself, in place of an error in JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<String>,
    /// The request takes longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delay_ms: Option<u64>,
    /// The connection is closed without an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) close: Option<When>,
    /// Later work of the server fails this many times.
    ///
    /// The Engine's next objects to settle fail (state `2` in place of `3`): `path` is then compared with the object's
    /// own path, and `method` with the request after which it settles, `POST` or `PUT`. The Compute Engine's next
    /// operations to begin fail without an effect, with `code` (default: `INTERNAL_ERROR`) and `message`: `method` and
    /// `path` are then those of the requests that begin them.
    #[serde(skip_serializing_if = "Option::is_none")]
    fail_next: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<String>,
    /// The side of `status` and `delay_ms`. Default: before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) when: Option<When>,
}

impl TryFrom<FaultFields> for Fault {
    type Error = String;

    /// Sets the defaults, or returns the first problem.
    fn try_from(mut fault: FaultFields) -> Result<Self, String> {
        let has_status = fault.status.is_some();
        let has_delay = fault.delay_ms.is_some();
        let effects = [has_status, has_delay, fault.close.is_some(), fault.fail_next.is_some()];
        if effects.iter().filter(|is_set| **is_set).count() != 1 {
            return Err("fault: must hold exactly one of `status`, `delay_ms`, `close` and `fail_next`".to_owned());
        }
        if let Some(status) = fault.status.filter(|status| !(400..=599).contains(status)) {
            return Err(format!("fault: status was {status}, must be 400 to 599"));
        }
        fault.method.get_or_insert_with(|| "*".to_owned());
        fault.path.get_or_insert_with(|| "*".to_owned());
        if has_status || has_delay {
            fault.when.get_or_insert(When::Before);
        }
        Ok(Self(fault))
    }
}

impl FaultFields {
    fn fits(&self, method: &str, path: &str, query: Option<&str>) -> bool {
        let fits_method = |wanted: &str| wanted == "*" || wanted.eq_ignore_ascii_case(method);
        let fits_path = |wanted: &str| match query {
            Some(query) if wanted.contains('?') => fits_pattern(wanted, &format!("{path}?{query}")),
            _ => fits_pattern(wanted, path),
        };
        self.method.as_deref().is_none_or(fits_method) && self.path.as_deref().is_none_or(fits_path)
    }
}

/// Whether `text` fits the pattern, in which each `*` stands for any text.
pub(crate) fn fits_pattern(pattern: &str, text: &str) -> bool {
    let Some((first, pieces)) = pattern.split_once('*') else {
        return text == pattern;
    };
    let (middle, last) = pieces.rsplit_once('*').unwrap_or(("", pieces));
    let mut middle = middle.split('*');
    // The leftmost match of a piece leaves the most text for those that follow.
    let rest = text.strip_prefix(first);
    let rest = rest.and_then(|rest| middle.try_fold(rest, |rest, piece| Some(rest.split_once(piece)?.1)));
    rest.is_some_and(|rest| rest.ends_with(last))
}

/// The faults that are left, oldest first.
#[derive(Serialize)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    pub(crate) fn new(faults: Vec<Fault>) -> Self {
        let mut left = Self(faults);
        left.drop_spent();
        left
    }

    pub(crate) fn add(&mut self, fault: Fault) {
        self.0.push(fault);
        self.drop_spent();
    }

    /// The fault of this request.
    pub(crate) fn for_request(&mut self, method: &str, path: &str, query: Option<&str>) -> Option<FaultFields> {
        self.take(|fault| fault.fail_next.is_none() && fault.fits(method, path, query))
    }

    /// The fault of what the server does after this request.
    pub(crate) fn for_later(&mut self, method: &str, path: &str) -> Option<FaultFields> {
        self.take(|fault| fault.fail_next.is_some() && fault.fits(method, path, None))
    }

    /// The first fault that is wanted. Uses up one of its times.
    fn take(&mut self, is_wanted: impl Fn(&FaultFields) -> bool) -> Option<FaultFields> {
        let Fault(fault) = self.0.iter_mut().find(|Fault(fault)| is_wanted(fault))?;
        let taken = fault.clone();
        for left in [&mut fault.times, &mut fault.fail_next] {
            *left = left.map(|left| left - 1);
        }
        self.drop_spent();
        Some(taken)
    }

    fn drop_spent(&mut self) {
        self.0
            .retain(|Fault(fault)| fault.times != Some(0) && fault.fail_next != Some(0));
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
            fault(r#"{"path": "*?x=1", "close": "after"}"#),
            fault(r#"{"fail_next": 2, "path": "/a/*", "method": "PUT", "code": "C"}"#),
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
        assert_eq!(faults.0.len(), 1);
    }

    #[test]
    fn a_fault_does_exactly_one_thing() {
        for (text, reason) in [
            (
                r#"{"path": "/a"}"#,
                "fault: must hold exactly one of `status`, `delay_ms`",
            ),
            (
                r#"{"status": 500, "close": "before"}"#,
                "fault: must hold exactly one of",
            ),
            (r#"{"status": 200}"#, "fault: status was 200, must be 400 to 599"),
            (r#"{"statsu": 500}"#, "unknown field `statsu`, expected one of `method`"),
        ] {
            let error = serde_json::from_str::<Fault>(text).unwrap_err().to_string();
            assert!(error.starts_with(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_fault_is_written_as_it_is_read() {
        for text in [
            r#"{"method":"*","path":"*","times":2,"status":503,"message":"later","when":"after"}"#,
            r#"{"method":"GET","path":"/a","delay_ms":5,"when":"before"}"#,
            r#"{"method":"*","path":"*","close":"after"}"#,
            r#"{"method":"POST","path":"*","fail_next":3}"#,
            r#"{"method":"*","path":"*","status":403,"reason":"r","retry_after_s":3,"when":"after"}"#,
            r#"{"method":"*","path":"*","status":502,"body":"<html>","when":"before"}"#,
            r#"{"method":"POST","path":"*","fail_next":3,"code":"C"}"#,
        ] {
            let fault: Fault = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&fault).unwrap(), text);
        }
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, fits) in [
            ("*", "/anything/at?all", true),
            ("/a.json", "/a.json", true),
            ("/a.json", "/a.json/1", false),
            ("/a.json*", "/a.json/1", true),
            ("/a.json*", "/a.json", true),
            ("/a.json/*", "/a.json", false),
            ("*/tags/*", "/r/1/tags/t", true),
            ("*/tags/*", "/r/1/tag/t", false),
            ("/r/*/tags/*x", "/r/1/tags/yx", true),
            ("/r/*/tags/*x", "/r/1/tags/xy", false),
            ("a*a", "a", false),
            ("a**a", "aa", true),
        ] {
            assert_eq!(fits_pattern(pattern, text), fits, "{pattern} against {text}");
        }
    }
}
