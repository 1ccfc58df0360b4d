//! The API's paths, from `projects/` on, and its JSON: requests and answers.
//!
//! Pure. Shares no code with the simulated server.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::request::Request;
use super::settings::Settings;
use crate::neg::{Endpoint, Error, NegRef, RequestId};
use crate::remote::{encode, segment};

/// The type of new NEGs, with ports; an existing one must have it.
const ENDPOINT_TYPE: &str = "GCE_VM_IP_PORT";

/// The maximum number of characters of an error text from the API, which is for people.
const MESSAGE_CHARS_MAX: usize = 2_000;

/// Entries per page; the maximum.
const PAGE_SIZE: u32 = 500;

/// The requests of the settings' project.
impl Settings {
    /// # Errors
    /// `not-found` if no path can hold a name.
    fn zone(&self, zone: &str) -> Result<String, Error> {
        Ok(format!("projects/{}/zones/{}", self.project, name(zone)?))
    }

    fn neg(&self, neg: &NegRef) -> Result<String, Error> {
        let zone = self.zone(&neg.zone)?;
        let name = name(&neg.name)?;
        Ok(format!("{zone}/networkEndpointGroups/{name}"))
    }

    pub(super) fn neg_request(&self, neg: &NegRef) -> Result<Request, Error> {
        Ok(request(Method::GET, self.neg(neg)?, None))
    }

    pub(super) fn insert_request(&self, neg: &NegRef, body: Value, id: RequestId) -> Result<Request, Error> {
        let target = format!("{}/networkEndpointGroups?requestId={}", self.zone(&neg.zone)?, id.0);
        Ok(request(Method::POST, target, Some(body)))
    }

    pub(super) fn list_request(&self, neg: &NegRef, page: Option<&str>) -> Result<Request, Error> {
        let neg = self.neg(neg)?;
        let page = page.map(|page| format!("&pageToken={}", encode(page)));
        let page = page.unwrap_or_default();
        let target = format!("{neg}/listNetworkEndpoints?maxResults={PAGE_SIZE}{page}");
        Ok(request(Method::POST, target, Some(json!({"healthStatus": "SKIP"}))))
    }

    /// Attaches endpoints, or else detaches them.
    pub(super) fn change_request(
        &self,
        attaches: bool,
        neg: &NegRef,
        body: Value,
        id: RequestId,
    ) -> Result<Request, Error> {
        let what = if attaches { "attach" } else { "detach" };
        let target = format!("{}/{what}NetworkEndpoints?requestId={}", self.neg(neg)?, id.0);
        Ok(request(Method::POST, target, Some(body)))
    }

    pub(super) fn operation_request(&self, zone: &str, number: u64) -> Result<Request, Error> {
        let target = format!("{}/operations/{number}", self.zone(zone)?);
        Ok(request(Method::GET, target, None))
    }
}

fn request(method: Method, target: String, body: Option<Value>) -> Request {
    Request { method, target, body }
}

/// Encodes a name. No resource can have one that is no part of a path.
fn name(name: &str) -> Result<String, Error> {
    segment(name).ok_or(Error::NotFound)
}

/// The body of an attachment or detachment.
///
/// # Errors
/// An invalid port: the API takes only numbers.
pub(super) fn endpoints_body(endpoints: &[Endpoint]) -> Result<Value, Error> {
    let sent: Result<Vec<_>, _> = endpoints.iter().map(sent).collect();
    Ok(json!({"networkEndpoints": sent?}))
}

fn sent(endpoint: &Endpoint) -> Result<Value, Error> {
    let texts = [
        ("instance", &endpoint.node),
        ("ipAddress", &endpoint.ip),
        ("ipv6Address", &endpoint.ipv6),
    ];
    let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
    let mut fields: Map<String, Value> = texts.map(|(name, text)| (name.to_owned(), json!(text))).collect();
    if !endpoint.port.is_empty() {
        let given = &endpoint.port;
        let port: Option<u16> = given.parse().ok().filter(|port| *port > 0);
        let text = || format!("port {given:?} is not a number from 1 to 65535, nothing was sent");
        let port = port.ok_or_else(|| Error::Refused((400, text())))?;
        fields.insert("port".to_owned(), json!(port));
    }
    Ok(Value::Object(fields))
}

/// A page of endpoints in an answer.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Page {
    items: Vec<Item>,
    next_page_token: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    network_endpoint: Received,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Received {
    instance: String,
    ip_address: String,
    ipv6_address: String,
    port: u16,
}

/// One page of endpoints, canonical, and the token of the next.
///
/// # Errors
/// The invalid part of the answer.
pub(super) fn page(answer: &Value) -> Result<(Vec<Endpoint>, Option<String>), String> {
    if !answer.is_object() {
        return Err("the answer is not an object".to_owned());
    }
    let page: Page = serde_path_to_error::deserialize(answer).map_err(|error| error.to_string())?;
    let endpoints = page.items.into_iter().map(|item| {
        let received = item.network_endpoint;
        let port = Some(received.port).filter(|port| *port != 0);
        Endpoint {
            ip: canonical::<Ipv4Addr>(&received.ip_address),
            ipv6: canonical::<Ipv6Addr>(&received.ipv6_address),
            port: port.map(|port| port.to_string()).unwrap_or_default(),
            node: last(&received.instance).to_owned(),
        }
    });
    let token = Some(page.next_page_token).filter(|token| !token.is_empty());
    Ok((endpoints.collect(), token))
}

/// An address in its canonical spelling; other text stays as it is.
fn canonical<T: std::str::FromStr + ToString>(text: &str) -> String {
    text.parse::<T>()
        .map_or_else(|_| text.to_owned(), |address| address.to_string())
}

/// The body that creates a NEG.
pub(super) fn neg_body(settings: &Settings, neg: &NegRef, subnet: &str) -> Value {
    let mut body = json!({
        "name": neg.name,
        "networkEndpointType": ENDPOINT_TYPE,
        "subnetwork": settings.subnetwork(&neg.zone, subnet),
    });
    if let (Some(network), Some(fields)) = (settings.network_path(), body.as_object_mut()) {
        fields.insert("network".to_owned(), json!(network));
    }
    body
}

/// Checks that an existing NEG is the requested one.
///
/// # Errors
/// `refused` if it has another subnet, network or type.
pub(super) fn compare(settings: &Settings, neg: &NegRef, subnet: &str, there: &Value) -> Result<(), Error> {
    let text = |name: &str| there.get(name).and_then(Value::as_str).unwrap_or_default();
    let subnetwork = settings.subnetwork(&neg.zone, subnet);
    differs(neg, "subnet", path_of(text("subnetwork")), &subnetwork)?;
    if let Some(network) = settings.network_path() {
        differs(neg, "network", path_of(text("network")), &network)?;
    }
    differs(neg, "type", text("networkEndpointType"), ENDPOINT_TYPE)
}

fn differs(neg: &NegRef, what: &str, there: &str, wanted: &str) -> Result<(), Error> {
    if there == wanted {
        return Ok(());
    }
    // Use the short names if they distinguish the two.
    let (mut is, mut wanted_is) = (last(there), last(wanted));
    if is == wanted_is {
        (is, wanted_is) = (there, wanted);
    }
    let is = if is.is_empty() { "none" } else { is };
    let text = format!("NEG {} in {} has {what} {is}, not {wanted_is}", neg.name, neg.zone);
    Err(Error::Refused((409, text)))
}

/// The last part of a path.
fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// A URL from `projects/` on; the part before it depends on the endpoint.
fn path_of(url: &str) -> &str {
    url.find("projects/").and_then(|start| url.get(start..)).unwrap_or(url)
}

/// An operation in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) id: u64,
    pub(super) is_done: bool,
    pub(super) failure: Option<OperationFailure>,
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OperationFailure {
    /// `None` if the answer has none.
    pub(super) http_status: Option<u16>,
    /// `CODE: MESSAGE` of the first error.
    pub(super) text: String,
}

/// # Errors
/// The invalid part of the answer.
pub(super) fn operation(answer: &Value) -> Result<Operation, String> {
    let id = answer.get("id").and_then(Value::as_str).and_then(|id| id.parse().ok());
    let id = id.ok_or("the answer is not an operation: it has no numeric `id`")?;
    let is_done = match answer.get("status").and_then(Value::as_str) {
        Some("DONE") => true,
        Some("PENDING" | "RUNNING") => false,
        _ => return Err("the operation's `status` is none of PENDING, RUNNING and DONE".to_owned()),
    };
    Ok(Operation {
        id,
        is_done,
        failure: operation_failure(answer),
    })
}

fn operation_failure(answer: &Value) -> Option<OperationFailure> {
    let status = answer.get("httpErrorStatusCode").and_then(Value::as_u64);
    let first = answer.get("error")?.pointer("/errors/0");
    let text = |name: &str| first.and_then(|first| first.get(name)).and_then(Value::as_str);
    let usual = answer.get("httpErrorMessage").and_then(Value::as_str);
    let code = text("code").unwrap_or("UNKNOWN");
    let message = text("message").or(usual).unwrap_or("no reason was given");
    Some(OperationFailure {
        http_status: status.and_then(|status| u16::try_from(status).ok()),
        text: cut(&format!("{code}: {message}")),
    })
}

/// The message in an error's body, and whether the error is a rate limit. The body is an object with `error`, an array
/// of one such object, or text that is not JSON.
pub(super) fn said(body: &[u8]) -> (Option<String>, bool) {
    let parsed: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = parsed.get("error").or_else(|| parsed.pointer("/0/error"));
    let message = error.and_then(|error| error.get("message")?.as_str());
    let errors = error.and_then(|error| error.get("errors")?.as_array());
    let errors = errors.into_iter().flatten();
    let mut reasons = errors.filter_map(|error| error.get("reason")?.as_str());
    (
        message.filter(|message| !message.is_empty()).map(cut),
        reasons.any(|reason| matches!(reason, "rateLimitExceeded" | "userRateLimitExceeded")),
    )
}

fn cut(text: &str) -> String {
    text.chars().take(MESSAGE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neg::order::tests::{endpoint, neg};

    #[test]
    fn what_has_no_value_is_left_out_and_ports_are_numbers() {
        let body = endpoints_body(&[endpoint("10.0.0.1", "", "80", "vm"), endpoint("", "::1", "", "")]).unwrap();
        let expected = json!({"networkEndpoints": [
            {"instance": "vm", "ipAddress": "10.0.0.1", "port": 80}, {"ipv6Address": "::1"}
        ]});
        assert_eq!(body, expected);
        for port in ["0", "65536", "http", "-1"] {
            let error = endpoints_body(&[endpoint("10.0.0.1", "", port, "")]).unwrap_err();
            assert!(matches!(error, Error::Refused((400, text)) if text.contains(port)));
        }
    }

    #[test]
    fn what_comes_is_canonical() {
        let answer = json!({"items": [
            {"networkEndpoint": {"instance": "https://x/projects/p/zones/z/instances/vm", "ipv6Address": "2001:0DB8::0:1",
                                 "port": 80, "annotations": {"a": "b"}}, "healths": []},
            {"networkEndpoint": {"ipAddress": "10.0.0.1"}},
        ], "nextPageToken": "t"});
        let expected = vec![
            endpoint("", "2001:db8::1", "80", "vm"),
            endpoint("10.0.0.1", "", "", ""),
        ];
        assert_eq!(page(&answer), Ok((expected, Some("t".to_owned()))));
        assert_eq!(page(&json!({"kind": "k"})), Ok((vec![], None)));
        for bad in [
            json!([]),
            json!({"items": 1}),
            json!({"items": [{}]}),
            json!({"nextPageToken": 1}),
            json!({"items": [{"networkEndpoint": {"port": "80"}}]}),
        ] {
            assert!(page(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_neg_is_compared_from_projects_on() {
        let settings = Settings::new("p");
        let neg = neg("n", "r1-b");
        let there = |subnetwork: &str| json!({"subnetwork": subnetwork, "networkEndpointType": "GCE_VM_IP_PORT"});
        let base = "https://www.googleapis.com/compute/v1/projects";
        let same = there(&format!("{base}/p/regions/r1/subnetworks/s"));
        assert_eq!(compare(&settings, &neg, "s", &same), Ok(()));
        for (there, text) in [
            (
                there(&format!("{base}/p/regions/r1/subnetworks/t")),
                "NEG n in r1-b has subnet t, not s",
            ),
            (
                there(&format!("{base}/q/regions/r1/subnetworks/s")),
                "NEG n in r1-b has subnet projects/q/regions/r1/subnetworks/s, not projects/p/regions/r1/subnetworks/s",
            ),
            (json!({}), "NEG n in r1-b has subnet none, not s"),
            (
                json!({"subnetwork": "projects/p/regions/r1/subnetworks/s", "networkEndpointType": "GCE_VM_IP"}),
                "NEG n in r1-b has type GCE_VM_IP, not GCE_VM_IP_PORT",
            ),
        ] {
            assert_eq!(
                compare(&settings, &neg, "s", &there),
                Err(Error::Refused((409, text.to_owned())))
            );
        }
        let with_network = Settings {
            network: Some("v".to_owned()),
            ..settings
        };
        assert_eq!(
            neg_body(&with_network, &neg, "s")["network"],
            "projects/p/global/networks/v"
        );
        let error = compare(&with_network, &neg, "s", &same).unwrap_err();
        assert_eq!(
            error,
            Error::Refused((409, "NEG n in r1-b has network none, not v".to_owned()))
        );
    }

    #[test]
    fn done_says_that_an_operation_ended_and_not_that_it_went_well() {
        let ended = operation(&json!({"id": "7", "status": "DONE"})).unwrap();
        assert_eq!((ended.id, ended.is_done, ended.failure), (7, true, None));
        let failed = json!({"id": "18446744073709551615", "status": "DONE", "httpErrorStatusCode": 404,
            "error": {"errors": [{"code": "C", "message": "m"}, {"code": "D", "message": "n"}]}});
        let failed = operation(&failed).unwrap();
        assert_eq!(failed.id, u64::MAX);
        let failure = failed.failure.unwrap();
        assert_eq!((failure.http_status, failure.text.as_str()), (Some(404), "C: m"));
        let bare = operation(&json!({"id": "7", "status": "DONE", "error": {}, "httpErrorMessage": "BAD"})).unwrap();
        assert_eq!(bare.failure.unwrap().text, "UNKNOWN: BAD");
        for bad in [
            json!({}),
            json!({"id": 7, "status": "DONE"}),
            json!({"id": "7", "status": "OK"}),
        ] {
            assert!(operation(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_error_is_an_object_an_array_of_one_or_no_json() {
        let one = json!({"error": {"code": 403, "message": "m", "errors": [{"reason": "rateLimitExceeded"}]}});
        for body in [one.clone(), json!([one])] {
            assert_eq!(said(body.to_string().as_bytes()), (Some("m".to_owned()), true));
        }
        let quota = json!({"error": {"message": "m", "errors": [{"reason": "quotaExceeded"}]}});
        assert!(!said(quota.to_string().as_bytes()).1);
        assert_eq!(said(b"<html>").0, None);
    }

    #[test]
    fn names_cannot_leave_their_place() {
        let settings = Settings::new("p");
        let neg = |name: &str| neg(name, "z/../y");
        let path = settings.neg_request(&neg("a?b")).unwrap().target;
        assert_eq!(path, "projects/p/zones/z%2F..%2Fy/networkEndpointGroups/a%3Fb");
        for name in ["", ".", ".."] {
            assert_eq!(settings.neg_request(&neg(name)).err(), Some(Error::NotFound));
        }
        let page = settings.list_request(&neg("n"), Some("a/b+c=")).unwrap();
        assert!(page.target.ends_with("?maxResults=500&pageToken=a%2Fb%2Bc%3D"));
    }
}
