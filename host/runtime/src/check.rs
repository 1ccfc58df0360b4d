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

mod place;
mod source;

use std::path::Path;
use std::time::{Duration, SystemTime};

use tokio::time::timeout;
use trueup_base::http::client::clock_of;
use trueup_capabilities::grants::{Access, ETCD, NFTABLES};
use trueup_config::{AdminAt, Config};
use trueup_registry::{Reference, Registry};
use trueup_sources::Source;
use trueup_work::host_context::{HostContext, Unusable};
use trueup_work::kind::Kind;
use trueup_work::needs::{Finding, Mark, Named, Needs, NoGrant, Probe, Problem};
use trueup_work::object_counts::ObjectCounts;
use trueup_work::setup::SetupError;
use trueup_work::status::Status;
use trueup_work::{etcd, nftables};
use trueup_worlds::{KINDS, worlds};

use crate::control::Client;

/// How long one question to a backend may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How far clocks may be apart. Credentials of clouds are refused from some minutes on; an answer takes up to
/// [`PATIENCE`].
const SKEW_MAX: Duration = Duration::from_secs(30);

/// Looks at everything. Tells each finding when it is there.
pub async fn check(config: &Config, registry: &Registry, mut tell: impl FnMut(Finding)) {
    let (mut finding, is_running) = place::state_folder(&config.state_dir);
    if is_running && let Some(pid) = running(config).await {
        finding = Finding::ok(finding.check, format!("this configuration's host runs, process {pid}"));
    }
    let can_be_read = finding.mark != Mark::Failed;
    tell(finding);
    tell(Finding::of("disk", place::disk(&config.state_dir)));
    let needs: Vec<Needs<'_>> = KINDS.iter().map(|kind| kind.needs(config)).collect();
    let kinds = KINDS
        .iter()
        .zip(&needs)
        .filter(|(_, needs)| can_be_read && !needs.guests.is_empty());
    for error in kinds.filter_map(|(kind, _)| read_state(config, *kind).err()) {
        tell(Finding::wrong("state", Mark::Failed, says_next(&error.to_string())));
    }
    let mut clocks = Vec::new();
    match config.source() {
        Some(source @ Source::Manifests(folder)) => source::manifests(config, source, folder, &mut tell).await,
        Some(Source::Kubernetes(settings)) => {
            let rights: Vec<_> = needs.iter().flat_map(|needs| needs.rights).collect();
            let clock = source::kubernetes(config, settings, &rights, &mut tell).await;
            clocks.extend(clock.map(|clock| ("the API server".to_owned(), clock)));
        }
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
        tell(Finding::of(key, place::listens(key, &at, is_running).await));
    }
    for server in servers {
        if let Ok(Some(clock)) = clock_of(&server, PATIENCE).await {
            clocks.push((server, clock));
        }
    }
    for (server, clock) in clocks {
        tell(skew(&server, clock, SystemTime::now()));
    }
}

/// Reads what a run of a kind reads first in the state folder.
fn read_state(config: &Config, kind: &dyn Kind) -> Result<(), SetupError> {
    kind.check_state(config)?;
    let counts = kind
        .keyed_guest()
        .map(|guest| ObjectCounts::open(&config.state_dir, guest));
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
        Err(Problem::new(
            text,
            "check that it runs, and that this machine reaches it",
        ))
    });
    Finding::of(probe.check, found)
}

/// Each guest, and what it will be refused.
async fn guests(config: &Config, host_context: &HostContext, needs: &[Needs<'_>], tell: &mut impl FnMut(Finding)) {
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
            let (guest, file) = (&version.active.instances().program.guest, config.file.display());
            tell(if let Some(problem) = &version.problem {
                let next = format!(
                    "trueup guest history {name} --config {file} shows the active version: name that in `use`, or correct the \
                     refused one"
                );
                Finding::wrong(check, Mark::Warning, Problem::new(problem, next))
            } else {
                Finding::ok(
                    check,
                    format!("{}@{} of {}", guest.name, guest.version, section.reference),
                )
            });
            if needs.no_grants.is_none() {
                version.no_grants().iter().for_each(|missing| tell(no_grant(missing)));
            }
        }
        let named = needs.no_grants.iter().flatten();
        named.for_each(|missing| tell(no_grant(missing)));
    }
}

fn no_grant(missing: &NoGrant) -> Finding {
    let next = format!(
        "add `{}` to `grants` of [guests.{}], as a part of what is there of that name",
        missing.add, missing.guest
    );
    let check = format!("grants {}", missing.guest);
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
        Unusable::Guest(error) => (error, format!("correct `use` of [guests.{name}]: {inspect}")),
        Unusable::Settings(error) => (
            error,
            format!("correct `use` or `settings` of [guests.{name}]: {inspect}"),
        ),
    };
    Problem::new(error, next)
}

/// The backends that worlds share, if a guest may use them.
fn shared(config: &Config) -> Vec<Probe<'_>> {
    let guests = config.guests();
    let mut reads = guests
        .iter()
        .filter_map(|(_, guest)| guest.grants.grant(ETCD)?.read.first().cloned());
    let etcd = reads
        .next()
        .map(|key| Probe::new("etcd", async move { etcd::look(&config.etcd, &key).await }));
    let mut looks = Vec::from_iter(etcd);
    let filters = |(_, guest): &(_, &trueup_config::Guest)| guest.grants.allow_some(NFTABLES, Access::Write);
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

fn skew(server: &str, clock: SystemTime, now: SystemTime) -> Finding {
    let (apart, direction) = match now.duration_since(clock) {
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
