//! Carries out requests: turns the state and a request into effects and an answer.
//!
//! Knows no network: `base` handles rate limit, latency and most faults.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::admin;
use super::config::ServerConfig;
use super::endpoint::{self, ENDPOINTS_PER_REQUEST_MAX, Endpoint};
use super::json::without_nulls;
use super::neg::{Neg, NegSpec};
use super::operation::{Failure, Operation, Work};
use super::refusal::Refusal;
use super::target::{ApiMethod, Target, Zone};
use super::world::World;
use crate::StartError;
use crate::base::faults::Faults;
use crate::base::pipeline::{self, Common, Pipeline, Service, now_ms};
use crate::base::state_file;

type Request<'a> = pipeline::Request<'a, Compute>;

/// How page tokens begin and end. Clients must encode them in a query.
const PAGE_TOKEN: (&str, &str) = ("CgY6/", "+==");

/// A simulated Compute Engine without its network.
pub(super) struct Compute {
    pub(super) config: ServerConfig,
    pub(super) world: World,
    common: Common,
    /// Notified when operations were forgotten, or the state changed: wakes requests that wait.
    pub(super) changed: Arc<Notify>,
}

impl Service for Compute {
    const NAME: &'static str = "simulated Compute Engine";
    /// 500 endpoints with annotations take less than a hundred kilobytes.
    const BODY_BYTES_MAX: usize = 4 << 20;

    type Config = ServerConfig;
    type Target = Target;
    type InFlight = ();
    type State = World;

    fn open(config: ServerConfig) -> Result<Self, StartError> {
        Ok(Self {
            world: state_file::load(config.state_file.as_deref())?.unwrap_or_default(),
            common: Common {
                latency_ms: config.latency_ms,
                rate_limit_per_second: config.rate_limit_per_second,
                retry_after: config.retry_after,
                state_file: config.state_file.clone().filter(|_| !config.is_trial),
                faults: Faults::new(config.faults.clone()),
            },
            config,
            changed: Arc::default(),
        })
    }

    fn admin_routes() -> Router<Arc<Pipeline<Self>>> {
        admin::routes()
    }

    fn target(parts: &Parts) -> Option<Target> {
        Target::parse(&parts.method, parts.uri.path())
    }

    fn label(_method: &Method, target: Option<&Target>) -> String {
        target.map_or("(other)", Target::label).to_owned()
    }

    fn refusal(status: StatusCode, reason: Option<&str>, message: &str) -> Refusal {
        Refusal::because(status, reason.unwrap_or_else(|| Refusal::usual_reason(status)), message)
    }

    fn check_token(&self, authorization: Option<&[u8]>) -> Result<(), Refusal> {
        let unauthorized = |reason, message| Err(Refusal::because(StatusCode::UNAUTHORIZED, reason, message));
        match authorization.and_then(|value| value.strip_prefix(b"Bearer ")) {
            None | Some(b"") => unauthorized("required", "Login Required."),
            Some(token) if self.config.token.as_ref().is_some_and(|wanted| !wanted.is(token)) => {
                unauthorized("authError", "Invalid Credentials")
            }
            Some(_) => Ok(()),
        }
    }

    fn common(&mut self) -> &mut Common {
        &mut self.common
    }

    fn settle(&mut self, now_ms: u64) -> Result<(), Refusal> {
        if self.world.settle(now_ms) {
            return self.save();
        }
        Ok(())
    }

    fn state(&self) -> World {
        self.world.clone()
    }

    fn replace(&mut self, state: World) -> Result<(), Refusal> {
        self.world = state;
        self.save()?;
        self.changed.notify_waiters();
        Ok(())
    }

    fn begin(&mut self, _method: &Method, _target: Option<&Target>) {}

    async fn answer(pipeline: &Pipeline<Self>, request: Request<'_>) -> Result<Response, Refusal> {
        let target = request.target.ok_or_else(|| {
            let message = "The requested URL was not found on this server.";
            Refusal::because(StatusCode::NOT_FOUND, "notFound", message)
        })?;
        let answer = match &target.method {
            ApiMethod::Wait(name) => wait(pipeline, target, name, &request).await,
            _ => carry_out(pipeline, target, &request),
        };
        answer.map(|body| Json(body).into_response())
    }
}

fn carry_out(pipeline: &Pipeline<Compute>, target: &Target, request: &Request<'_>) -> Result<Value, Refusal> {
    let now_ms = now_ms();
    let mut compute = pipeline.service();
    compute.settle(now_ms)?;
    compute.answer(now_ms, target, request)
}

/// Answers when the operation is done, or when the request has blocked for `wait_ms`.
async fn wait(
    pipeline: &Pipeline<Compute>,
    target: &Target,
    name: &str,
    request: &Request<'_>,
) -> Result<Value, Refusal> {
    let began_ms = now_ms();
    let changed = Arc::clone(&pipeline.service().changed);
    loop {
        // From here on a change wakes this request, even one that comes before it waits below.
        let notified = changed.notified();
        let answer = carry_out(pipeline, target, request)?;
        let now_ms = now_ms();
        let (wait_ms, due_ms) = {
            let compute = pipeline.service();
            let operation = compute.world.operation(&target.zone, name);
            (compute.config.wait_ms, operation.map(|operation| operation.due_ms))
        };
        let until_ms = began_ms + wait_ms;
        if answer.get("status").and_then(Value::as_str) == Some("DONE") || now_ms >= until_ms {
            return Ok(answer);
        }
        let wake_ms = due_ms.unwrap_or(until_ms).clamp(now_ms + 1, until_ms.max(now_ms + 1));
        let wake = Instant::now() + Duration::from_millis(wake_ms - now_ms);
        tokio::select! {
            () = notified => {}
            () = sleep_until(wake) => {}
        }
    }
}

impl Compute {
    /// Answers a request. What is due must have taken effect.
    fn answer(&mut self, now_ms: u64, target: &Target, request: &Request<'_>) -> Result<Value, Refusal> {
        let zone = &target.zone;
        match &target.method {
            ApiMethod::ListNegs => Ok(self.list_negs(zone)),
            ApiMethod::GetNeg(name) => Ok(self.neg(zone, name)?.json(zone)),
            ApiMethod::ListEndpoints(name) => self.list_endpoints(zone, name, request),
            ApiMethod::InsertNeg => self.operate(now_ms, zone, request, |compute| compute.insertion(zone, request)),
            ApiMethod::Attach(name) => {
                self.operate(now_ms, zone, request, |compute| compute.attachment(zone, name, request))
            }
            ApiMethod::Detach(name) => self.operate(now_ms, zone, request, |compute| {
                let endpoints = compute.endpoints(zone, name, request)?;
                Ok((name.clone(), Work::Detach(endpoints)))
            }),
            ApiMethod::GetOperation(name) | ApiMethod::Wait(name) => {
                let operation = self.world.operation(zone, name);
                let operation = operation.ok_or_else(|| Refusal::no_resource(&zone.operation_path(name)))?;
                Ok(operation.json(now_ms))
            }
        }
    }

    fn neg(&self, zone: &Zone, name: &str) -> Result<&Neg, Refusal> {
        let neg = self.world.neg(zone, name);
        neg.ok_or_else(|| Refusal::no_resource(&zone.neg_path(name)))
    }

    fn list_negs(&self, zone: &Zone) -> Value {
        let prefix = zone.neg_path("");
        let named = self.world.negs.range(prefix.clone()..);
        let in_zone = named.take_while(|(path, _)| path.starts_with(&prefix));
        let items: Vec<_> = in_zone.map(|(_, neg)| neg.json(zone)).collect();
        without_nulls(json!({
            "kind": "compute#networkEndpointGroupList",
            "id": prefix.trim_end_matches('/'),
            "items": (!items.is_empty()).then_some(items),
        }))
    }

    fn list_endpoints(&self, zone: &Zone, name: &str, request: &Request<'_>) -> Result<Value, Refusal> {
        let query = query(request);
        let neg = self.neg(zone, name)?;
        if let Some(status) = body(request)?.get("healthStatus")
            && !matches!(status.as_str(), Some("SKIP" | "SHOW"))
        {
            let why = format!("{status}. It is SKIP or SHOW.");
            return Err(Refusal::invalid_value("healthStatus", why));
        }
        let limit = page_size(query.get("maxResults").map(String::as_str))?;
        let after = page_start(query.get("pageToken").map(String::as_str))?;
        let mut rest = neg.endpoints.range(after + 1..);
        let page: Vec<_> = rest.by_ref().take(limit).collect();
        let shown =
            |endpoint: &Endpoint| json!({"networkEndpoint": endpoint.json(self.config.ipv6_long), "healths": []});
        let items: Vec<_> = page.iter().map(|(_, endpoint)| shown(endpoint)).collect();
        let (prefix, suffix) = PAGE_TOKEN;
        let next = rest.next().and(page.last());
        let next = next.map(|(last, _)| format!("{prefix}{last:x}{suffix}"));
        Ok(without_nulls(json!({
            "kind": "compute#networkEndpointGroupsListNetworkEndpoints",
            "id": format!("{}/listNetworkEndpoints", zone.neg_path(name)),
            "items": (!items.is_empty()).then_some(items),
            "nextPageToken": next,
        })))
    }

    /// The name of the NEG to insert, and its insertion.
    fn insertion(&self, zone: &Zone, request: &Request<'_>) -> Result<(String, Work), Refusal> {
        let spec = NegSpec::read(zone, &body(request)?)?;
        let is_insertion = |operation: &Operation| matches!(operation.work, Work::Insert(_));
        let name = &spec.name;
        if self.world.neg(zone, name).is_some() || self.world.pending_on(zone, name).any(is_insertion) {
            let message = format!("The resource '{}' already exists", zone.neg_path(name));
            return Err(Refusal::because(StatusCode::CONFLICT, "alreadyExists", message));
        }
        Ok((spec.name.clone(), Work::Insert(spec)))
    }

    fn attachment(&self, zone: &Zone, name: &str, request: &Request<'_>) -> Result<(String, Work), Refusal> {
        let endpoints = self.endpoints(zone, name, request)?;
        if let Some(max) = self.config.endpoints_max {
            let ahead = self.world.endpoints_ahead(zone, name) + endpoints.len();
            if ahead > usize::try_from(max).unwrap_or(usize::MAX) {
                let message = format!("Quota 'NETWORK_ENDPOINTS_PER_NETWORK_ENDPOINT_GROUP' exceeded. Limit: {max}");
                return Err(Refusal::because(StatusCode::FORBIDDEN, "quotaExceeded", message));
            }
        }
        Ok((name.to_owned(), Work::Attach(endpoints)))
    }

    fn endpoints(&self, zone: &Zone, name: &str, request: &Request<'_>) -> Result<Vec<Endpoint>, Refusal> {
        let kind = self.neg(zone, name)?.spec.kind;
        endpoint::read_all(&body(request)?, kind)
    }

    /// Begins an operation, unless the same call has begun one before.
    fn operate(
        &mut self,
        now_ms: u64,
        zone: &Zone,
        request: &Request<'_>,
        work: impl FnOnce(&Self) -> Result<(String, Work), Refusal>,
    ) -> Result<Value, Refusal> {
        let request_id = request_id(request)?;
        let method = request.parts.method.as_str();
        let path = request.parts.uri.path();
        // A `requestId` is known by its call, which is method and path from `projects/` on, whatever the prefix.
        let call = path.get(path.rfind("projects/").unwrap_or_default()..);
        let call = call.unwrap_or_default();
        let key = request_id.as_ref().map(|id| format!("{method} {call} {id}"));
        if let Some(again) = key.as_deref().and_then(|key| self.world.repeated(key)) {
            let again = again.json(now_ms);
            self.save()?;
            return Ok(again);
        }
        let (neg, work) = work(self)?;
        let fault = self.common.faults.for_later(method, path);
        let target_id = match self.world.neg(zone, &neg) {
            Some(neg) => neg.id,
            None => self.world.next_id(),
        };
        let operation = Operation {
            id: self.world.next_id(),
            zone: zone.clone(),
            neg,
            target_id,
            request_id,
            repeats: 0,
            work,
            received_ms: now_ms,
            start_ms: now_ms + self.config.operation_ms / 2,
            due_ms: now_ms + self.config.operation_ms,
            is_done: false,
            planned: fault.map(|fault| Failure::by_fault(fault.code, fault.message)),
            failure: None,
            is_forgotten: false,
        };
        // The answer to the request that begins it is pending, however short it is.
        let begun = self.world.begin(key, operation).json_as("PENDING", 0);
        self.save()?;
        Ok(begun)
    }
}

fn query(request: &Request<'_>) -> BTreeMap<String, String> {
    let query = request.parts.uri.query().unwrap_or_default();
    url::form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

/// The body; an empty object if the request has none.
fn body(request: &Request<'_>) -> Result<Value, Refusal> {
    if request.body.is_empty() {
        return Ok(json!({}));
    }
    serde_json::from_slice(request.body)
        .map_err(|error| Refusal::because(StatusCode::BAD_REQUEST, "parseError", format!("Parse Error: {error}")))
}

fn request_id(request: &Request<'_>) -> Result<Option<String>, Refusal> {
    let Some(text) = query(request).remove("requestId") else {
        return Ok(None);
    };
    match uuid::Uuid::try_parse(&text) {
        Ok(uuid) if !uuid.is_nil() => Ok(Some(uuid.to_string())),
        _ => Err(Refusal::invalid_field(
            "requestId",
            &json!(text),
            "Must be a non-zero UUID.",
        )),
    }
}

fn page_size(text: Option<&str>) -> Result<usize, Refusal> {
    match text.map(|text| (text, text.parse::<usize>())) {
        // 0 means the default.
        None | Some((_, Ok(0))) => Ok(ENDPOINTS_PER_REQUEST_MAX),
        Some((_, Ok(size))) if size <= ENDPOINTS_PER_REQUEST_MAX => Ok(size),
        Some((text, _)) => {
            let why = format!("Must be 0 to {ENDPOINTS_PER_REQUEST_MAX}.");
            Err(Refusal::invalid_field("maxResults", &json!(text), &why))
        }
    }
}

/// The number of the last endpoint of the page before; 0 for the first page.
fn page_start(token: Option<&str>) -> Result<u64, Refusal> {
    let Some(token) = token.filter(|token| !token.is_empty()) else {
        return Ok(0);
    };
    let (prefix, suffix) = PAGE_TOKEN;
    let number = token.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(suffix));
    match number.map(|number| u64::from_str_radix(number, 16)) {
        Some(Ok(number)) if number < u64::MAX => Ok(number),
        _ => Err(Refusal::invalid_value("pageToken", format!("'{token}'."))),
    }
}
