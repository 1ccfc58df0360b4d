//! The host's answer: one line of JSON, `ok` or `error`.
//!
//! Pure.

use std::net::Ipv4Addr;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{CniError, DECODING, IO, TRY_AGAIN_LATER};
use crate::host::Line;
use crate::request::PROTOCOL;

/// What the host said.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Answer {
    /// Whatever it holds.
    Ok(Value),
    /// With the host's code.
    #[serde(rename = "error")]
    Refused(CniError),
}

#[derive(Deserialize)]
struct Versioned {
    v: u64,
}

#[derive(Deserialize)]
struct Said {
    #[serde(flatten)]
    answer: Answer,
}

impl Answer {
    /// Parses the line. Ignores unknown members, and accepts a line that lacks only its end.
    ///
    /// # Errors
    /// Code 6 if it is no answer, 5 if it belongs to another version of the protocol, 11 if the host closed the
    /// connection in the middle of it.
    pub(crate) fn parse(line: &Line) -> Result<Self, CniError> {
        let Versioned { v } = read(line)?;
        if v != PROTOCOL {
            let msg = format!("the host answered in version {v} of the protocol; this plugin speaks {PROTOCOL}");
            return Err(CniError::new(IO, msg));
        }
        let Said { answer } = read(line)?;
        Ok(answer)
    }
}

fn read<T: DeserializeOwned>(line: &Line) -> Result<T, CniError> {
    serde_json::from_slice(&line.bytes).map_err(|error| match (error.is_eof(), line.ended) {
        (true, false) => {
            let msg = "the host hung up in the middle of its answer; was it stopped?";
            CniError::new(TRY_AGAIN_LATER, msg)
        }
        _ => garbled(&error),
    })
}

/// An address with its ENI's device number: the answer to ADD and CHECK.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Allocation {
    pub(crate) ip: Ipv4Addr,
    /// -1 if no ENI has the address.
    pub(crate) device_number: i32,
}

impl Allocation {
    /// Parses what `ok` holds.
    ///
    /// # Errors
    /// Code 6 if that is no allocation.
    pub(crate) fn parse(ok: &Value) -> Result<Self, CniError> {
        Self::deserialize(ok).map_err(|error| garbled(&error))
    }
}

fn garbled(why: &serde_json::Error) -> CniError {
    CniError::new(DECODING, format!("the host's answer is not understood: {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(line: &[u8]) -> Result<Answer, CniError> {
        let bytes = line.to_owned();
        Answer::parse(&Line { bytes, ended: true })
    }

    fn code(answer: Result<Answer, CniError>) -> u32 {
        answer.unwrap_err().code
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
        for without in [r#""details":null"#, r#""more":1"#] {
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
            r#"{"v":1,"error":"no"}"#,
            r#"{"v":1,"error":{"msg":"no"}}"#,
            r#"{"v":1,"error":{"code":4294967296,"msg":"no"}}"#,
            r#"{"v":1,"error":{"code":11}}"#,
        ] {
            let error = parse(line.as_bytes()).unwrap_err();
            assert_eq!(error.code, 6, "{line}");
            let text = error.msg;
            assert!(text.starts_with("the host's answer is not understood: "), "{text}");
        }
        assert_eq!(code(parse(b"\xff")), 6);
        let msg = "the host answered in version 2 of the protocol; this plugin speaks 1";
        assert_eq!(parse(br#"{"v":2,"fine":true}"#), Err(CniError::new(5, msg)));
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
            assert_eq!(code(cut(&whole[..end])), 11, "{end}");
            assert_eq!(code(parse(&whole.as_bytes()[..end])), 6, "{end}");
        }
        assert_eq!(code(cut("hello")), 6);
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
            assert_eq!(Allocation::parse(&wrong).unwrap_err().code, 6, "{wrong}");
        }
    }
}
