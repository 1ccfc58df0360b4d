//! Which running host a command addresses, and how it names guests to that host.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use serde::Serialize;
use serde::de::DeserializeOwned;
use trueup_base::progress;
use trueup_runtime::control::Client;
use trueup_work::setup::SetupError;
use trueup_work::status::{Role, Status};
use trueup_worlds::KINDS;

use crate::commands::flags;
use crate::exit::{Failure, misused};
use crate::output;

/// What a host answers.
type Answer<T> = Result<T, Failure>;

/// The host that runs with a configuration.
#[derive(Debug, clap::Args)]
pub(in crate::commands) struct Host {
    /// The configuration of the host: a TOML file, or a folder with `trueup.toml`. Default: `TRUEUP_CONFIG`, else the
    /// current folder.
    #[arg(long)]
    config: Option<PathBuf>,
    /// The state folder of the host. Default: the configuration's.
    #[arg(long)]
    state_dir: Option<PathBuf>,
}

impl Host {
    pub(in crate::commands) fn state_dir(&self) -> Result<PathBuf, Failure> {
        match &self.state_dir {
            Some(state_dir) => Ok(state_dir.clone()),
            None => flags::state_dir(&flags::chosen(self.config.as_deref())),
        }
    }

    /// The client for it. Sends nothing yet.
    pub(in crate::commands) fn client(&self) -> Result<Client, Failure> {
        Ok(Client::new(&self.state_dir()?)?)
    }

    pub(in crate::commands) fn get<T: DeserializeOwned>(&self, path: &str) -> Answer<T> {
        self.ask(async |client| client.get(path).await)
    }

    pub(in crate::commands) fn delete<T: DeserializeOwned>(&self, path: &str) -> Answer<T> {
        self.ask(async |client| client.delete(path).await)
    }

    pub(in crate::commands) fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Answer<T> {
        let _doing = progress::doing(|| "waiting for the host".to_owned());
        self.ask(async |client| client.post(path, body).await)
    }

    /// Changes a guest. If it changed and another host leads, a note says that the leader goes on with its own version.
    pub(super) fn change<T: DeserializeOwned>(&self, guest: &str, verb: &str, body: &impl Serialize) -> Answer<T> {
        let changed = self.post(&path(guest, verb)?, body)?;
        let is_elected = KINDS.iter().any(|kind| {
            let about = kind.sections().about();
            about.name == guest && about.acts_for_cluster
        });
        if is_elected
            && let Ok(Status { host, .. }) = self.get("status")
            && let (Role::Standby, Some(leader)) = (host.role, host.leader)
        {
            let why = format!("`{leader}` leads and keeps its own version; type it there too");
            output::talk(&format!("this host is a standby: {why}"));
        }
        Ok(changed)
    }

    fn ask<T>(&self, question: impl AsyncFnOnce(&Client) -> Result<T, SetupError>) -> Result<T, Failure> {
        Ok(crate::commands::block_on(question(&self.client()?))??)
    }
}

/// A guest of the host that runs with a configuration.
#[derive(Debug, clap::Args)]
pub(crate) struct OfGuest {
    /// The guest, as in [guests.NAME].
    pub(super) guest: String,
    #[command(flatten)]
    pub(super) host: Host,
}

/// What the host that runs with a state folder answers to `GET` of a path below `/v1/`. `None` if none runs.
pub(in crate::commands) fn answer<T: DeserializeOwned>(state_dir: &Path, path: &str) -> Option<T> {
    let client = Client::new(state_dir).ok()?;
    crate::commands::block_on(client.get(path)).ok()?.ok()
}

/// How to name a guest to a host, which runs in another folder: a file by its absolute path, a bare name as a built-in
/// guest.
pub(super) fn reference(text: &str) -> Result<String, Failure> {
    let path = match text.split_once(':') {
        Some(("file", path)) => path,
        Some(_) => return Ok(text.to_owned()),
        None if Path::new(text).exists() || text.contains('/') || text.ends_with(".wasm") => text,
        None => return Ok(format!("builtin:{text}")),
    };
    let path = std::path::absolute(path).map_err(misused)?;
    Ok(format!("file:{}", path.display()))
}

/// The path of a guest below `/v1/`. Names are those of `[guests.NAME]`.
pub(super) fn path(guest: &str, verb: &str) -> Result<String, Failure> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if guest.is_empty() || !guest.chars().all(is_name) {
        let must = "must be the NAME of a [guests.NAME] of the configuration";
        return Err(misused(anyhow!("`{guest}` is no guest's name, {must}")));
    }
    Ok(format!("guests/{guest}/{verb}"))
}
