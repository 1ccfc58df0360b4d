//! A processor's `renderer` calls pass the tape, then go to every renderer.

use serde_json::Value;
use trueup_journal::{By, Journal};

use super::{
    Call, ContivService, OfService, Resync, ResyncEvent, UpdateInterfaces, UpdateNodePortServices, UpdateService,
};
use crate::bindings::service::{self, renderer};
use crate::bindings::{kube, nodesync};
use crate::host::Host;
use crate::reading::{Capability, Function, Reading};

type Rendered = wasmtime::Result<Result<(), String>>;

impl Host {
    async fn render(&mut self, call: Call) -> Rendered {
        let by = By {
            guest: self.identity.guest.clone(),
            instance: self.identity.instance.clone(),
            n: self.tape.journal().map(Journal::next_n),
        };
        let (name, args) = (call.name(), serde_json::value::to_raw_value(&call)?);
        self.ask(name, &*args, async |guard| match &guard.backends.renderers {
            Some(renderers) => renderers.render(by, call).await,
            None => Err("this host has no renderers; name them in `renderers` of `[adapter.service]`".to_owned()),
        })
        .await
    }
}

impl kube::types::Host for Host {}

impl nodesync::types::Host for Host {}

impl service::types::Host for Host {}

impl renderer::Host for Host {
    async fn add_service(&mut self, service: ContivService) -> Rendered {
        self.render(Call::AddService(OfService { service })).await
    }

    async fn update_service(&mut self, old: ContivService, new: ContivService) -> Rendered {
        self.render(Call::UpdateService(UpdateService { old, new })).await
    }

    async fn delete_service(&mut self, service: ContivService) -> Rendered {
        self.render(Call::DeleteService(OfService { service })).await
    }

    async fn update_node_port_services(&mut self, node_ips: Vec<String>, services: Vec<ContivService>) -> Rendered {
        let args = UpdateNodePortServices { node_ips, services };
        self.render(Call::UpdateNodePortServices(args)).await
    }

    async fn update_local_frontend_ifs(&mut self, old: Vec<String>, new: Vec<String>) -> Rendered {
        let args = UpdateInterfaces { old, new };
        self.render(Call::UpdateLocalFrontendIfs(args)).await
    }

    async fn update_local_backend_ifs(&mut self, old: Vec<String>, new: Vec<String>) -> Rendered {
        let args = UpdateInterfaces { old, new };
        self.render(Call::UpdateLocalBackendIfs(args)).await
    }

    async fn resync(&mut self, event: ResyncEvent) -> Rendered {
        self.render(Call::Resync(Resync { event })).await
    }
}

/// How the calls of a service processor to its renderers are read. They need no grant, and a renderer's own recording
/// shows what it wrote.
pub(crate) static CAPABILITY: Capability = Capability {
    package: "service",
    grant: None,
    limits_destroying: false,
    functions: &[
        Function::write("renderer.add-service", the_renderer),
        Function::write("renderer.delete-service", the_renderer),
        Function::write("renderer.resync", the_renderer),
        Function::write("renderer.update-local-backend-ifs", the_renderer),
        Function::write("renderer.update-local-frontend-ifs", the_renderer),
        Function::write("renderer.update-node-port-services", the_renderer),
        Function::write("renderer.update-service", the_renderer),
    ],
    reader: || Box::new(Reader),
};

fn the_renderer(_: &Value) -> String {
    "the renderer".to_owned()
}

struct Reader;

impl Reading for Reader {}
