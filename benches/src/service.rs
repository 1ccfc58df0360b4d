//! A service with a number of ports and servers: the desired state, and an Engine on which it is in sync.

use std::future::ready;
use std::sync::Arc;

use anyhow::ensure;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use trueup_base::clock::VirtualClock;
use trueup_capabilities::async_trait;
use trueup_capabilities::faults::Faults;
use trueup_capabilities::lbaas::simulated::Simulated;
use trueup_capabilities::lbaas::{self, Api as _};
use trueup_guest_lbaas::bindings::exports::trueup::lbaas::reconciliation as native;
use trueup_guest_lbaas::bindings::trueup::lbaas::types;
use trueup_guest_lbaas::settings::Settings;
use trueup_guest_lbaas::{input, own, plan};

use crate::stage::NOW_MS;

/// The one load balancer.
pub const LOAD_BALANCER: &str = "lb-1";

/// The Service's uid, in the form of Kubernetes.
const UID: &str = "6c5dd3c9-6b6f-4b0a-9a8b-3f0d4a2f9a11";

/// The size of the service.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Ports.
    pub ports: u16,
    /// Servers behind each port.
    pub servers: u16,
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.ports, self.servers)
    }
}

impl Size {
    /// The number of its resources on the Engine: a backend, a frontend and a bind for each port, and its servers.
    #[must_use]
    pub fn objects(self) -> u32 {
        u32::from(self.ports) * (3 + u32::from(self.servers))
    }

    /// The tag of its resources.
    #[must_use]
    pub fn tag() -> String {
        format!("anxccm-svc-uid={UID}")
    }

    /// The desired state, in the native guest's types.
    #[must_use]
    pub fn desired(self) -> native::Desired {
        native::Desired {
            load_balancers: vec![LOAD_BALANCER.to_owned()],
            name_suffix: "web.default.cluster-1".to_owned(),
            service_uid: UID.to_owned(),
            external_addresses: vec!["203.0.113.10".to_owned()],
            ports: (0..self.ports).map(port).collect(),
            servers: (0..self.servers).map(server).collect(),
            backoff_steps: 30,
        }
    }

    /// The same as a call's arguments.
    ///
    /// # Errors
    /// Never: this has a JSON form.
    pub fn args(self) -> anyhow::Result<Box<RawValue>> {
        let desired = self.desired();
        let ports: Vec<_> = desired
            .ports
            .iter()
            .map(|port| json!({"name": port.name, "external": port.external, "internal": port.internal}))
            .collect();
        let servers: Vec<_> = desired
            .servers
            .iter()
            .map(|server| json!({"name": server.name, "address": server.address}))
            .collect();
        let args = json!({"desired": {
            "load_balancers": desired.load_balancers,
            "name_suffix": desired.name_suffix,
            "service_uid": desired.service_uid,
            "external_addresses": desired.external_addresses,
            "ports": ports,
            "servers": servers,
            "backoff_steps": desired.backoff_steps,
        }});
        Ok(to_raw_value(&args)?)
    }

    /// An Engine in memory on which the service is in sync.
    ///
    /// # Errors
    /// If the Engine refuses one of the resources.
    pub async fn filled(self) -> anyhow::Result<Arc<Simulated>> {
        let engine = empty_engine();
        let backends = create(&engine, (0..self.ports).map(|p| backend(&name(p))).collect()).await?;
        let frontends = backends
            .iter()
            .zip(0..)
            .map(|(backend, p)| frontend(&name(p), backend))
            .collect();
        let frontends = create(&engine, frontends).await?;
        create(
            &engine,
            frontends
                .iter()
                .zip(0..)
                .map(|(frontend, p)| bind(p, frontend))
                .collect(),
        )
        .await?;
        for (backend, p) in backends.iter().zip(0..) {
            create(
                &engine,
                (0..self.servers).map(|s| backend_server(p, s, backend)).collect(),
            )
            .await?;
        }
        Ok(engine)
    }
}

/// An Engine that only lists a copy of its initial contents. It answers every other request with not found.
pub struct Listed(Vec<lbaas::Object>);

impl Listed {
    /// The list of this Engine for the service.
    ///
    /// # Errors
    /// If it can't be listed.
    pub async fn of(engine: &Simulated) -> anyhow::Result<Arc<Self>> {
        let objects = engine
            .list_tagged(&Size::tag())
            .await
            .map_err(|error| anyhow::anyhow!("listing: {error:?}"))?;
        Ok(Arc::new(Self(objects)))
    }
}

#[async_trait]
impl lbaas::Api for Listed {
    async fn load_balancer(&self, _: &str) -> Result<lbaas::State, lbaas::Error> {
        ready(Ok(lbaas::State::Ok)).await
    }

    async fn list_tagged(&self, _: &str) -> Result<Vec<lbaas::Object>, lbaas::Error> {
        async { Ok(self.0.clone()) }.await
    }

    async fn get(&self, refs: &[lbaas::ObjectRef]) -> Vec<Result<lbaas::Object, lbaas::Error>> {
        async { absent(refs) }.await
    }

    async fn create(&self, specs: &[lbaas::Spec], _: &[String]) -> Vec<Result<lbaas::Object, lbaas::Error>> {
        async { absent(specs) }.await
    }

    async fn reset(&self, refs: &[lbaas::ObjectRef]) -> Vec<Result<(), lbaas::Error>> {
        async { absent(refs) }.await
    }

    async fn destroy(&self, refs: &[lbaas::ObjectRef]) -> Vec<Result<(), lbaas::Error>> {
        async { absent(refs) }.await
    }
}

fn absent<T, R>(entries: &[T]) -> Vec<Result<R, lbaas::Error>> {
    entries.iter().map(|_| Err(lbaas::Error::NotFound)).collect()
}

/// An Engine in memory with one load balancer, which applies everything at once.
#[must_use]
pub fn empty_engine() -> Arc<Simulated> {
    let engine = Simulated::new(Arc::new(VirtualClock::new(NOW_MS)), Arc::new(Faults::default()), 0);
    engine.put_load_balancer(LOAD_BALANCER.to_owned(), lbaas::State::Ok);
    Arc::new(engine)
}

async fn create(engine: &Simulated, specs: Vec<lbaas::Spec>) -> anyhow::Result<Vec<String>> {
    let created = engine.create(&specs, &[Size::tag()]).await;
    ensure!(
        created.len() == specs.len(),
        "the Engine answered {} of {} entries",
        created.len(),
        specs.len()
    );
    created
        .into_iter()
        .map(|entry| {
            entry
                .map(|object| object.identifier)
                .map_err(|error| anyhow::anyhow!("{error:?}"))
        })
        .collect()
}

fn port(number: u16) -> native::Port {
    native::Port {
        name: format!("port-{number}"),
        external: 8_000 + number,
        internal: 30_000 + number,
    }
}

fn server(number: u16) -> native::Target {
    native::Target {
        name: format!("node-{number}.example.test"),
        address: ip(number),
    }
}

fn ip(number: u16) -> String {
    let [high, low] = number.to_be_bytes();
    format!("10.240.{high}.{low}")
}

fn name(port: u16) -> String {
    format!("port-{port}.web.default.cluster-1")
}

fn backend(name: &str) -> lbaas::Spec {
    lbaas::Spec::Backend(lbaas::Backend {
        name: name.to_owned(),
        load_balancer: LOAD_BALANCER.to_owned(),
        mode: lbaas::Mode::Tcp,
        health_check: trueup_guest_lbaas::desired::HEALTH_CHECK.to_owned(),
    })
}

fn frontend(name: &str, backend: &str) -> lbaas::Spec {
    lbaas::Spec::Frontend(lbaas::Frontend {
        name: name.to_owned(),
        load_balancer: LOAD_BALANCER.to_owned(),
        mode: lbaas::Mode::Tcp,
        default_backend: backend.to_owned(),
    })
}

fn bind(port_number: u16, frontend: &str) -> lbaas::Spec {
    lbaas::Spec::Bind(lbaas::Bind {
        name: format!("v4.{}", name(port_number)),
        frontend: frontend.to_owned(),
        address: "203.0.113.10".to_owned(),
        port: port(port_number).external,
    })
}

fn backend_server(port_number: u16, number: u16, backend: &str) -> lbaas::Spec {
    lbaas::Spec::Server(lbaas::Server {
        name: format!("{}.{}", server(number).name, name(port_number)),
        backend: backend.to_owned(),
        ip: ip(number),
        port: port(port_number).internal,
        check: "enabled".to_owned(),
    })
}

/// The Engine's list, in the native guest's types.
///
/// # Errors
/// If it can't be listed.
pub async fn listed(engine: &Simulated) -> anyhow::Result<Vec<types::Object>> {
    let objects = engine
        .list_tagged(&Size::tag())
        .await
        .map_err(|error| anyhow::anyhow!("listing: {error:?}"))?;
    Ok(objects.into_iter().map(native_object).collect())
}

fn native_object(object: lbaas::Object) -> types::Object {
    let mode = |mode| match mode {
        lbaas::Mode::Tcp => types::Mode::Tcp,
        lbaas::Mode::Http => types::Mode::Http,
    };
    types::Object {
        identifier: object.identifier,
        state: match object.state {
            lbaas::State::Ok => types::State::Ok,
            lbaas::State::Pending => types::State::Pending,
            lbaas::State::Failed => types::State::Failed,
            lbaas::State::Updating => types::State::Updating,
        },
        spec: match object.spec {
            lbaas::Spec::Backend(lbaas::Backend {
                name,
                load_balancer,
                mode: of,
                health_check,
            }) => types::Spec::Backend(types::Backend {
                name,
                load_balancer,
                mode: mode(of),
                health_check,
            }),
            lbaas::Spec::Frontend(lbaas::Frontend {
                name,
                load_balancer,
                mode: of,
                default_backend,
            }) => types::Spec::Frontend(types::Frontend {
                name,
                load_balancer,
                mode: mode(of),
                default_backend,
            }),
            lbaas::Spec::Bind(lbaas::Bind {
                name,
                frontend,
                address,
                port,
            }) => types::Spec::Bind(types::Bind {
                name,
                frontend,
                address,
                port,
            }),
            lbaas::Spec::Server(lbaas::Server {
                name,
                backend,
                ip,
                port,
                check,
            }) => types::Spec::Server(types::Server {
                name,
                backend,
                ip,
                port,
                check,
            }),
        },
    }
}

/// The decision of `reconcile-check` in Rust, from what the API listed under the service's tag.
///
/// # Errors
/// Those of `reconcile-check`.
pub fn check_natively(desired: &native::Desired, listed: Vec<types::Object>) -> Result<native::Plan, native::Error> {
    let desired = input::parse(desired).map_err(native::Error::InvalidInput)?;
    let settings = Settings::read("{}").map_err(native::Error::InvalidInput)?;
    plan::of_all(&settings, &desired, &own::split(&desired.load_balancers, &listed))
}
