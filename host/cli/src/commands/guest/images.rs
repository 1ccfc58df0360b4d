//! `trueup guest lock`, `verify`, `pull` and `push`: guests of registries, and what pins and signs the guests of a
//! configuration.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use serde::Serialize;
use trueup_base::text::counted;
use trueup_config::Config;
use trueup_registry::{
    Change, ChangeKind, LOCK_FILE_NAME, NoGuest, NotLoaded, OciReference, Pinned, Reference, Registry, Verify, Vouched,
};
use trueup_work::load::{Loaded, Loader};

use crate::commands::flags::{self, ConfigArg};
use crate::commands::{block_on, loader, loader_of};
use crate::exit::{Ending, Exit, Failure, misused};
use crate::output::{self, Output};

pub(super) fn lock(config: &ConfigArg, output: Output) -> Ending {
    let config = flags::read(&config.path())?;
    let loader = loader_of(&config)?;
    let changes = block_on(loader.lock(config.references()))?.map_err(all)?;
    if changes.is_empty() && output.is_text() {
        output::talk("nothing to pin: every guest ships with this host");
        return Ok(Exit::Done);
    }
    output::show(&changes, output, |changes| {
        let file = config.file.with_file_name(LOCK_FILE_NAME);
        let pinned = changes.iter().filter(|change| change.pin.is_some()).count();
        let pinned = format!("{}: {} pinned", file.display(), counted(pinned, "guest", "guests"));
        changes.iter().map(changed).chain([pinned]).collect()
    })
}

/// Every problem, one a line.
fn all(errors: Vec<NotLoaded>) -> Failure {
    let is_misuse = errors.iter().all(|error| matches!(error, NotLoaded::NoGuest(_)));
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let error = anyhow!("{}", lines.join("\n"));
    if is_misuse { misused(error) } else { error.into() }
}

fn changed(change: &Change) -> String {
    let word = match change.change {
        ChangeKind::Added => "added",
        ChangeKind::Moved => "moved",
        ChangeKind::Unchanged => "unchanged",
        ChangeKind::Removed => "removed",
    };
    let [before, now] = [&change.before, &change.pin].map(|pin| Some(&*pin.as_ref()?.digest));
    let digests = match (before, now) {
        // The same guest in another manifest: the registry's tag has moved all the same.
        (Some(before), Some(now)) if before == now => format!("{now}, in another manifest"),
        (Some(before), Some(now)) => format!("{before} -> {now}"),
        (before, now) => now.or(before).unwrap_or_default().to_owned(),
    };
    format!("{word:<9} {}  {digests}", change.reference)
}

/// The result for one reference.
#[derive(Default, Serialize)]
struct Verified {
    guest: &'static str,
    r#use: String,
    /// `None` if there is a problem.
    digest: Option<String>,
    manifest: Option<String>,
    /// What pins it: `host`, `reference`, `lock` or `no`.
    pinned: Option<Pinned>,
    /// `host`, `not asked for`, or `key`.
    signature: Option<&'static str>,
    /// The file of the key that signed it.
    key: Option<String>,
    problem: Option<String>,
}

pub(super) fn verify(config: &ConfigArg, output: Output) -> Ending {
    let config = flags::read(&config.path())?;
    let loader = loader_of(&config)?;
    let all = block_on(verified(&loader, &config))?;
    let shown = output::show(&all, output, |all| all.iter().map(verdict).collect())?;
    let wrong = all.iter().any(|guest| guest.problem.is_some());
    Ok(if wrong { Exit::Failed } else { shown })
}

async fn verified(loader: &Loader, config: &Config) -> Vec<Verified> {
    let mut all = Vec::new();
    for (guest, section) in config.guests() {
        for reference in section.references() {
            let mut of = Verified {
                guest,
                r#use: reference.to_string(),
                ..Verified::default()
            };
            match loader.configured(reference, &section.verify).await {
                Ok(loaded) => {
                    of.digest = Some(loaded.program.guest.digest.to_string());
                    of.manifest = loaded.found.manifest;
                    of.pinned = Some(loaded.found.pinned);
                    (of.signature, of.key) = match loaded.found.vouched {
                        Vouched::Host => (Some("host"), None),
                        Vouched::NotAsked => (Some("not asked for"), None),
                        Vouched::Key(file) => (Some("key"), Some(file.display().to_string())),
                    };
                }
                Err(error) => of.problem = Some(error.to_string()),
            }
            all.push(of);
        }
    }
    all
}

fn verdict(of: &Verified) -> String {
    let guest = of.guest;
    let reference = &of.r#use;
    if let Some(problem) = &of.problem {
        return format!("{guest:<6} WRONG  {problem}");
    }
    let pinned = match of.pinned {
        Some(Pinned::Host) => "ships with this host",
        Some(Pinned::Reference) => "pinned by its reference",
        Some(Pinned::Lock) => "pinned by the lock file",
        Some(Pinned::No) | None => "not pinned",
    };
    // For a built-in guest, the host itself is both pin and signature.
    let signature = match (&of.key, of.signature) {
        (Some(key), _) => format!(", signed by {key}"),
        (None, Some("host")) => String::new(),
        (None, _) => ", no signature asked for".to_owned(),
    };
    let digest = of.digest.as_deref().unwrap_or_default();
    format!("{guest:<6} ok     {reference}  {digest}  {pinned}{signature}")
}

/// Pulls guests out of OCI registries into the store of a configuration's state folder, or into a file.
///
/// With a configuration: what its lock file pins, with signatures if the configuration requires them; a run then needs
/// no network. With a reference: what it means now. A tag pins nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct Pull {
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

pub(super) fn pull(args: &Pull, output: Output) -> Ending {
    let references = args.what.iter().filter_map(|text| text.strip_prefix("oci:"));
    let parse = |text| OciReference::parse(text).map_err(|must| misused(NoGuest(format!("`oci:{text}` {must}"))));
    let references: Vec<OciReference> = references.map(parse).collect::<Result<_, _>>()?;
    let chosen = flags::chosen(args.config.as_deref());
    let refuse = |why: &str| Err(misused(anyhow!(why.to_owned())));
    let one = "`--to` goes with one reference";
    let pulled = match (&references[..], &args.what[..], &args.to) {
        ([], [], None) => into_store(&[], &chosen),
        ([], [config], None) => into_store(&[], Path::new(config)),
        ([], _, Some(_)) => refuse(&format!("{one}, `oci:HOST/REPO:TAG`")),
        ([reference], [_], Some(to)) => into_file(reference, to).map(|pulled| vec![pulled]),
        ([_, ..], all @ [_, _, ..], Some(_)) => refuse(&format!("{one}, here are {}", all.len())),
        (references, all, _) if references.len() == all.len() => into_store(references, &chosen),
        _ => refuse("give one configuration, or references that begin with `oci:`, not both"),
    }?;
    if pulled.is_empty() && output.is_text() {
        output::talk("nothing to pull: no guest of this configuration is in a registry");
    }
    let line = |guest: &Pulled| {
        let word = if guest.fetched { "pulled" } else { "had" };
        format!("{word:<9} {}  {}", guest.r#use, guest.digest)
    };
    output::show(&pulled, output, |pulled| pulled.iter().map(line).collect())
}

/// Pulls into the store of a configuration: what these references mean now, or without any what its lock pins.
fn into_store(references: &[OciReference], config: &Path) -> Result<Vec<Pulled>, Failure> {
    let config = flags::read(config)?;
    let loader = loader_of(&config)?;
    let none = Verify::default();
    let pulled = block_on(async {
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
            let Loaded { program, found } = loader.configured(&exact, verify).await?;
            pulled.push(Pulled {
                r#use: reference.to_string(),
                digest: program.guest.digest.to_string(),
                manifest: found.manifest,
                fetched: found.fetched,
            });
        }
        Ok::<_, NotLoaded>(pulled)
    });
    Ok(pulled??)
}

fn into_file(reference: &OciReference, to: &Path) -> Result<Pulled, Failure> {
    let loader = loader()?;
    let reference = Reference::Oci(reference.clone());
    let bytes = block_on(loader.registry.fetch(&reference))??;
    let guest = loader.compiled(&reference, &bytes).map_err(misused)?;
    std::fs::write(to, &bytes).with_context(|| format!("can't write {}", to.display()))?;
    Ok(Pulled {
        r#use: reference.to_string(),
        digest: guest.digest.to_string(),
        manifest: None,
        fetched: true,
    })
}

/// Puts a guest into an OCI registry under a tag, and prints the reference that always names exactly this guest.
///
/// The file must be a guest of a world that this host knows. Credentials are those that `docker login` has written.
#[derive(Debug, clap::Args)]
pub(crate) struct Push {
    /// A component, or a core module with wit-bindgen's type section.
    file: PathBuf,
    /// `oci:HOST/REPO:TAG`.
    to: String,
}

pub(super) fn push(args: &Push, output: Output) -> Ending {
    let Reference::Oci(to) = Reference::parse(&args.to, Path::new("")).map_err(misused)? else {
        let why = format!("`{}` is no place in a registry, must be `oci:HOST/REPO:TAG`", args.to);
        return Err(misused(anyhow!(why)));
    };
    let pushed = block_on(loader()?.push(&args.file, &to))??;
    output::show(&pushed, output, |pushed| {
        let name = &pushed.name;
        let version = &pushed.version;
        let digest = &pushed.digest;
        output::talk(&format!("pushed {name}@{version} ({digest}) to oci:{to}"));
        vec![pushed.reference.clone()]
    })
}
