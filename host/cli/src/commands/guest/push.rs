//! `trueup guest push`: puts a guest into a registry.

use std::path::PathBuf;

use trueup_registry::Reference;

use crate::exit::{Ending, misused};
use crate::output::{self, Output};

/// Puts a guest into an OCI registry under a tag, and prints the reference that always names exactly this guest.
///
/// The file must be a guest of a world that this host knows. Credentials are those that `docker login` has written.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A component, or a core module with wit-bindgen's type section.
    file: PathBuf,
    /// `oci:HOST/REPO:TAG`.
    to: String,
}

pub(super) fn exec(args: Args, output: Output) -> Ending {
    let to = match Reference::parse(&args.to, std::path::Path::new("")).map_err(misused)? {
        Reference::Oci(to) => to,
        Reference::Builtin { .. } | Reference::File(_) => {
            return Err(misused(anyhow::anyhow!(
                "`{}` is no place in a registry, must be `oci:HOST/REPO:TAG`",
                args.to
            )));
        }
    };
    let loader = crate::commands::loader()?;
    let pushed = crate::commands::block_on(loader.push(&args.file, &to))??;
    output::show(&pushed, output, |pushed| {
        output::talk(&format!(
            "pushed {}@{} ({}) to oci:{to}",
            pushed.name, pushed.version, pushed.digest
        ));
        vec![pushed.reference.clone()]
    })
}
