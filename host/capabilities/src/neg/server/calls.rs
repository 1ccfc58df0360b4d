//! Carries out requests: computes effects and an answer from the state and the request.
//!
//! Takes time as an argument and knows no network. The door (`door.rs`) handles the rest between a client and this:
//! token, rate limit, latency, most faults.

use std::collections::BTreeMap;

use axum::http::{Method, StatusCode};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};

use super::ServerConfig;
use super::endpoint::{self, ENDPOINTS_PER_REQUEST_MAX};
use super::faults::{Faults, failure_by_chance};
use super::neg::{Neg, Wish};
use super::operation::{Failure, Work};
use super::refusal::Refusal;
use super::target::{Ask, Target, Zone};
use super::world::{Start, World};

/// The beginning and the end of page tokens. The part in between is internal to this server; a client must know that
/// tokens need encoding in a query.
const PAGE_TOKEN: (&str, &str) = ("CgY6/", "+==");

/// An admitted request.
pub(super) struct Call<'a> {
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    pub(super) query: Option<&'a str>,
    pub(super) body: &'a [u8],
    pub(super) now_ms: u64,
}

/// The objects that a request works with.
pub(super) struct Desk<'a> {
    pub(super) world: &'a mut World,
    pub(super) faults: &'a mut Faults,
    pub(super) config: &'a ServerConfig,
}

impl Desk<'_> {
    /// Answers a request. Due operations must have taken effect.
    pub(super) fn answer(&mut self, target: &Target, call: &Call<'_>) -> Result<Value, Refusal> {
        let zone = &target.zone;
        match &target.ask {
            Ask::ListNegs => Ok(self.list_negs(zone)),
            Ask::GetNeg(name) => Ok(self.neg(zone, name)?.json(zone)),
            Ask::ListEndpoints(name) => self.list_endpoints(zone, name, call),
            Ask::InsertNeg => self.insert(zone, call),
            Ask::Attach(name) => self.change(zone, name, call, Work::Attach),
            Ask::Detach(name) => self.change(zone, name, call, Work::Detach),
            Ask::GetOperation(name) | Ask::Wait(name) => {
                let operation = self.world.operation(zone, name);
                let operation = operation.ok_or_else(|| Refusal::not_found(&zone.operation_path(name)))?;
                Ok(operation.json(call.now_ms))
            }
        }
    }

    fn neg(&self, zone: &Zone, name: &str) -> Result<&Neg, Refusal> {
        let neg = self.world.neg(zone, name);
        neg.ok_or_else(|| Refusal::not_found(&zone.neg_path(name)))
    }

    fn list_negs(&self, zone: &Zone) -> Value {
        let items: Vec<_> = self.world.negs(zone).map(|neg| neg.json(zone)).collect();
        let mut answer = json!({
            "kind": "compute#networkEndpointGroupList",
            "id": zone.neg_path("").trim_end_matches('/'),
        });
        if let (false, Some(answer)) = (items.is_empty(), answer.as_object_mut()) {
            answer.insert("items".to_owned(), json!(items));
        }
        answer
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
        let mut answer = Map::from_iter([
            (
                "kind".to_owned(),
                json!("compute#networkEndpointGroupsListNetworkEndpoints"),
            ),
            (
                "id".to_owned(),
                json!(format!("{}/listNetworkEndpoints", zone.neg_path(name))),
            ),
        ]);
        if !items.is_empty() {
            answer.insert("items".to_owned(), json!(items));
        }
        if let (Some(_), Some((last, _))) = (rest.next(), page.last()) {
            let (prefix, suffix) = PAGE_TOKEN;
            answer.insert("nextPageToken".to_owned(), json!(format!("{prefix}{last:x}{suffix}")));
        }
        Ok(Value::Object(answer))
    }

    fn insert(&mut self, zone: &Zone, call: &Call<'_>) -> Result<Value, Refusal> {
        let request_id = request_id(call)?;
        if let Some(again) = self.repeated(call, request_id.as_deref()) {
            return Ok(again);
        }
        let wish = Wish::read(zone, &body(call)?)?;
        let name = wish.name.clone();
        if self.world.neg(zone, &name).is_some() || self.world.is_inserting(zone, &name) {
            return Err(Refusal::already_exists(&zone.neg_path(&name)));
        }
        Ok(self.begin(zone, &name, call, request_id, Work::Insert(wish)))
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
        let kind = self.neg(zone, name)?.wish.kind;
        let work = work(endpoint::read_all(&body(call)?, kind)?);
        if let (Work::Attach(endpoints), Some(max)) = (&work, self.config.endpoints_max) {
            let ahead = self.world.endpoints_ahead(zone, name) + endpoints.len();
            if ahead > usize::try_from(max).unwrap_or(usize::MAX) {
                let message = format!("Quota 'NETWORK_ENDPOINTS_PER_NETWORK_ENDPOINT_GROUP' exceeded. Limit: {max}");
                return Err(Refusal::new(StatusCode::FORBIDDEN, "quotaExceeded", message));
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
        let by_fault = self.faults.for_operation(call.method.as_str(), call.path);
        let config = self.config;
        let planned = |id| by_fault.or_else(|| chance(config, id));
        self.world.begin(&call_name(call), start, planned).json_begun()
    }
}

/// Whether the operation of this number fails by chance.
fn chance(config: &ServerConfig, id: u64) -> Option<Failure> {
    let mut random = ChaCha8Rng::seed_from_u64(config.seed);
    // Each operation has its own place in the stream, independent of earlier operations.
    random.set_stream(id);
    (random.next_u32() % 100 < u32::from(config.fail_operations_percent)).then(failure_by_chance)
}

/// The text that a `requestId` belongs to: from `projects/` on, so that a prefix does not matter.
fn call_name(call: &Call<'_>) -> String {
    let start = call.path.rfind("projects/").unwrap_or_default();
    format!("{} {}", call.method, call.path.get(start..).unwrap_or_default())
}

fn query(call: &Call<'_>) -> BTreeMap<String, String> {
    let query = call.query.unwrap_or_default();
    url::form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

/// The body; an empty object if there is none.
fn body(call: &Call<'_>) -> Result<Value, Refusal> {
    if call.body.is_empty() {
        return Ok(json!({}));
    }
    serde_json::from_slice(call.body)
        .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, "parseError", format!("Parse Error: {error}")))
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
        // As if it were missing.
        None | Some((_, Ok(0))) => Ok(ENDPOINTS_PER_REQUEST_MAX),
        Some((_, Ok(size))) if size <= ENDPOINTS_PER_REQUEST_MAX => Ok(size),
        Some((text, _)) => Err(Refusal::invalid(format!(
            "Invalid value for field 'maxResults': '{text}'. Must be 0 to {ENDPOINTS_PER_REQUEST_MAX}."
        ))),
    }
}

/// The number of the previous page's last endpoint; 0 for the first page.
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
