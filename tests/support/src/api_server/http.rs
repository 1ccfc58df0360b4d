//! Answers requests, or lets them fail if a test wants that.
//!
//! `request.rs` parses a request; `write.rs`, `delete.rs`, `read.rs` and `watch.rs` decide its outcome.

use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Query, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::Response;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::controls::{Fault, Logged, version_of};
use super::failure::Failure;
use super::kinds::{Kind, Trait};
use super::read;
use super::request::{
    Call, Change, namespace_of, place, read_body, read_change, read_deletion, read_path, read_wanted, terms, text,
    token,
};
use super::store::Key;
use super::view::{self, View};
use super::watch::{self, Watched};
use super::wire::Connection;
use super::write::{self, Place};
use super::{Shared, access, delete, discovery};

/// The longest body, as on a real server.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The answer to a request, and the resourceVersion for the log.
type Answer = Result<(Response, String), Failure>;

/// Answers a request, or cuts its connection if a test wants the answer lost.
pub(super) async fn handle(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(connection): ConnectInfo<Connection>,
    request: Request,
) -> Response {
    let at = Instant::now();
    let (parts, body) = request.into_parts();
    let (mut asked, kind) = read_path(&parts.method, parts.uri.path());
    asked.query = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
        .map(|query| query.0)
        .unwrap_or_default();
    if asked.verb == "get" && kind.is_some() || asked.verb == "list" {
        let watched = matches!(asked.parameter("watch"), "true" | "1");
        asked.verb = if watched { "watch".to_owned() } else { asked.verb };
    }
    let Some(user) = shared.controls().user_of(token(&parts.headers)) else {
        return refused(&Failure::unauthorized());
    };
    asked.user = user;
    let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else {
        return refused(&Failure::too_large(BODY_BYTES_MAX));
    };
    let fault = shared.controls().fault_for(&asked);
    let call = Call {
        asked,
        kind,
        method: parts.method,
        headers: parts.headers,
        body,
    };
    // In its own task: once begun, a request completes, whether or not the caller waits.
    let done = tokio::spawn(with_fault(shared, call, fault, at)).await;
    match done {
        Ok(Some(response)) => response,
        Ok(None) => {
            connection.cut();
            std::future::pending().await
        }
        Err(error) => refused(&Failure::bad_request(format!("the tests' API server failed: {error}"))),
    }
}

/// The answer; `None` if it is lost.
async fn with_fault(shared: Arc<Shared>, call: Call, fault: Option<Fault>, at: Instant) -> Option<Response> {
    if let Some(Fault::Late(delay)) = &fault {
        tokio::time::sleep(*delay).await;
    }
    let answer = match &fault {
        Some(Fault::Lost) => Ok((Response::default(), String::new())),
        Some(Fault::Refused { code, retry_after_s }) => Err(Failure::of_code(*code, *retry_after_s)),
        _ => answer(&shared, &call),
    };
    let lost = matches!(fault, Some(Fault::Lost | Fault::AnswerLost));
    let (response, version) = answer.unwrap_or_else(|failure| (refused(&failure), String::new()));
    shared.controls().log(Logged {
        at,
        asked: call.asked,
        status: if lost { 0 } else { response.status().as_u16() },
        version,
    });
    if let Some(Fault::AnsweredLate(delay)) = fault {
        tokio::time::sleep(delay).await;
    }
    (!lost).then_some(response)
}

fn answer(shared: &Arc<Shared>, call: &Call) -> Answer {
    let Some(kind) = call.kind else {
        return no_resource(shared, call);
    };
    let asked = &call.asked;
    if !kind.namespaced && !asked.namespace.is_empty() {
        return Err(Failure::no_such_path());
    }
    if !(asked.subresource.is_empty() || asked.subresource == "status" && kind.has(Trait::Status)) {
        return Err(Failure::no_such_path());
    }
    if shared.controls().rbac {
        access::check(&shared.store(), asked, kind)?;
    }
    let view = view::wanted(text(&call.headers, header::ACCEPT), asked.parameter("includeObject"))?;
    match (asked.verb.as_str(), asked.subresource.as_str()) {
        ("get", _) => {
            let store = shared.store();
            let found = store.get(&Key::new(kind, &asked.namespace, &asked.name));
            let object = Arc::clone(found.ok_or_else(|| Failure::not_found(kind, &asked.name))?);
            drop(store);
            Ok((
                json_response(200, &view.one(kind, &object, Timestamp::now(), true)),
                version_of(&object),
            ))
        }
        ("list", _) => {
            let wanted = read_wanted(asked, kind)?;
            let listed = read::list(&shared.store(), kind, &wanted)?;
            Ok((
                json_response(200, &view.many(kind, &listed, Timestamp::now())),
                wanted.version,
            ))
        }
        ("watch", _) => watched(shared, call, kind, view),
        ("create", "") if asked.name.is_empty() => {
            let body = read_body(call)?;
            let namespace = if kind.namespaced {
                namespace_of(asked, &body)
            } else {
                String::new()
            };
            let created = shared.write(&asked.user, |store| {
                write::create(store, kind, &namespace, body, terms(asked))
            })?;
            written(kind, view, &created)
        }
        ("update" | "patch", _) if !asked.name.is_empty() => {
            let place = place(asked, kind);
            let change = read_change(call)?;
            let done = shared.write(&asked.user, |store| match change {
                Change::Replace(body) => write::replace(store, place, body, terms(asked)),
                Change::Patch(patch) => write::patch(store, place, patch, terms(asked)),
            })?;
            written(kind, view, &done)
        }
        ("delete", "") => delete_one(shared, call, kind, view),
        ("deletecollection", "") => delete_all(shared, call, kind, view),
        _ => Err(Failure::method_not_allowed()),
    }
}

fn watched(shared: &Arc<Shared>, call: &Call, kind: &'static Kind, view: View) -> Answer {
    let asked = &call.asked;
    let wanted = read_wanted(asked, kind)?;
    let version = wanted.version.clone();
    let is = |name: &str| matches!(asked.parameter(name), "true" | "1");
    let watched = Watched {
        kind,
        wanted,
        view,
        bookmarks: is("allowWatchBookmarks"),
        initial: (!asked.parameter("sendInitialEvents").is_empty()).then(|| is("sendInitialEvents")),
        timeout_s: asked
            .parameter("timeoutSeconds")
            .parse()
            .ok()
            .filter(|seconds| *seconds > 0),
    };
    let body = watch::begin(shared, watched)?;
    let response = Response::builder()
        .header(header::CONTENT_TYPE, "application/json")
        .body(body);
    Ok((response.unwrap_or_default(), version))
}

fn delete_one(shared: &Arc<Shared>, call: &Call, kind: &'static Kind, view: View) -> Answer {
    let asked = &call.asked;
    let deletion = read_deletion(call)?;
    let deleted = shared.write(&asked.user, |store| {
        delete::delete(store, place(asked, kind), &deletion, terms(asked))
    })?;
    let version = version_of(&deleted.object);
    if !deleted.gone || kind.has(Trait::DeletedIsReturned) {
        return Ok((
            json_response(200, &view.one(kind, &deleted.object, Timestamp::now(), true)),
            version,
        ));
    }
    let mut details = json!({ "name": asked.name, "kind": kind.plural, "uid": deleted.object["metadata"]["uid"] });
    if !kind.group.is_empty() {
        details["group"] = json!(kind.group);
    }
    let status =
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details });
    Ok((json_response(200, &status), version))
}

fn delete_all(shared: &Arc<Shared>, call: &Call, kind: &'static Kind, view: View) -> Answer {
    let asked = &call.asked;
    let (wanted, deletion) = (read_wanted(asked, kind)?, read_deletion(call)?);
    let listed = shared.write(&asked.user, |store| {
        let listed = read::list(store, kind, &wanted)?;
        for object in &listed.objects {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
            let place = Place {
                kind,
                namespace: text("namespace"),
                name: text("name"),
                status: false,
            };
            // Another one's deletion has already removed it as a dependent.
            match delete::delete(store, place, &deletion, terms(asked)) {
                Err(failure) if failure.code != 404 => return Err(failure),
                _ => {}
            }
        }
        Ok(listed)
    })?;
    Ok((
        json_response(200, &view.many(kind, &listed, Timestamp::now())),
        String::new(),
    ))
}

fn written(kind: &Kind, view: View, done: &write::Written) -> Answer {
    let code = if done.created { 201 } else { 200 };
    Ok((
        json_response(code, &view.one(kind, &done.object, Timestamp::now(), true)),
        version_of(&done.object),
    ))
}

fn no_resource(shared: &Arc<Shared>, call: &Call) -> Answer {
    let parts: Vec<&str> = call.asked.path.split('/').filter(|part| !part.is_empty()).collect();
    if call.method == Method::POST && parts.first() == Some(&"apis") {
        let review = access::review(shared, &call.asked, &parts, &read_body(call)?)?;
        return Ok((json_response(201, &review), String::new()));
    }
    if call.method != Method::GET {
        return Err(if parts.is_empty() {
            Failure::method_not_allowed()
        } else {
            Failure::no_such_path()
        });
    }
    let accept = text(&call.headers, header::ACCEPT);
    let response = match parts.as_slice() {
        ["healthz" | "livez" | "readyz"] => Response::new(Body::from("ok")),
        ["openapi", "v2"] if accept.contains("proto") => Response::builder()
            .header(header::CONTENT_TYPE, discovery::OPENAPI_V2_MEDIA)
            .body(Body::from(discovery::OPENAPI_V2))
            .unwrap_or_default(),
        ["openapi", "v2"] => json_response(200, &discovery::openapi_v2()),
        parts => json_response(200, &discovery::at(parts).ok_or_else(Failure::no_such_path)?),
    };
    Ok((response, String::new()))
}

fn refused(failure: &Failure) -> Response {
    let mut response = json_response(failure.code, &failure.status());
    if let Some(value) = failure
        .retry_after_s()
        .and_then(|seconds| seconds.to_string().parse().ok())
    {
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
    response
}

fn json_response(code: u16, body: &Value) -> Response {
    Response::builder()
        .status(StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body.to_string()))
        .unwrap_or_default()
}
