//! Renderers that answer Ok, with faults and a transcript, for native tests.

use serde_json::{Value, json};
use trueup_guest::testing::{Simulated, Transcript};

use crate::bindings::trueup::service::types::{ContivService, ResyncEvent};
use crate::tests::questions::Questions;
use crate::world::{Rendered, World};

/// The guest's world.
#[derive(Debug, Default)]
pub(crate) struct Simulation {
    pub(crate) questions: Questions,
    pub(crate) record: Transcript,
}

impl Simulation {
    fn ask(&mut self, call: &str, args: &Value) -> Rendered {
        let fault = self.questions.ask(call, args);
        fault.map_or(Ok(()), |fault| serde_json::from_value(fault).unwrap())
    }
}

impl World for Simulation {
    fn add_service(&mut self, service: &ContivService) -> Rendered {
        self.ask("renderer.add-service", &json!({"service": service}))
    }

    fn update_service(&mut self, old: &ContivService, new: &ContivService) -> Rendered {
        self.ask("renderer.update-service", &json!({"old": old, "new": new}))
    }

    fn delete_service(&mut self, service: &ContivService) -> Rendered {
        self.ask("renderer.delete-service", &json!({"service": service}))
    }

    fn update_node_port_services(&mut self, node_ips: &[String], services: &[ContivService]) -> Rendered {
        let args = json!({"node_ips": node_ips, "services": services});
        self.ask("renderer.update-node-port-services", &args)
    }

    fn update_local_frontend_ifs(&mut self, old: &[String], new: &[String]) -> Rendered {
        self.ask("renderer.update-local-frontend-ifs", &json!({"old": old, "new": new}))
    }

    fn update_local_backend_ifs(&mut self, old: &[String], new: &[String]) -> Rendered {
        self.ask("renderer.update-local-backend-ifs", &json!({"old": old, "new": new}))
    }

    fn resync(&mut self, event: &ResyncEvent) -> Rendered {
        self.ask("renderer.resync", &json!({"event": event}))
    }
}

impl Simulated for Simulation {
    fn record(&mut self) -> &mut Transcript {
        &mut self.record
    }
}
