//! The host's answer: one line of JSON, `ok` or `error`; or why there is none.
//!
//! Pure.

use std::net::Ipv4Addr;

use serde_json::{Map, Value};

use crate::error::{CniError, shown};
use crate::host::Line;
use crate::request::PROTOCOL;

/// What the host said.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Answer {
    /// `ok`, with whatever it holds.
    Ok(Value),
    /// `error`, with the host's code.
    Refused(CniError),
}

/// Why there is no answer to the question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NoAnswer {
    /// The host is down: its socket is missing or refuses, no answer came in time, or it closed the connection.
    Down(String),
    /// The socket can't be used, and a retry does not help.
    Unusable(String),
    /// The host sent something that is no answer.
    Garbled(String),
}

impl NoAnswer {
    /// One line for people.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Down(text) | Self::Unusable(text) | Self::Garbled(text) => text,
        }
    }
}

impl Answer {
    /// Parses the line. Ignores unknown members, and accepts a line that lacks only its end.
    ///
    /// # Errors
    /// `Garbled` if it is no answer, `Unusable` if it belongs to another version of the protocol, `Down` if the host
    /// closed the connection in the middle of it.
    pub(crate) fn parse(line: &Line) -> Result<Self, NoAnswer> {
        let value = serde_json::from_slice(&line.bytes).map_err(|error| match (error.is_eof(), line.ended) {
            (true, false) => NoAnswer::Down("the host hung up in the middle of its answer; was it stopped?".to_owned()),
            _ => garbled(&format!("it is not JSON: {error}")),
        })?;
        let Value::Object(mut answer) = value else {
            return Err(garbled("it is not a JSON object"));
        };
        match answer.get("v").map(|v| (v, v.as_u64())) {
            Some((_, Some(PROTOCOL))) => {}
            Some((v, Some(_))) => {
                let text = format!(
                    "the host answered in version {} of the protocol; this plugin speaks {PROTOCOL}",
                    v
                );
                return Err(NoAnswer::Unusable(text));
            }
            Some((v, None)) => return Err(garbled(&format!("its `v` is {}", shown(v)))),
            None => return Err(garbled("it has no `v`")),
        }
        match (answer.remove("ok"), answer.get("error")) {
            (Some(ok), None) => Ok(Self::Ok(ok)),
            (None, Some(Value::Object(error))) => refusal(error).map(Self::Refused),
            (None, Some(error)) => Err(garbled(&format!("its `error` is {}", shown(error)))),
            (Some(_), Some(_)) => Err(garbled("it has both `ok` and `error`")),
            (None, None) => Err(garbled("it has neither `ok` nor `error`")),
        }
    }
}

fn refusal(error: &Map<String, Value>) -> Result<CniError, NoAnswer> {
    let code = error.get("code").and_then(Value::as_u64);
    // CNI has no error 0.
    let code = code.and_then(|code| u32::try_from(code).ok()).filter(|code| *code > 0);
    let code = code.ok_or_else(|| garbled("its `error.code` is no whole number from 1 on"))?;
    let msg = error.get("msg").and_then(Value::as_str);
    let msg = msg.ok_or_else(|| garbled("its `error.msg` is no text"))?;
    let details = error
        .get("details")
        .and_then(Value::as_str)
        .filter(|details| !details.is_empty());
    Ok(CniError {
        code,
        msg: msg.to_owned(),
        details: details.map(str::to_owned),
    })
}

/// An address with its ENI's device number: the answer to ADD and CHECK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allocation {
    /// `ip`.
    pub(crate) ip: Ipv4Addr,
    /// `deviceNumber`; -1 if no ENI has the address.
    pub(crate) device_number: i32,
}

impl Allocation {
    /// Parses what `ok` holds.
    ///
    /// # Errors
    /// `Garbled` if that is no allocation.
    pub(crate) fn parse(ok: &Value) -> Result<Self, NoAnswer> {
        let ip = ok.get("ip").and_then(Value::as_str).and_then(|ip| ip.parse().ok());
        let device_number = ok.get("deviceNumber").and_then(Value::as_i64);
        let device_number = device_number.and_then(|number| i32::try_from(number).ok());
        match (ip, device_number) {
            (Some(ip), Some(device_number)) => Ok(Self { ip, device_number }),
            (None, _) => Err(garbled(&format!("`ok` has no IPv4 address `ip`: {}", shown(ok)))),
            (_, None) => Err(garbled(&format!("`ok` has no `deviceNumber`: {}", shown(ok)))),
        }
    }
}

fn garbled(why: &str) -> NoAnswer {
    NoAnswer::Garbled(format!("the host's answer is not understood: {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(line: &[u8]) -> Result<Answer, NoAnswer> {
        let bytes = line.to_owned();
        Answer::parse(&Line { bytes, ended: true })
    }

    #[test]
    fn an_answer_is_ok_or_an_error() {
        assert_eq!(
            parse(br#"{"v":1,"ok":{"ip":"10.0.0.5","deviceNumber":1},"more":true}"#),
            Ok(Answer::Ok(json!({"ip": "10.0.0.5", "deviceNumber": 1})))
        );
        assert_eq!(parse(br#"{"v":1,"ok":null}"#), Ok(Answer::Ok(Value::Null)));
        let refused = |details: Option<&str>| {
            Ok(Answer::Refused(CniError {
                code: 11,
                msg: "no address is free".to_owned(),
                details: details.map(str::to_owned),
            }))
        };
        assert_eq!(
            parse(br#"{"v":1,"error":{"code":11,"msg":"no address is free","details":"net/c1/eth0"}}"#),
            refused(Some("net/c1/eth0"))
        );
        for without in [r#""details":"""#, r#""details":null"#, r#""more":1"#] {
            let line = format!(r#"{{"v":1,"error":{{"code":11,"msg":"no address is free",{without}}}}}"#);
            assert_eq!(parse(line.as_bytes()), refused(None));
        }
    }

    #[test]
    fn what_is_no_answer_is_said_to_be_none() {
        for line in [
            "",
            "{",
            "[]",
            "5",
            "\u{0}",
            r#"{"ok":{}}"#,
            r#"{"v":"1","ok":{}}"#,
            r#"{"v":1}"#,
            r#"{"v":-1,"ok":{}}"#,
            r#"{"v":1,"ok":{},"error":{"code":1,"msg":""}}"#,
            r#"{"v":1,"error":"no"}"#,
            r#"{"v":1,"error":{"msg":"no"}}"#,
            r#"{"v":1,"error":{"code":0,"msg":"no"}}"#,
            r#"{"v":1,"error":{"code":4294967296,"msg":"no"}}"#,
            r#"{"v":1,"error":{"code":11}}"#,
        ] {
            let Err(NoAnswer::Garbled(text)) = parse(line.as_bytes()) else {
                panic!("{line}")
            };
            assert!(text.starts_with("the host's answer is not understood: it"), "{text}");
        }
        assert!(matches!(parse(b"\xff"), Err(NoAnswer::Garbled(_))));
        assert_eq!(
            parse(br#"{"v":2,"fine":true}"#),
            Err(NoAnswer::Unusable(
                "the host answered in version 2 of the protocol; this plugin speaks 1".to_owned()
            ))
        );
    }

    #[test]
    fn a_line_that_broke_off_is_a_host_that_went_away() {
        let cut = |text: &str| {
            let bytes = text.as_bytes().to_owned();
            Answer::parse(&Line { bytes, ended: false })
        };
        let whole = r#"{"v":1,"ok":{}}"#;
        assert_eq!(cut(whole), Ok(Answer::Ok(json!({}))), "only the line's end is missing");
        for end in 1..whole.len() {
            assert!(matches!(cut(&whole[..end]), Err(NoAnswer::Down(_))), "{end}");
            assert!(
                matches!(parse(&whole.as_bytes()[..end]), Err(NoAnswer::Garbled(_))),
                "{end}"
            );
        }
        assert!(matches!(cut("hello"), Err(NoAnswer::Garbled(_))));
    }

    #[test]
    fn an_allocation_is_an_ipv4_address_and_a_device_number() {
        let expected = Allocation {
            ip: Ipv4Addr::new(10, 0, 0, 5),
            device_number: -1,
        };
        assert_eq!(
            Allocation::parse(&json!({"ip": "10.0.0.5", "deviceNumber": -1})),
            Ok(expected)
        );
        for wrong in [
            json!(null),
            json!({}),
            json!({"ip": "10.0.0.5"}),
            json!({"ip": "10.0.0.5", "deviceNumber": 1.5}),
            json!({"ip": "10.0.0.5", "deviceNumber": 2_147_483_648_u64}),
            json!({"ip": "fd00::1", "deviceNumber": 1}),
            json!({"ip": "10.0.0.5/32", "deviceNumber": 1}),
            json!({"deviceNumber": 1}),
        ] {
            assert!(
                matches!(Allocation::parse(&wrong), Err(NoAnswer::Garbled(_))),
                "{wrong}"
            );
        }
    }
}
