//! Every rule of the backend against servers with scripted answers. Pauses are shortened to milliseconds.

mod creations;
mod fake;
mod fence;
mod leftovers;
mod limits;
mod lists;
mod log;
mod proxy;
mod pure;
mod requests;
mod server;
mod simulated;
mod tls;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper_util::client::proxy::matcher::Matcher;
use serde_json::{Value, json};
use trueup_base::fence::{Fence, Moment};
use trueup_base::http::client::Client;

use super::http::Pauses;
use super::{Anexia, RequestMetrics, Settings, token};
use crate::lbaas::testing::{self, bind, refs, server as server_of};
use crate::lbaas::{Api as _, Error, Kind, Object, ObjectRef, Spec};

const TOKEN: &str = "t0p-secret-token";
pub(super) const TAG: &str = "anxccm-svc-uid=u-1";

/// Records what was counted.
#[derive(Default)]
struct Counted {
    requests: Mutex<BTreeMap<(String, String, String), u64>>,
    in_flight: Mutex<(i64, i64)>,
}

impl RequestMetrics for Counted {
    fn request(&self, resource: &str, method: &str, status: &str) {
        let labels = (resource.to_owned(), method.to_owned(), status.to_owned());
        *self.requests.lock().unwrap().entry(labels).or_default() += 1;
    }

    fn in_flight(&self, delta: i64) {
        let (now, most) = &mut *self.in_flight.lock().unwrap();
        *now += delta;
        *most = (*most).max(*now);
    }
}

impl Counted {
    /// `RESOURCE METHOD STATUS` with its count.
    fn lines(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests
            .iter()
            .map(|((resource, method, status), n)| format!("{resource} {method} {status}: {n}"))
            .collect()
    }
}

const QUICK: Pauses = Pauses {
    tries: [Duration::from_millis(10), Duration::from_millis(20)],
    tagging: Duration::from_millis(10),
};

/// The settings for an Engine at this URL.
fn at(url: &str) -> Settings {
    Settings {
        url: url.to_owned(),
        ..Settings::default()
    }
}

/// [`at`] with other values than the defaults.
fn at_with(url: &str, change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = at(url);
    change(&mut settings);
    settings
}

fn engine(url: &str) -> Anexia {
    engine_with(at(url)).0
}

fn engine_with(settings: Settings) -> (Anexia, Arc<Counted>) {
    fenced(settings, &Fence::open())
}

fn fenced(settings: Settings, fence: &Fence) -> (Anexia, Arc<Counted>) {
    built(settings, fence, None, &Matcher::builder().build())
}

/// With a folder for its intents, an engine's pending creations survive it.
fn built(settings: Settings, fence: &Fence, intents: Option<&Path>, proxies: &Matcher) -> (Anexia, Arc<Counted>) {
    let counted = Arc::new(Counted::default());
    let metrics: Arc<dyn RequestMetrics> = Arc::<Counted>::clone(&counted);
    let token = token::new(TOKEN, "the test").unwrap();
    let mut engine = Anexia::new(settings, token, metrics, fence.clone(), intents).unwrap();
    let shared = Arc::get_mut(&mut engine.engine).unwrap();
    shared.pauses = QUICK;
    shared.client = Client::new(&shared.base.parse().unwrap(), shared.times, proxies).unwrap();
    (engine, counted)
}

fn tags() -> Vec<String> {
    vec![TAG.to_owned()]
}

async fn create(engine: &Anexia, spec: Spec) -> Result<Object, Error> {
    engine.create(&[spec], &tags()).await.remove(0)
}

/// The identifier of what is created, or adopted in its place.
async fn created(engine: &Anexia, spec: Spec) -> String {
    create(engine, spec).await.unwrap().identifier
}

/// A fence and the hand of its clock, in seconds. It is open for a minute by that clock, which does not run.
fn leased() -> (Fence, Arc<AtomicU64>) {
    let hand = Arc::new(AtomicU64::new(1_000));
    let clock = Arc::clone(&hand);
    let fence = Fence::closed_by(move || Moment::after_start(Duration::from_secs(clock.load(SeqCst))));
    fence.extend_to(fence.now() + Duration::from_secs(60));
    (fence, hand)
}

/// This host is stopped, another one acts, and this one has the lease again before it does anything else.
fn again_after_others(fence: &Fence, hand: &AtomicU64) {
    hand.store(AFTER_THE_LEASE, SeqCst);
    fence.extend_to(fence.now() + Duration::from_secs(60));
    assert!(fence.may_act());
}

/// The clock's time when a process resumes that was stopped past its lease.
const AFTER_THE_LEASE: u64 = 2_000;

/// Waits for an event that must come, however slow the machine is.
async fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !happened() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what} does not happen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(super) fn backend(name: &str) -> Spec {
    testing::backend(name, "lb")
}

fn frontend(name: &str, default_backend: &str) -> Spec {
    testing::frontend(name, "lb", default_backend)
}

/// The Engine's answer for a server.
fn server_json(identifier: &str) -> Value {
    json!({
        "identifier": identifier, "name": identifier, "ip": "10.0.0.1", "port": 80, "check": "enabled",
        "backend": {"identifier": "b", "name": "b"}, "state": {"id": "3", "text": "Deployed", "type": 1},
    })
}

fn refused(status: u16, text: &str) -> Error {
    Error::Refused((status, text.to_owned()))
}

fn unavailable(text: &str) -> Error {
    Error::Unavailable(text.to_owned())
}
