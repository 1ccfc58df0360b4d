//! The packet filter that a configuration names.
//!
//! This module starts nothing and checks nothing: each transaction finds out whether nft and the namespace exist.

use std::path::Path;
use std::sync::Arc;

use trueup_capabilities::nftables::nft::{Nft, Settings};
use trueup_capabilities::nftables::{Api, Simulated};
use trueup_config::{NftablesBackend, NftablesProgram};

use crate::needs::{Probe, Problem};

/// Where `ip netns` keeps a file for each namespace.
const NAMESPACES: &str = "/run/netns";

/// The lock that nft holds, in the state folder: after a kill, the next host waits for the transaction that is still
/// running.
const LOCK: &str = "nftables.lock";

/// Opens the packet filter: one for all guests of a host, since its transactions are sequential.
pub(crate) fn open(backend: &NftablesBackend, state_dir: &Path) -> Arc<dyn Api> {
    match backend {
        NftablesBackend::Nft(program) => Arc::new(Nft::new(settings(program, state_dir))),
        NftablesBackend::Simulated => Arc::new(Simulated),
    }
}

/// Lists the tables of the packet filter, which needs the same rights as a change.
pub fn look<'a>(backend: &'a NftablesBackend, state_dir: &'a Path) -> Probe<'a> {
    let check = "nftables";
    match backend {
        NftablesBackend::Nft(program) => Probe::new(check, look_at(program, state_dir)),
        NftablesBackend::Simulated => {
            let next = "for the real one, leave out `kind = \"simulated\"` of [backend.nftables]; else name a cluster for trials";
            let harm = "this node gets no rules for its Services";
            Probe::simulated(check, "simulated: each transaction is taken", (harm, next))
        }
    }
}

async fn look_at(program: &NftablesProgram, state_dir: &Path) -> Result<String, Problem> {
    let place = match &program.namespace {
        Some(namespace) => format!("network namespace {namespace}"),
        None => "the host's own network".to_owned(),
    };
    let settings = settings(program, state_dir);
    let next = match (&program.namespace, &settings.namespace) {
        (Some(name), Some(path)) if !path.exists() => {
            format!("ip netns add {name}, or correct `namespace` of [backend.nftables]")
        }
        _ => format!(
            "apt-get install nftables, and run the host as root or with CAP_NET_ADMIN; `{} list tables` shows whether it works",
            program.program.display()
        ),
    };
    let looked = Nft::new(settings).look().await;
    looked.map(|()| place).map_err(|error| Problem::new(error, next))
}

fn settings(configured: &NftablesProgram, state_dir: &Path) -> Settings {
    let namespace = configured.namespace.as_ref();
    Settings {
        program: configured.program.clone(),
        namespace: namespace.map(|name| Path::new(NAMESPACES).join(name)),
        lock: Some(state_dir.join(LOCK)),
        timeout: configured.timeout,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_packet_filter_that_is_named_is_the_one_that_is_asked() {
        const NOTHING: &str = r#"{"nftables":[]}"#;
        let folder = tempfile::tempdir().unwrap();
        let open = |backend: &NftablesBackend| open(backend, folder.path());
        assert_eq!(open(&NftablesBackend::Simulated).apply(NOTHING).await, Ok(()));
        let named = |namespace: Option<&str>, program: &str| {
            NftablesBackend::Nft(NftablesProgram {
                namespace: namespace.map(str::to_owned),
                program: program.into(),
                ..NftablesProgram::default()
            })
        };
        let error = open(&named(Some("no-such-namespace"), "nft")).apply(NOTHING).await;
        let said = "the network namespace `/run/netns/no-such-namespace` is not there: ip netns add no-such-namespace";
        assert_eq!(error, Err(said.to_owned()));
        let Err(problem) = look(&named(Some("no-such-namespace"), "nft"), folder.path())
            .found
            .await
        else {
            panic!("there is no such namespace");
        };
        assert!(
            problem.next.starts_with("ip netns add no-such-namespace, or "),
            "{}",
            problem.next
        );
        let error = open(&named(None, "no-such-nft")).apply(NOTHING).await;
        assert_eq!(
            error,
            Err("`no-such-nft` is not there: apt-get install nftables".to_owned())
        );
    }
}
