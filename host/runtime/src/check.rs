//! Whether a host could run with a configuration, and what is in its way: one finding for each thing that it needs,
//! each with the next step. Goes on to the end whatever it finds.
//!
//! Changes nothing but the caches of [`HostContext::of_trial`], as a plan does. Contacts only what the configuration
//! names.
//!
//! ```text
//! state folder, disk -> source (manifests, or cluster and rights)
//!                    -> each kind: guests, grants, backends, addresses -> clocks
//! ```

use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};
use std::{fmt, io};

use rustix::fs::Access as Mode;
use tokio::net::UnixStream;
use tokio::time::timeout;
use trueup_base::folder::LOCK;
use trueup_base::http::client::clock_of;
use trueup_capabilities::grants::{Access, ETCD, NFTABLES};
use trueup_config::{AdminAt, Config, Guest};
use trueup_registry::{Reference, Registry};
use trueup_sources::Source;
use trueup_sources::kubernetes::{Probe as ClusterProbe, Right, Settings};
use trueup_work::host_context::{HostContext, Unusable};
use trueup_work::kind::Kind;
use trueup_work::needs::{Finding, Mark, Named, Needs, NoGrant, Probe, Problem};
use trueup_work::object_counts::ObjectCounts;
use trueup_work::setup::SetupError;
use trueup_work::socket::Reachable;
use trueup_work::status::Status;
use trueup_work::{cluster, etcd, input, nftables};
use trueup_worlds::{KINDS, worlds};

use crate::control::Client;
use crate::state_lock::{StateLock, another_owner, nested, taken_by};

/// How long one question to a backend may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How far clocks may be apart. Credentials of clouds are refused from some minutes on; an answer takes up to
/// [`PATIENCE`].
const SKEW_MAX: Duration = Duration::from_secs(30);

/// Takes each finding when it is there.
type Tell<'t> = &'t mut dyn FnMut(Finding);

/// Looks at everything. Tells each finding when it is there.
pub async fn check(config: &Config, registry: &Registry, mut tell: impl FnMut(Finding)) {
    let (mut finding, is_running) = state_folder(&config.state_dir);
    if is_running && let Some(pid) = running(config).await {
        finding = Finding::ok(finding.check, format!("this configuration's host runs, process {pid}"));
    }
    let can_be_read = finding.mark != Mark::Failed;
    tell(finding);
    tell(Finding::of("disk", disk(&config.state_dir)));
    let needs: Vec<Needs<'_>> = KINDS.iter().map(|kind| kind.needs(config)).collect();
    let kinds = KINDS.iter().zip(&needs);
    let kinds = kinds.filter(|(_, needs)| can_be_read && !needs.guests.is_empty());
    for error in kinds.filter_map(|(kind, _)| read_state(config, *kind).err()) {
        tell(Finding::wrong("state", Mark::Failed, says_next(&error.to_string())));
    }
    let mut clocks = Vec::new();
    match config.source() {
        Some(Source::Kubernetes(settings)) => clocks.extend(kubernetes(config, settings, &needs, &mut tell).await),
        Some(source @ Source::Manifests(folder)) => manifests(config, source, folder, &mut tell).await,
        None => {}
    }
    match HostContext::of_trial(config, registry, worlds()) {
        Ok(host_context) => guests(config, &host_context, &needs, &mut tell).await,
        Err(error) => {
            let next = "run it on a machine that docs/operators.md names";
            tell(Finding::wrong("guests", Mark::Failed, Problem::new(error, next)));
        }
    }
    let mut listens = admin(config);
    let mut servers = Vec::new();
    let mut looks = shared(config);
    for of in needs {
        if let Some(error) = of.unusable {
            let file = config.file.display();
            let next = format!("correct the file or the variable that this names, or {file}");
            tell(Finding::wrong("settings", Mark::Failed, Problem::new(error, next)));
        }
        looks.extend(of.looks);
        listens.extend(of.listens);
        servers.extend(of.servers);
    }
    let is_cluster = matches!(config.source(), Some(Source::Kubernetes(_)));
    for look in looks {
        tell(looked(look, is_cluster).await);
    }
    for (key, at) in listens {
        tell(Finding::of(key, can_listen(key, &at, is_running).await));
    }
    for server in servers {
        if let Ok(Some(clock)) = clock_of(&server, PATIENCE).await {
            clocks.push(skew(&server, clock));
        }
    }
    clocks.into_iter().for_each(tell);
}

/// Reads what a run of a kind reads first in the state folder.
fn read_state(config: &Config, kind: &dyn Kind) -> Result<(), SetupError> {
    kind.check_state(config)?;
    let guest = kind.keyed_guest();
    let counts = guest.map(|guest| ObjectCounts::open(&config.state_dir, guest));
    counts.transpose().map(drop).map_err(SetupError::misused)
}

/// An error about a file in the state folder, which says what to do after its last `; `.
fn says_next(error: &str) -> Problem {
    let otherwise = (error, "see \"The state folder\" in docs/operators.md");
    let (text, next) = error.rsplit_once("; ").unwrap_or(otherwise);
    Problem::new(text, next)
}

/// The process of the host that runs with the state folder, if it has this configuration file.
async fn running(config: &Config) -> Option<u32> {
    let client = Client::new(&config.state_dir).ok()?;
    let host = timeout(PATIENCE, client.get::<Status>("status")).await.ok()?.ok()?.host;
    // Its path may be relative to the folder that it was started in.
    let of_host = Path::new(&format!("/proc/{}/cwd", host.pid)).join(host.config);
    let whole = |path: &Path| std::fs::canonicalize(path).ok();
    (whole(&of_host)? == whole(&config.file)?).then_some(host.pid)
}

/// How a backend is. `is_cluster`: whether the source is one.
async fn looked(probe: Probe<'_>, is_cluster: bool) -> Finding {
    if let Some(trouble) = probe.on_cluster.filter(|_| is_cluster) {
        return Finding::wrong(probe.check, Mark::Warning, trouble);
    }
    let found = timeout(PATIENCE, probe.found).await.unwrap_or_else(|_| {
        let text = format!("no answer within {} s", PATIENCE.as_secs());
        let next = "check that it runs, and that this machine reaches it";
        Err(Problem::new(text, next))
    });
    Finding::of(probe.check, found)
}

/// Each guest, and what it will be refused.
async fn guests(config: &Config, host_context: &HostContext, needs: &[Needs<'_>], tell: Tell<'_>) {
    for needs in needs {
        for named @ (name, _, section) in &needs.guests {
            if let Err(error) = section.verify.check() {
                let next = format!("correct `keys` in `verify` of [guests.{name}]");
                let problem = Problem::new(error, next);
                tell(Finding::wrong(format!("keys {name}"), Mark::Warning, problem));
            }
            let check = format!("guest {name}");
            let version = match host_context.usable(config, named).await {
                Ok(version) => version,
                Err(unusable) => {
                    tell(Finding::wrong(check, Mark::Failed, of_guest(config, named, unusable)));
                    continue;
                }
            };
            let guest = &version.active.instances().program.guest;
            if let Some(problem) = &version.problem {
                let history = format!("trueup guest history {name} --config {}", config.file.display());
                let next =
                    format!("{history} shows the active version: name that in `use`, or correct the refused one");
                tell(Finding::wrong(check, Mark::Warning, Problem::new(problem, next)));
            } else {
                let text = format!("{}@{} of {}", guest.name, guest.version, section.reference);
                tell(Finding::ok(check, text));
            }
            if needs.no_grants.is_none() {
                version.no_grants().iter().for_each(|missing| tell(no_grant(missing)));
            }
        }
        let named = needs.no_grants.iter().flatten();
        named.for_each(|missing| tell(no_grant(missing)));
    }
}

fn no_grant(missing: &NoGrant) -> Finding {
    let guest = missing.guest;
    let add = &missing.add;
    let next = format!("add `{add}` to `grants` of [guests.{guest}], as a part of what is there of that name");
    let check = format!("grants {guest}");
    Finding::wrong(check, Mark::Failed, Problem::new(missing, next))
}

/// Why a guest can't be used, and what to do.
fn of_guest(config: &Config, (name, _, guest): &Named, unusable: Unusable) -> Problem {
    let (file, reference) = (config.file.display(), &guest.reference);
    let inspect = match reference {
        Reference::File(path) => format!("trueup guest inspect {}", path.display()),
        Reference::Builtin { .. } => "trueup guest list".to_owned(),
        Reference::Oci(_) => format!("trueup guest lock {file}"),
    };
    let is_signed = !guest.verify.keys.is_empty();
    let correct = |what| format!("correct {what} of [guests.{name}]: {inspect}");
    let (error, next) = match unusable {
        Unusable::Away(error) => {
            let check = "check that the registry runs and that this machine reaches it";
            (error, format!("{check}, then: trueup guest pull {file}"))
        }
        Unusable::Guest(error) if is_signed => {
            let sign = "lock it if the line says so, else sign it with one of `verify.keys`";
            let correct = format!("or correct `use` of [guests.{name}]");
            (error, format!("{sign} {correct}; then: trueup guest verify {file}"))
        }
        Unusable::Revisions(error) => return says_next(&error),
        Unusable::Guest(error) => (error, correct("`use`")),
        Unusable::Settings(error) => (error, correct("`use` or `settings`")),
    };
    Problem::new(error, next)
}

/// The backends that worlds share, if a guest may use them.
fn shared(config: &Config) -> Vec<Probe<'_>> {
    let guests = config.guests();
    let key = |(_, guest): &(_, &Guest)| guest.grants.grant(ETCD)?.read.first().cloned();
    let etcd = |key: String| Probe::new("etcd", async move { etcd::look(&config.etcd, &key).await });
    let mut looks = Vec::from_iter(guests.iter().find_map(key).map(etcd));
    let filters = |(_, guest): &(_, &Guest)| guest.grants.allow_some(NFTABLES, Access::Write);
    if guests.iter().any(filters) {
        looks.push(nftables::look(&config.nftables, &config.state_dir));
    }
    looks
}

fn admin(config: &Config) -> Vec<(&'static str, AdminAt)> {
    let listen = config.admin.listen.clone();
    let metrics = config.admin.metrics_listen.map(AdminAt::Tcp);
    let all = [("admin.listen", listen), ("admin.metrics_listen", metrics)];
    all.into_iter().filter_map(|(key, at)| Some((key, at?))).collect()
}

/// How far the clock of a server is from this machine's. Call it as soon as the server answers: time that passes in
/// between counts as a difference.
fn skew(server: &str, clock: SystemTime) -> Finding {
    let (apart, direction) = match SystemTime::now().duration_since(clock) {
        Ok(apart) => (apart, "ahead of"),
        Err(error) => (error.duration(), "behind"),
    };
    let text = format!("this machine is {} s {direction} {server}", apart.as_secs());
    let next = "timedatectl set-ntp true; timedatectl timesync-status shows the server and the offset";
    match apart <= SKEW_MAX {
        true => Finding::ok("clock", text),
        false => Finding::of("clock", Err(Problem::new(text, next))),
    }
}

/// Below this a host stops recording soon: a busy one writes this much in minutes.
const FREE_BYTES_MIN: u64 = 64 << 20;

/// Whether a host can write the state folder, or make it. Also whether one runs with it.
fn state_folder(state_dir: &Path) -> (Finding, bool) {
    let check = "state folder";
    let shown = state_dir.display();
    let failed = |text: &dyn fmt::Display, next: &str| {
        let finding = Finding::wrong(check, Mark::Failed, Problem::new(text, next));
        (finding, false)
    };
    if state_dir.exists() && !state_dir.is_dir() {
        return failed(&format_args!("{shown} is no folder"), "name another one in `state_dir`");
    }
    let folder = existing(state_dir);
    let folder_shown = folder.display();
    if let Err(error) = rustix::fs::access(folder, Mode::WRITE_OK | Mode::EXEC_OK) {
        let text = format!("{shown}: {folder_shown} can't be written: {}", io::Error::from(error));
        let chown = format!("chown it (ls -ld {folder_shown})");
        let next = format!("run as the user that owns it, {chown}, or name another one in `state_dir`");
        return failed(&text, &next);
    }
    if let Some(nested) = nested(state_dir) {
        return (Finding::wrong(check, Mark::Failed, nested), false);
    }
    if let Some(owner) = another_owner(state_dir) {
        let next = "run the host as that user; a check and a plan by this one leave nothing behind";
        let trouble = Problem::new(format!("{shown} belongs to user {owner} alone"), next);
        let is_running = StateLock::taken(state_dir).is_ok_and(|taken| taken.is_some());
        return (Finding::wrong(check, Mark::Warning, trouble), is_running);
    }
    match StateLock::taken(state_dir) {
        Ok(None) if folder != state_dir => (Finding::ok(check, format!("{shown}: a run creates it")), false),
        Ok(None) => (Finding::ok(check, shown.to_string()), false),
        Ok(Some(pid)) => {
            let taken = taken_by(state_dir, pid);
            let next = "nothing if that is this host: trueup status shows it; otherwise give this one a `state_dir` of its own";
            (Finding::wrong(check, Mark::Warning, Problem::new(taken, next)), true)
        }
        Err(error) => {
            let lock = state_dir.join(LOCK);
            failed(&error, &format!("correct the owner and mode of {}", lock.display()))
        }
    }
}

/// The folder itself, or the nearest one above it that exists.
fn existing(folder: &Path) -> &Path {
    let mut named = folder.ancestors().filter(|path| !path.as_os_str().is_empty());
    named.find(|path| path.exists()).unwrap_or(Path::new("."))
}

/// How much room a host has.
fn disk(state_dir: &Path) -> Result<String, Problem> {
    let folder = existing(state_dir);
    let too_little = |text: &dyn fmt::Display, bytes: u64| {
        let df = format!("df -h {}: free {} MiB", folder.display(), bytes >> 20);
        let next = format!("{df}, lower `keep_total_bytes` of [journal], or move `state_dir`");
        Problem::new(text, next)
    };
    let room = rustix::fs::statvfs(folder).map_err(|error| too_little(&io::Error::from(error), FREE_BYTES_MIN))?;
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    let text = format!("{} MiB free at {}", free >> 20, folder.display());
    match FREE_BYTES_MIN.checked_sub(free) {
        None | Some(0) => Ok(text),
        Some(missing) => Err(too_little(&text, missing)),
    }
}

/// Whether a host can listen there. One that `is_running` may do so already.
async fn can_listen(key: &str, at: &AdminAt, is_running: bool) -> Result<String, Problem> {
    let (free, next) = match at {
        AdminAt::Tcp(address) => {
            let bound = TcpListener::bind(address).map(drop);
            (bound, crate::admin::who_listens(*address, key))
        }
        AdminAt::Unix(path) => {
            let path_shown = path.display();
            let next = format!("ss -lxp src {path_shown} shows who has it; stop that, or give another `{key}`");
            (unix(path).await, next)
        }
    };
    match free {
        Ok(()) => Ok(format!("{at} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_running => {
            Ok(format!("{at}: the host that runs listens there"))
        }
        Err(error) => Err(Problem::new(format!("{at}: {error}"), next)),
    }
}

/// A socket that nothing serves is left by an ended host, and is free.
async fn unix(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if !found.file_type().is_socket() => Err(io::Error::other("something else than a socket is there")),
        Ok(_) => match UnixStream::connect(Reachable::new(path)?.path()).await {
            Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            Err(error) => Err(error),
        },
    }
}

/// Looks at the manifests in a folder.
async fn manifests(config: &Config, source: &Source, folder: &Path, tell: Tell<'_>) {
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
    match all.changes.len() {
        _ if !all.problems.is_empty() => {}
        0 => {
            let next = format!("put manifests into {shown}, mount it, or correct `manifests` in [source]");
            let text = format!("{shown}: no object at all; a host that knew some removes nothing");
            tell(Finding::wrong(check, Mark::Warning, Problem::new(text, next)));
        }
        count => tell(Finding::ok(check, format!("{shown}: {count} objects"))),
    }
}

/// Looks at a cluster. Returns the finding about the API server's clock; `None` if no answer has the time.
async fn kubernetes(config: &Config, settings: &Settings, needs: &[Needs<'_>], tell: Tell<'_>) -> Option<Finding> {
    let check = "API server";
    let probe = ClusterProbe::new(settings).await.map_err(|error| {
        let next = "kubectl config get-contexts; correct `kubeconfig` and `context` under [source.kubernetes]";
        tell(Finding::wrong(check, Mark::Failed, Problem::new(error, next)));
    });
    let probe = probe.ok()?;
    let clock = probe.clock().await.map_err(|failed| {
        let next = "kubectl cluster-info: if that fails too, start the API server or correct the kubeconfig's `server`";
        tell(Finding::wrong(check, Mark::Failed, Problem::new(failed.text, next)));
    });
    let clock = clock.ok()?.map(|clock| skew("the API server", clock));
    tell(Finding::ok(check, format!("{} answers", probe.server())));
    for (kind, is_needed) in probe.kinds() {
        let version = kind.api_version();
        let resource = kind.resource();
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
    may(config, &probe, needs, tell).await;
    clock
}

fn grade(is_needed: bool) -> Mark {
    if is_needed { Mark::Failed } else { Mark::Warning }
}

/// The rights of this account.
async fn may(config: &Config, probe: &ClusterProbe, needs: &[Needs<'_>], tell: Tell<'_>) {
    let mut asked = probe.reads();
    let identity = Right {
        name: Some("kube-system"),
        ..Right::new("get", "", "namespaces")
    };
    // Without it the host only warns: another cluster's state folder would not be noticed.
    asked.push((identity, false));
    let rights = needs.iter().flat_map(|needs| needs.rights);
    asked.extend(rights.map(|right| (right.clone(), true)));
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
