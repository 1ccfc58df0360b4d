//! Whether the source can be read: every manifest, or the API server with the rights of this account.

use std::path::Path;
use std::time::SystemTime;

use trueup_config::Config;
use trueup_sources::Source;
use trueup_sources::kubernetes::{Probe, Right, Settings};
use trueup_work::needs::{Finding, Mark, Problem};
use trueup_work::{cluster, input};

/// Looks at the manifests in a folder.
pub(super) async fn manifests(config: &Config, source: &Source, folder: &Path, tell: &mut impl FnMut(Finding)) {
    let check = "manifests";
    let shown = folder.display();
    if let Err(error) = cluster::is_no_clusters(&config.state_dir, source) {
        let trouble = Problem::new(error, "name another folder in `state_dir`");
        tell(Finding::wrong(check, Mark::Failed, trouble));
    }
    let all = match input::all(source).await {
        Ok((all, _)) => all,
        Err(error) => {
            let next = format!("mkdir -p {shown}, or correct `manifests` in [source]");
            return tell(Finding::wrong(check, Mark::Failed, Problem::new(error, next)));
        }
    };
    for problem in &all.problems {
        let next = format!("correct it, then: trueup plan {}", config.file.display());
        tell(Finding::wrong(check, Mark::Failed, Problem::new(problem, next)));
    }
    if !all.problems.is_empty() {
        return;
    }
    tell(if all.changes.is_empty() {
        let next = format!("put manifests into {shown}, mount it, or correct `manifests` in [source]");
        let text = format!("{shown}: no object at all; a host that knew some removes nothing");
        Finding::wrong(check, Mark::Warning, Problem::new(text, next))
    } else {
        Finding::ok(check, format!("{shown}: {} objects", all.changes.len()))
    });
}

/// Looks at a cluster. Returns the API server's clock if it says so.
pub(super) async fn kubernetes(
    config: &Config,
    settings: &Settings,
    rights: &[&Right],
    tell: &mut impl FnMut(Finding),
) -> Option<SystemTime> {
    let check = "API server";
    let probe = Probe::new(settings).await.map_err(|error| {
        let next = "kubectl config get-contexts; correct `kubeconfig` and `context` under [source.kubernetes]";
        tell(Finding::wrong(check, Mark::Failed, Problem::new(error, next)));
    });
    let probe = probe.ok()?;
    let clock = probe.clock().await.map_err(|failed| {
        let next = "kubectl cluster-info: if that fails too, start the API server or correct the kubeconfig's `server`";
        tell(Finding::wrong(check, Mark::Failed, Problem::new(failed.text, next)));
    });
    let clock = clock.ok()?;
    tell(Finding::ok(check, format!("{} answers", probe.server())));
    for (kind, is_needed) in probe.kinds() {
        let (version, resource) = (kind.api_version(), kind.resource());
        let what = match probe.serves(kind).await {
            Ok(true) => continue,
            Ok(false) => format!("{} does not serve {version} {resource}", probe.server()),
            Err(failed) => failed.text,
        };
        let group = version.split_once('/').map_or("''", |(group, _)| group);
        let look = format!("kubectl api-resources --api-group={group}");
        let next = format!("{look}: upgrade the cluster, or leave `{resource}` out of `watch`");
        tell(Finding::wrong("kinds", grade(is_needed), Problem::new(what, next)));
    }
    may(config, &probe, rights, tell).await;
    clock
}

fn grade(is_needed: bool) -> Mark {
    if is_needed { Mark::Failed } else { Mark::Warning }
}

/// The rights of this account.
async fn may(config: &Config, probe: &Probe, rights: &[&Right], tell: &mut impl FnMut(Finding)) {
    let mut asked = probe.reads();
    let identity = Right {
        name: Some("kube-system"),
        ..Right::new("get", "", "namespaces")
    };
    // Without it the host only warns: another cluster's state folder would not be noticed.
    asked.push((identity, false));
    asked.extend(rights.iter().map(|right| ((*right).clone(), true)));
    if let Some(election) = &config.election {
        let namespace = election.namespace.clone().unwrap_or_else(|| probe.namespace());
        // To an account that may not read namespaces, the API server does not say.
        if let Ok(false) = probe.has_namespace(&namespace).await {
            let text = format!("the Lease's namespace `{namespace}` does not exist: no host can lead");
            let trouble = Problem::new(text, format!("kubectl create namespace {namespace}"));
            tell(Finding::wrong("Lease", Mark::Failed, trouble));
        }
        let leases = ["get", "create", "update", "watch"];
        // Without a watch a handover takes longer.
        asked.extend(leases.map(|verb| {
            let right = Right::new(verb, "coordination.k8s.io", "leases");
            (right.within(Some(&namespace)), verb != "watch")
        }));
    }
    let mut allowed = 0;
    for (right, is_needed) in &asked {
        match probe.may(right).await {
            Ok(true) => allowed += 1,
            Ok(false) => {
                let text = format!("this account may not {right}");
                let role = format!("`{}` on `{}` in a role of its own", right.verb, right.resource);
                let next = format!("kubectl apply -f deploy/trueup.yaml, or give this account {role}");
                tell(Finding::wrong("rights", grade(*is_needed), Problem::new(text, next)));
            }
            Err(failed) => {
                let next = "kubectl auth whoami; correct the user of the kubeconfig's context, or the service account";
                return tell(Finding::wrong("rights", Mark::Failed, Problem::new(failed.text, next)));
            }
        }
    }
    if allowed == asked.len() {
        let text = format!("this account may do all {allowed} things that a host does");
        tell(Finding::ok("rights", text));
    }
}
