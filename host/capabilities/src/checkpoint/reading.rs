//! How the questions about an instance's own storage are read.

use serde_json::Value;
use trueup_journal::Ask;

use crate::grants::{EVERYTHING, OWN};
use crate::reading::{Capability, Function, Granted, Need, Reading, Write, access, args, stored, text, unless_refused};

pub(crate) static CAPABILITY: Capability = Capability {
    package: "checkpoint",
    grant: Some(Granted {
        name: "checkpoint",
        scope: r#""own""#,
        is_scope: |text| [OWN, EVERYTHING].contains(&text),
        example: r#""own""#,
    }),
    limits_destroying: false,
    functions: &[
        Function::write("store.append", the_store),
        Function::write("store.checkpoint", the_store),
        Function::read("store.restore"),
    ],
    reader: || Box::new(Reader),
};

fn the_store(_: &Value) -> String {
    "the store".to_owned()
}

struct Reader;

impl Reading for Reader {
    fn needs(&mut self, ask: &Ask) -> Vec<Need> {
        unless_refused(ask, || vec![Need::Access(access(ask), OWN.to_owned())])
    }

    fn wrote(&self, n: u64, ask: &Ask) -> Vec<Write> {
        let args: Value = args(ask).unwrap_or_default();
        let (kind, member) = match ask.name.as_str() {
            "store.append" => ("record", "entry"),
            "store.checkpoint" => ("checkpoint", "data"),
            _ => return Vec::new(),
        };
        vec![stored(n, ask, kind, String::new(), text(&args, member))]
    }
}
