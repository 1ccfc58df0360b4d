//! `trueup guest verify`: whether each guest of a configuration is what it should be.

use serde::Serialize;
use trueup_config::Config;
use trueup_registry::{Pinned, Vouched};
use trueup_work::load::Loader;

use crate::commands::config::ConfigArg;
use crate::exit::{Ending, Exit};
use crate::output::{self, Output};

/// Checks each guest of a configuration as a run would: it exists, matches what the lock file pins, and is signed by
/// one of the keys that the configuration names.
///
/// Exits 1 if anything is wrong. Asks a registry only for what the store does not have.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArg,
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

pub(super) fn exec(args: Args, output: Output) -> Ending {
    let config = crate::commands::run::read(&args.config.path())?;
    let loader = crate::commands::loader_of(&config)?;
    let all = crate::commands::block_on(verify(&loader, &config))?;
    let shown = output::show(&all, output, |all| all.iter().map(line).collect())?;
    let wrong = all.iter().any(|guest| guest.problem.is_some());
    Ok(if wrong { Exit::Failed } else { shown })
}

async fn verify(loader: &Loader, config: &Config) -> Vec<Verified> {
    let mut all = Vec::new();
    for (name, guest) in config.guests() {
        for reference in guest.references() {
            let loaded = loader.configured(reference, &guest.verify).await;
            let of = Verified {
                guest: name,
                r#use: reference.to_string(),
                ..Verified::default()
            };
            all.push(match loaded {
                Ok(loaded) => {
                    let (signature, key) = signature(&loaded.vouched);
                    Verified {
                        digest: Some(loaded.program.guest.digest.to_string()),
                        manifest: loaded.found.manifest,
                        pinned: Some(loaded.found.pinned),
                        signature,
                        key,
                        ..of
                    }
                }
                Err(error) => Verified {
                    problem: Some(error.to_string()),
                    ..of
                },
            });
        }
    }
    all
}

fn signature(vouched: &Vouched) -> (Option<&'static str>, Option<String>) {
    match vouched {
        Vouched::Host => (Some("host"), None),
        Vouched::NotAsked => (Some("not asked for"), None),
        Vouched::Key(file) => (Some("key"), Some(file.display().to_string())),
    }
}

fn line(guest: &Verified) -> String {
    if let Some(problem) = &guest.problem {
        return format!("{:<6} WRONG  {problem}", guest.guest);
    }
    let pinned = match guest.pinned {
        Some(Pinned::Host) => "ships with this host",
        Some(Pinned::Reference) => "pinned by its reference",
        Some(Pinned::Lock) => "pinned by the lock file",
        Some(Pinned::No) | None => "not pinned",
    };
    // For a built-in guest, the host itself is both pin and signature.
    let signature = match (&guest.key, guest.signature) {
        (Some(key), _) => format!(", signed by {key}"),
        (None, Some("host")) => String::new(),
        (None, _) => ", no signature asked for".to_owned(),
    };
    let digest = guest.digest.as_deref().unwrap_or_default();
    format!(
        "{:<6} ok     {}  {digest}  {pinned}{signature}",
        guest.guest, guest.r#use
    )
}
