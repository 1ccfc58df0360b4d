//! Carries out requests: turns the state and a request into effects and an answer.
//!
//! Time is an argument. Knows no network: `base` handles token, rate limit, latency and most faults.

use std::collections::BTreeMap;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use super::endpoint::{self, ENDPOINTS_PER_REQUEST_MAX};
use super::fields::without_nulls;
use super::neg::{Neg, NegSpec};
use super::operation::{Failure, Work};
use super::refusal::Refusal;
use super::service::Compute;
use super::target::{ApiMethod, Target, Zone};
use super::world::Start;

/// How page tokens begin and end. Clients must encode them in a query.
const PAGE_TOKEN: (&str, &str) = ("CgY6/", "+==");

/// A request that was admitted.
pub(super) struct Call<'a> {
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    pub(super) query: Option<&'a str>,
    pub(super) body: &'a [u8],
    pub(super) now_ms: u64,
}

impl Compute {
    /// Answers a request. What is due must have taken effect.
    pub(super) fn answer(&mut self, target: &Target, call: &Call<'_>) -> Result<Value, Refusal> {
        let zone = &target.zone;
        match &target.method {
            ApiMethod::ListNegs => Ok(self.list_negs(zone)),
            ApiMethod::GetNeg(name) => Ok(self.neg(zone, name)?.json(zone)),
            ApiMethod::ListEndpoints(name) => self.list_endpoints(zone, name, call),
            ApiMethod::InsertNeg => self.insert(zone, call),
            ApiMethod::Attach(name) => self.change(zone, name, call, Work::Attach),
            ApiMethod::Detach(name) => self.change(zone, name, call, Work::Detach),
            ApiMethod::GetOperation(name) | ApiMethod::Wait(name) => {
                let operation = self.world.operation(zone, name);
                let operation = operation.ok_or_else(|| Refusal::no_resource(&zone.operation_path(name)))?;
                Ok(operation.json(call.now_ms))
            }
        }
    }

    fn neg(&self, zone: &Zone, name: &str) -> Result<&Neg, Refusal> {
        let neg = self.world.neg(zone, name);
        neg.ok_or_else(|| Refusal::no_resource(&zone.neg_path(name)))
    }

    fn list_negs(&self, zone: &Zone) -> Value {
        let items: Vec<_> = self.world.negs(zone).map(|neg| neg.json(zone)).collect();
        without_nulls(json!({
            "kind": "compute#networkEndpointGroupList",
            "id": zone.neg_path("").trim_end_matches('/'),
            "items": (!items.is_empty()).then_some(items),
        }))
    }

    fn list_endpoints(&self, zone: &Zone, name: &str, call: &Call<'_>) -> Result<Value, Refusal> {
        let query = query(call);
        let neg = self.neg(zone, name)?;
        if let Some(status) = body(call)?.get("healthStatus")
            && !matches!(status.as_str(), Some("SKIP" | "SHOW"))
        {
            let message = format!("Invalid value for field 'healthStatus': {status}. It is SKIP or SHOW.");
            return Err(Refusal::invalid(message));
        }
        let limit = page_size(query.get("maxResults").map(String::as_str))?;
        let after = page_start(query.get("pageToken").map(String::as_str))?;
        let mut rest = neg.endpoints.range(after + 1..);
        let page: Vec<_> = rest.by_ref().take(limit).collect();
        let items: Vec<_> = page
            .iter()
            .map(|(_, endpoint)| json!({"networkEndpoint": endpoint.json(self.config.ipv6_long), "healths": []}))
            .collect();
        let next = match (rest.next(), page.last()) {
            (Some(_), Some((last, _))) => {
                let (prefix, suffix) = PAGE_TOKEN;
                Some(format!("{prefix}{last:x}{suffix}"))
            }
            _ => None,
        };
        Ok(without_nulls(json!({
            "kind": "compute#networkEndpointGroupsListNetworkEndpoints",
            "id": format!("{}/listNetworkEndpoints", zone.neg_path(name)),
            "items": (!items.is_empty()).then_some(items),
            "nextPageToken": next,
        })))
    }

    fn insert(&mut self, zone: &Zone, call: &Call<'_>) -> Result<Value, Refusal> {
        let request_id = request_id(call)?;
        if let Some(again) = self.repeated(call, request_id.as_deref()) {
            return Ok(again);
        }
        let spec = NegSpec::read(zone, &body(call)?)?;
        let name = spec.name.clone();
        if self.world.neg(zone, &name).is_some() || self.world.is_inserting(zone, &name) {
            return Err(Refusal::already_exists(&zone.neg_path(&name)));
        }
        Ok(self.begin(zone, &name, call, request_id, Work::Insert(spec)))
    }

    fn change(
        &mut self,
        zone: &Zone,
        name: &str,
        call: &Call<'_>,
        work: impl FnOnce(Vec<endpoint::Endpoint>) -> Work,
    ) -> Result<Value, Refusal> {
        let request_id = request_id(call)?;
        if let Some(again) = self.repeated(call, request_id.as_deref()) {
            return Ok(again);
        }
        let kind = self.neg(zone, name)?.spec.kind;
        let work = work(endpoint::read_all(&body(call)?, kind)?);
        if let (Work::Attach(endpoints), Some(max)) = (&work, self.config.endpoints_max) {
            let ahead = self.world.endpoints_ahead(zone, name) + endpoints.len();
            if ahead > usize::try_from(max).unwrap_or(usize::MAX) {
                let message = format!("Quota 'NETWORK_ENDPOINTS_PER_NETWORK_ENDPOINT_GROUP' exceeded. Limit: {max}");
                return Err(Refusal::because(StatusCode::FORBIDDEN, "quotaExceeded", message));
            }
        }
        Ok(self.begin(zone, name, call, request_id, work))
    }

    fn repeated(&mut self, call: &Call<'_>, request_id: Option<&str>) -> Option<Value> {
        let operation = self.world.repeated(&call_name(call), request_id?)?;
        Some(operation.json(call.now_ms))
    }

    fn begin(&mut self, zone: &Zone, neg: &str, call: &Call<'_>, request_id: Option<String>, work: Work) -> Value {
        let start = Start {
            zone,
            neg,
            work,
            request_id,
            now_ms: call.now_ms,
            operation_ms: self.config.operation_ms,
        };
        let fault = self.faults.for_later(call.method.as_str(), call.path);
        let planned = fault.map(|fault| Failure::by_fault(fault.code, fault.message));
        self.world.begin(&call_name(call), start, planned).json_begun()
    }
}

/// The call that a `requestId` belongs to: method and path from `projects/` on, whatever the prefix.
fn call_name(call: &Call<'_>) -> String {
    let start = call.path.rfind("projects/").unwrap_or_default();
    format!("{} {}", call.method, call.path.get(start..).unwrap_or_default())
}

fn query(call: &Call<'_>) -> BTreeMap<String, String> {
    let query = call.query.unwrap_or_default();
    url::form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

/// The body; an empty object if the request has none.
fn body(call: &Call<'_>) -> Result<Value, Refusal> {
    if call.body.is_empty() {
        return Ok(json!({}));
    }
    serde_json::from_slice(call.body)
        .map_err(|error| Refusal::because(StatusCode::BAD_REQUEST, "parseError", format!("Parse Error: {error}")))
}

fn request_id(call: &Call<'_>) -> Result<Option<String>, Refusal> {
    let Some(text) = query(call).remove("requestId") else {
        return Ok(None);
    };
    let invalid = || {
        Refusal::invalid(format!(
            "Invalid value for field 'requestId': '{text}'. Must be a non-zero UUID."
        ))
    };
    let uuid = uuid::Uuid::try_parse(&text).map_err(|_| invalid())?;
    if uuid.is_nil() {
        return Err(invalid());
    }
    Ok(Some(uuid.to_string()))
}

fn page_size(text: Option<&str>) -> Result<usize, Refusal> {
    match text.map(|text| (text, text.parse::<usize>())) {
        // 0 means the default.
        None | Some((_, Ok(0))) => Ok(ENDPOINTS_PER_REQUEST_MAX),
        Some((_, Ok(size))) if size <= ENDPOINTS_PER_REQUEST_MAX => Ok(size),
        Some((text, _)) => Err(Refusal::invalid(format!(
            "Invalid value for field 'maxResults': '{text}'. Must be 0 to {ENDPOINTS_PER_REQUEST_MAX}."
        ))),
    }
}

/// The number of the last endpoint of the page before; 0 for the first page.
fn page_start(token: Option<&str>) -> Result<u64, Refusal> {
    let Some(token) = token.filter(|token| !token.is_empty()) else {
        return Ok(0);
    };
    let (prefix, suffix) = PAGE_TOKEN;
    let number = token.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(suffix));
    let number = number.and_then(|number| u64::from_str_radix(number, 16).ok());
    number
        .filter(|number| *number < u64::MAX)
        .ok_or_else(|| Refusal::invalid(format!("Invalid value for field 'pageToken': '{token}'.")))
}
