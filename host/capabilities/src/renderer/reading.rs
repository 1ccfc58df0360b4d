//! How the calls of a service processor to its renderers are read. They need no grant, and a renderer's own recording
//! shows what it wrote.

use serde_json::Value;

use crate::reading::{Capability, Function, Reading};

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
