//! How the questions about the container runtime are read.

use trueup_journal::Ask;

use crate::grants::{Access, EVERYTHING, SANDBOXES};
use crate::reading::{Capability, Function, Granted, Need, Reading, unless_refused};

pub(crate) static CAPABILITY: Capability = Capability {
    package: "cri",
    grant: Some(Granted {
        name: "cri",
        scope: r#""sandboxes""#,
        is_scope: |text| [SANDBOXES, EVERYTHING].contains(&text),
        example: r#""sandboxes""#,
    }),
    limits_destroying: false,
    functions: &[Function::read("sandboxes.list-running")],
    reader: || Box::new(Reader),
};

struct Reader;

impl Reading for Reader {
    fn needs(&mut self, ask: &Ask) -> Vec<Need> {
        let needed = || vec![Need::Access(Access::Read, SANDBOXES.to_owned())];
        // A question that got no answer needed the grant, too.
        unless_refused(ask, needed)
    }
}
