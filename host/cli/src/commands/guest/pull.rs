//! `trueup guest pull`: downloads guests from registries before a run needs them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use serde::Serialize;
use trueup_registry::{NoGuest, NotLoaded, OciReference, Reference, Registry, Verify};
use trueup_work::load::Loaded;

use crate::commands::config;
use crate::exit::{Ending, misused};
use crate::output::{self, Output};

/// Pulls guests out of OCI registries into the store of a configuration's state folder, or into a file.
///
/// With a configuration: what its lock file pins, with signatures if the configuration requires them; a run then needs
/// no network. With a reference: what it means now. A tag pins nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A configuration (a TOML file, or a folder with `trueup.toml`), or references such as `oci:HOST/REPO:TAG`.
    #[arg(value_name = "CONFIG | oci:REF")]
    what: Vec<String>,
    /// Writes the guest of the one reference to this file, and stores it nowhere else.
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// The configuration whose store receives the references. Default: `TRUEUP_CONFIG`, else the current folder.
    #[arg(long, value_name = "CONFIG", conflicts_with = "to")]
    config: Option<PathBuf>,
}

/// A guest that is now stored locally.
#[derive(Serialize)]
struct Pulled {
    r#use: String,
    digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest: Option<String>,
    /// Whether this command downloaded it.
    fetched: bool,
}

pub(super) fn exec(args: Args, output: Output) -> Ending {
    let references: Vec<&str> = args.what.iter().filter_map(|text| text.strip_prefix("oci:")).collect();
    let parse =
        |text: &&str| OciReference::parse(text).map_err(|must| misused(NoGuest(format!("`oci:{text}` {must}"))));
    let references: Vec<OciReference> = references.iter().map(parse).collect::<Result<_, _>>()?;
    match (references.as_slice(), args.what.as_slice(), &args.to) {
        ([], [], None) => into_store(&[], &config::chosen(args.config.as_deref()), output),
        ([], [config], None) => into_store(&[], Path::new(config), output),
        ([], _, Some(_)) => Err(misused(anyhow!("`--to` goes with one reference, `oci:HOST/REPO:TAG`"))),
        ([one], [_], Some(to)) => into_file(one, to, output),
        ([_, ..], all, Some(_)) if all.len() > 1 => Err(misused(anyhow!(
            "`--to` goes with one reference, here are {}",
            all.len()
        ))),
        (references, all, _) if references.len() == all.len() => {
            into_store(references, &config::chosen(args.config.as_deref()), output)
        }
        _ => Err(misused(anyhow!(
            "give one configuration, or references that begin with `oci:`, not both"
        ))),
    }
}

/// Pulls into the store of a configuration: what these references mean now, or without any what its lock pins.
fn into_store(references: &[OciReference], config: &Path, output: Output) -> Ending {
    let config = crate::commands::run::read(config)?;
    let loader = crate::commands::loader_of(&config)?;
    let none = Verify::default();
    let pulled = crate::commands::block_on(async {
        let mut wanted = Vec::new();
        for reference in references {
            // A reference by digest needs no lock.
            let exact = reference.at_digest(&Registry::resolve(reference).await?);
            wanted.push((Reference::Oci(reference.clone()), Reference::Oci(exact), &none));
        }
        if references.is_empty() {
            let all = config.references().into_iter();
            let pinned = all.filter(|(reference, _)| matches!(reference, Reference::Oci(_)));
            wanted.extend(pinned.map(|(reference, verify)| (reference.clone(), reference, verify)));
        }
        let mut pulled = Vec::new();
        for (reference, exact, verify) in wanted {
            let loaded = loader.configured(&exact, verify).await?;
            pulled.push(Pulled::new(&reference, &loaded));
        }
        Ok::<_, NotLoaded>(pulled)
    })??;
    report(&pulled, output)
}

fn into_file(reference: &OciReference, to: &Path, output: Output) -> Ending {
    let loader = crate::commands::loader()?;
    let reference = Reference::Oci(reference.clone());
    let bytes = crate::commands::block_on(loader.registry.fetch(&reference))??;
    let guest = loader.compiled(&reference, &bytes).map_err(misused)?;
    std::fs::write(to, &bytes).with_context(|| format!("can't write {}", to.display()))?;
    let pulled = Pulled {
        r#use: reference.to_string(),
        digest: guest.digest.to_string(),
        manifest: None,
        fetched: true,
    };
    report(&[pulled], output)
}

impl Pulled {
    fn new(reference: &Reference, loaded: &Loaded) -> Self {
        Self {
            r#use: reference.to_string(),
            digest: loaded.program.guest.digest.to_string(),
            manifest: loaded.found.manifest.clone(),
            fetched: loaded.found.fetched,
        }
    }
}

fn report(pulled: &[Pulled], output: Output) -> Ending {
    if pulled.is_empty() && output.is_text() {
        output::talk("nothing to pull: no guest of this configuration is in a registry");
    }
    let line = |guest: &Pulled| {
        let word = if guest.fetched { "pulled" } else { "had" };
        format!("{word:<9} {}  {}", guest.r#use, guest.digest)
    };
    output::show(pulled, output, |pulled| pulled.iter().map(line).collect())
}
