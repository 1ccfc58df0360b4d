//! Maps the host's answer, or its absence, to the end of the command.
//!
//! Pure. The only place where commands differ in what a failure means.

use serde_json::Value;

use crate::answer::{Allocation, Answer};
use crate::environment::What;
use crate::error::{CniError, NOT_AVAILABLE, OTHER_ADDRESS, TRY_AGAIN_LATER, UNKNOWN_CONTAINER};
use crate::plan::Ask;
use crate::result;

/// How a command succeeds.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Outcome {
    /// It prints this.
    Prints(String),
    /// It prints nothing.
    Silent,
    /// It prints nothing, once the release is in the spool. The text is the reason.
    Spool(String),
}

/// Decides how the command ends. An error: why there is no answer, with the code of a command that has none of its own.
pub(crate) fn conclude(ask: &Ask, answer: Result<Answer, CniError>) -> Result<Outcome, CniError> {
    let concluded = match answer {
        Ok(Answer::Ok(ok)) => succeeded(ask, &ok),
        Ok(Answer::Refused(error)) => refused(ask, error),
        Err(no_answer) => unanswered(ask, no_answer),
    };
    concluded.map_err(|error| error.about(&ask.subject()))
}

fn succeeded(ask: &Ask, ok: &Value) -> Result<Outcome, CniError> {
    match &ask.what {
        What::Del(_) | What::Status | What::Gc(_) => Ok(Outcome::Silent),
        What::Add(_) => {
            let allocation = Allocation::parse(ok)?;
            result::of_add(ask.version, &ask.settings, allocation).map(Outcome::Prints)
        }
        What::Check(..) if ok.is_null() => Err(CniError::new(UNKNOWN_CONTAINER, "the container has no address")),
        What::Check(_, expected) => {
            let found = Allocation::parse(ok)?.ip;
            if expected.contains(&found) {
                return Ok(Outcome::Silent);
            }
            let msg = format!("the container's address is {found}, which is not among `prevResult.ips`");
            Err(CniError::new(OTHER_ADDRESS, msg))
        }
    }
}

fn refused(ask: &Ask, error: CniError) -> Result<Outcome, CniError> {
    match (&ask.what, error.code) {
        // A missing allocation counts as freed, however the host reports it.
        (What::Del(_), UNKNOWN_CONTAINER) => Ok(Outcome::Silent),
        // STATUS has one code for an instance that does not exist yet.
        (What::Status, TRY_AGAIN_LATER) => Err(CniError {
            code: NOT_AVAILABLE,
            ..error
        }),
        _ => Err(error),
    }
}

/// DEL must neither leak the address nor delay the pod's end: whatever kept the answer away, the plugin keeps the
/// release. That does no harm if the host had freed the address after all.
fn unanswered(ask: &Ask, no_answer: CniError) -> Result<Outcome, CniError> {
    let code = match &ask.what {
        What::Del(_) if ask.settings.plugin.spool_dir.is_some() => return Ok(Outcome::Spool(no_answer.msg)),
        // Without a spool, ask the runtime to repeat the call.
        What::Del(_) => TRY_AGAIN_LATER,
        What::Status => NOT_AVAILABLE,
        What::Add(_) | What::Check(..) | What::Gc(_) => no_answer.code,
    };
    Err(CniError { code, ..no_answer })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use serde_json::json;

    use super::*;
    use crate::plan::examples::{ask, attachment};

    fn check(what: What, answer: Result<Answer, CniError>, expected: &Result<Outcome, CniError>) {
        assert_eq!(&conclude(&ask(what), answer), expected);
    }

    fn fails(code: u32, msg: &str, details: &str) -> Result<Outcome, CniError> {
        Err(CniError::new(code, msg).about(details))
    }

    fn all() -> [What; 5] {
        [
            What::Add(attachment()),
            What::Del(attachment()),
            What::Check(attachment(), vec![Ipv4Addr::new(10, 0, 0, 5)]),
            What::Status,
            What::Gc(Vec::new()),
        ]
    }

    fn allocation(ip: &str) -> Result<Answer, CniError> {
        Ok(Answer::Ok(json!({"ip": ip, "deviceNumber": 1})))
    }

    #[test]
    fn only_add_prints_something() {
        for what in all() {
            match (conclude(&ask(what.clone()), allocation("10.0.0.5")), what) {
                (Ok(Outcome::Prints(result)), What::Add(_)) => assert!(result.contains("10.0.0.5/32"), "{result}"),
                (Ok(Outcome::Silent), What::Add(_)) => panic!("ADD printed nothing"),
                (Ok(Outcome::Silent), _) => {}
                (other, what) => panic!("{what:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn an_empty_ok_is_enough_for_what_asks_for_no_address() {
        for what in [What::Del(attachment()), What::Status, What::Gc(Vec::new())] {
            for ok in [json!({}), json!(null), json!(true)] {
                check(what.clone(), Ok(Answer::Ok(ok)), &Ok(Outcome::Silent));
            }
        }
        for what in [What::Add(attachment()), What::Check(attachment(), Vec::new())] {
            let error = conclude(&ask(what), Ok(Answer::Ok(json!({})))).unwrap_err();
            assert_eq!(error.code, 6);
        }
    }

    #[test]
    fn check_compares_the_address_with_the_previous_result() {
        let expected = |last: u8| What::Check(attachment(), vec![Ipv4Addr::new(10, 0, 0, last)]);
        check(expected(5), allocation("10.0.0.5"), &Ok(Outcome::Silent));
        check(
            expected(6),
            allocation("10.0.0.5"),
            &fails(
                101,
                "the container's address is 10.0.0.5, which is not among `prevResult.ips`",
                "net/c1/eth0",
            ),
        );
        check(
            expected(5),
            Ok(Answer::Ok(Value::Null)),
            &fails(3, "the container has no address", "net/c1/eth0"),
        );
    }

    #[test]
    fn the_hosts_errors_are_passed_on_with_its_details_or_ours() {
        let refusal = |code| Ok(Answer::Refused(CniError::new(code, "no address is free")));
        check(
            What::Add(attachment()),
            refusal(11),
            &fails(11, "no address is free", "net/c1/eth0"),
        );
        check(
            What::Del(attachment()),
            refusal(11),
            &fails(11, "no address is free", "net/c1/eth0"),
        );
        check(
            What::Gc(Vec::new()),
            refusal(11),
            &fails(11, "no address is free", "net"),
        );
        check(What::Status, refusal(7), &fails(7, "no address is free", "net"));
        let told = CniError::new(11, "no address is free").about("theirs");
        check(
            What::Add(attachment()),
            Ok(Answer::Refused(told)),
            &fails(11, "no address is free", "theirs"),
        );
    }

    #[test]
    fn del_succeeds_for_what_is_gone_and_status_is_50_without_an_instance() {
        let refusal = |code| Ok(Answer::Refused(CniError::new(code, "gone")));
        check(What::Del(attachment()), refusal(3), &Ok(Outcome::Silent));
        check(
            What::Check(attachment(), Vec::new()),
            refusal(3),
            &fails(3, "gone", "net/c1/eth0"),
        );
        check(What::Status, refusal(11), &fails(50, "gone", "net"));
        check(What::Status, refusal(50), &fails(50, "gone", "net"));
    }

    #[test]
    fn without_an_answer_del_spools_status_says_50_and_the_others_say_why() {
        for code in [11, 5, 6] {
            let no_answer = CniError::new(code, "why");
            for what in all() {
                let expected = match what {
                    What::Del(_) => Ok(Outcome::Spool("why".to_owned())),
                    What::Status => fails(50, "why", "net"),
                    What::Gc(_) => fails(code, "why", "net"),
                    What::Add(_) | What::Check(..) => fails(code, "why", "net/c1/eth0"),
                };
                check(what, Err(no_answer.clone()), &expected);
            }
            let mut no_spool = ask(What::Del(attachment()));
            no_spool.settings.plugin.spool_dir = None;
            assert_eq!(conclude(&no_spool, Err(no_answer)), fails(11, "why", "net/c1/eth0"));
        }
    }
}
