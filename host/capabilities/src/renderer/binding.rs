//! A processor's `renderer` calls pass the tape, then go to every renderer.

use trueup_journal::{By, Journal};

use super::{
    Call, ContivService, OfService, Resync, ResyncEvent, UpdateInterfaces, UpdateNodePortServices, UpdateService,
};
use crate::bindings::service::{self, renderer};
use crate::bindings::{kube, nodesync};
use crate::host::Host;

impl Host {
    async fn render(&mut self, call: Call) -> wasmtime::Result<Result<(), String>> {
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
    async fn add_service(&mut self, service: ContivService) -> wasmtime::Result<Result<(), String>> {
        self.render(Call::AddService(OfService { service })).await
    }

    async fn update_service(&mut self, old: ContivService, new: ContivService) -> wasmtime::Result<Result<(), String>> {
        self.render(Call::UpdateService(UpdateService { old, new })).await
    }

    async fn delete_service(&mut self, service: ContivService) -> wasmtime::Result<Result<(), String>> {
        self.render(Call::DeleteService(OfService { service })).await
    }

    async fn update_node_port_services(
        &mut self,
        node_ips: Vec<String>,
        services: Vec<ContivService>,
    ) -> wasmtime::Result<Result<(), String>> {
        let args = UpdateNodePortServices { node_ips, services };
        self.render(Call::UpdateNodePortServices(args)).await
    }

    async fn update_local_frontend_ifs(
        &mut self,
        old: Vec<String>,
        new: Vec<String>,
    ) -> wasmtime::Result<Result<(), String>> {
        let args = UpdateInterfaces { old, new };
        self.render(Call::UpdateLocalFrontendIfs(args)).await
    }

    async fn update_local_backend_ifs(
        &mut self,
        old: Vec<String>,
        new: Vec<String>,
    ) -> wasmtime::Result<Result<(), String>> {
        let args = UpdateInterfaces { old, new };
        self.render(Call::UpdateLocalBackendIfs(args)).await
    }

    async fn resync(&mut self, event: ResyncEvent) -> wasmtime::Result<Result<(), String>> {
        self.render(Call::Resync(Resync { event })).await
    }
}
