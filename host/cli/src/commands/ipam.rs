//! `trueup ipam`: which pod has which address of this node, according to the running host.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use serde::Serialize;
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_base::text::counted;
use trueup_config::{Ipam, SOCKET};
use trueup_work::event::seconds;
use trueup_worlds::ipam::guest::{AddressInfo, Eni, IpamKey};
use trueup_worlds::ipam::{self, FORGOTTEN_AFTER_MS, Shown};

use super::flags::{self, ConfigArg};
use crate::exit::{Ending, Failure, misused};
use crate::output::{self, Output, or_dash, printable, table};

/// The help of CONFIG.
const HOST: &str = "The configuration of the host: a TOML file, or a folder with `trueup.toml`. Default: `TRUEUP_CONFIG`, else \
                    the current folder if it has one";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Shows network interfaces, their addresses and the pods that have them. Asks the running host; changes nothing.
    Show(Asked),
    /// Frees addresses of containers that the container runtime forgot: an address whose container the runtime has not
    /// listed for 5 minutes, or one of a container that you name. Prints what it would free; `--apply` frees it.
    Release(Release),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Release {
    #[command(flatten)]
    asked: Asked,
    /// Frees only the addresses of this container, given by its full id, whatever the runtime lists. May be given
    /// several times.
    #[arg(long, value_name = "ID")]
    container: Vec<String>,
    /// Frees them. Without it, nothing changes.
    #[arg(long)]
    apply: bool,
}

#[derive(Debug, clap::Args)]
#[command(mut_arg("config", |arg| arg.help(HOST)))]
pub(crate) struct Asked {
    #[command(flatten)]
    config: ConfigArg,
    /// The socket of the host. Default: the configuration's, else `/run/trueup/cni.sock`.
    #[arg(long)]
    socket: Option<PathBuf>,
}

pub(crate) fn exec(command: Command, output: Output) -> Ending {
    match command {
        Command::Show(args) => output::show(&args.ask()?.1, output, |shown| lines(shown, SystemClock.now_ms())),
        Command::Release(args) => release(&args, output),
    }
}

impl Asked {
    /// The state of the instance, and the socket that answered.
    fn ask(&self) -> Result<(PathBuf, Shown), Failure> {
        let (socket, instance) = match self.config.found() {
            Some(config) => configured(&config)?,
            None => (PathBuf::from(SOCKET), None),
        };
        let socket = self.socket.clone().unwrap_or(socket);
        let shown = super::block_on(ipam::show(&socket, instance.as_deref()))?.map_err(anyhow::Error::msg)?;
        Ok((socket, shown))
    }
}

/// An address to free.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Freed {
    ip: String,
    key: IpamKey,
    pod: Option<String>,
    /// For how long the runtime has not listed the container; null if the runtime was not asked.
    missing_ms: Option<u64>,
}

/// The output of `release` as JSON.
#[derive(Serialize)]
struct Released {
    instance: String,
    applied: bool,
    addresses: Vec<Freed>,
}

fn release(args: &Release, output: Output) -> Ending {
    let (socket, shown) = args.asked.ask()?;
    let released = Released {
        addresses: to_free(&shown, &args.container)?,
        instance: shown.instance,
        applied: args.apply,
    };
    for freed in released.addresses.iter().filter(|_| args.apply) {
        let done = super::block_on(ipam::release(&socket, &released.instance, &freed.key))?;
        done.map_err(|error| anyhow!("{} of {}: {error}", freed.ip, freed.key.container_id))?;
    }
    output::show(&released, output, released_lines)
}

/// The addresses of the named containers, or of those that the runtime forgot if none is named.
fn to_free(shown: &Shown, containers: &[String]) -> Result<Vec<Freed>, Failure> {
    let freed = |ip: &String, key: &IpamKey, pod: Option<&String>, missing_ms| Freed {
        ip: ip.clone(),
        key: key.clone(),
        pod: pod.cloned(),
        missing_ms,
    };
    if containers.is_empty() {
        let missing = shown.missing.as_ref().ok_or_else(|| {
            misused(anyhow!(
                "the host does not ask the container runtime which containers there are: set `socket` in `[backend.cri]` \
                 and wait 5 minutes, or name a container with `--container ID`"
            ))
        })?;
        let gone = missing.iter().filter(|of| of.missing_ms >= FORGOTTEN_AFTER_MS);
        let gone = gone.map(|of| freed(&of.ip, &of.key, of.pod.as_ref(), Some(of.missing_ms)));
        return Ok(gone.collect());
    }
    let of_enis = shown.enis.iter().flat_map(|eni| &eni.addresses);
    let assigned = of_enis.filter_map(|info| Some((&info.address, info.key.as_ref()?)));
    let all = assigned.chain(shown.held.iter().map(|held| (&held.ip, &held.key)));
    let all: Vec<_> = all.filter(|(_, key)| containers.contains(&key.container_id)).collect();
    let is_unknown = |id: &&String| all.iter().all(|(_, key)| key.container_id != **id);
    if let Some(unknown) = containers.iter().find(is_unknown).map(|id| printable(id)) {
        let next = "`trueup ipam show` has those that do";
        return Err(misused(anyhow!("container `{unknown}` has no address; {next}")));
    }
    let freed = |(ip, key)| freed(ip, key, shown.pods.get(ip), None);
    Ok(all.into_iter().map(freed).collect())
}

fn released_lines(released: &Released) -> Vec<String> {
    if released.addresses.is_empty() {
        return vec![
            "nothing to free: the container runtime knows every holder, or has not missed one for 5 minutes".to_owned(),
        ];
    }
    let rows = released.addresses.iter().map(|freed| {
        let pod = or_dash(freed.pod.as_ref());
        let missing = or_dash(freed.missing_ms.map(seconds));
        [freed.ip.clone(), pod, freed.key.container_id.clone(), missing]
    });
    let mut lines = table(["ADDRESS", "POD", "CONTAINER", "MISSING"], rows);
    let addresses = counted(released.addresses.len(), "address", "addresses");
    lines.push(match released.applied {
        true => format!("{addresses} freed"),
        false => format!("{addresses} would be freed; nothing was changed: `--apply` frees them"),
    });
    lines
}

/// The socket and the instance that a configuration names.
fn configured(config: &Path) -> Result<(PathBuf, Option<String>), Failure> {
    let config = flags::read(config)?;
    let Some(Ipam { adapter, .. }) = config.world() else {
        let file = config.file.display();
        return Err(misused(anyhow!("{file}: nothing to show: it has no `[adapter.ipam]`")));
    };
    Ok((adapter.socket.clone(), Some(adapter.instance.clone())))
}

/// The state of an address. The guest's rule: an address still rests at exactly the period's end, and starts anew if
/// the clock went back.
fn state(address: &AddressInfo, shown: &Shown, now_ms: u64) -> String {
    let period_ms = Some(shown.cooling_period_ms).filter(|period_ms| *period_ms > 0);
    let left_ms = |at_ms| period_ms?.checked_sub(now_ms.saturating_sub(at_ms));
    match address.unassigned_at_ms.and_then(left_ms) {
        _ if address.key.is_some() => "assigned".to_owned(),
        // The store is not read.
        _ if !shown.read => "unknown".to_owned(),
        Some(left_ms) => format!("resting, {} left", seconds(left_ms)),
        None => "free".to_owned(),
    }
}

/// The text output: totals, each interface, each address.
fn lines(shown: &Shown, now_ms: u64) -> Vec<String> {
    let guest = &shown.guest;
    let store = match (shown.read, &shown.error) {
        (true, None) => "read".to_owned(),
        (true, Some(error)) => printable(error),
        (false, None) => "not read yet".to_owned(),
        (false, Some(error)) => format!("not read: {}", printable(error)),
    };
    let mut lines = vec![
        format!("instance  {}", shown.instance),
        format!("guest     {}@{} {}", guest.name, guest.version, guest.digest),
        format!("store     {store}"),
    ];
    if shown.read {
        lines.push(format!("total     {}", shown.stats));
    }
    lines.push(String::new());
    lines.extend(interfaces(shown, now_ms));
    lines.extend(addresses(shown, now_ms));
    lines
}

fn interfaces(shown: &Shown, now_ms: u64) -> Vec<String> {
    let of_eni = |eni: &Eni| {
        let count = |word: &str| {
            let states = eni.addresses.iter().map(|address| state(address, shown, now_ms));
            let states = states.filter(|state| state.starts_with(word));
            or_dash(shown.read.then(|| states.count()))
        };
        let flags = match (eni.is_primary, eni.is_trunk) {
            (true, true) => "primary, trunk",
            (true, false) => "primary",
            (false, true) => "trunk",
            (false, false) => "-",
        };
        let device = eni.device_number.to_string();
        let all = eni.addresses.len().to_string();
        let [assigned, resting, free] = ["assigned", "resting", "free"].map(count);
        [eni.id.clone(), device, flags.to_owned(), all, assigned, resting, free]
    };
    let given_up = |id: &String| [id, "-", "given up", "-", "-", "-", "-"].map(str::to_owned);
    let rows = shown.enis.iter().map(of_eni).chain(shown.released.iter().map(given_up));
    let head = [
        "INTERFACE",
        "DEVICE",
        "FLAGS",
        "ADDRESSES",
        "ASSIGNED",
        "RESTING",
        "FREE",
    ];
    table(head, rows)
}

fn addresses(shown: &Shown, now_ms: u64) -> Vec<String> {
    let row = |ip: &str, interface: &str, state: &str, key: Option<&IpamKey>| {
        let pod = shown.pods.get(ip).map_or("-", String::as_str);
        let of_key = key.map(|key| [pod, &key.network_name, &key.container_id, &key.if_name]);
        let [pod, network, container, in_pod] = of_key.unwrap_or_default();
        [ip, interface, state, pod, network, container, in_pod].map(str::to_owned)
    };
    let mut rows = Vec::new();
    for eni in &shown.enis {
        let of_eni = |info: &AddressInfo| row(&info.address, &eni.id, &state(info, shown, now_ms), info.key.as_ref());
        rows.extend(eni.addresses.iter().map(of_eni));
    }
    let held = shown.held.iter();
    rows.extend(held.map(|held| row(&held.ip, "-", "held", Some(&held.key))));
    let head = ["ADDRESS", "INTERFACE", "STATE", "POD", "NETWORK", "CONTAINER", "IN POD"];
    output::table_below(head, rows)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use trueup_worlds::ipam::guest::PodIpInfo;
    use trueup_worlds::ipam::{Forgotten, ShownGuest, Stats};

    use super::*;

    fn key(container_id: &str) -> IpamKey {
        IpamKey {
            network_name: "net".to_owned(),
            container_id: container_id.to_owned(),
            if_name: "eth0".to_owned(),
        }
    }

    fn address(address: &str, key: Option<IpamKey>, unassigned_at_ms: Option<u64>) -> AddressInfo {
        AddressInfo {
            address: address.to_owned(),
            key,
            unassigned_at_ms,
        }
    }

    fn shown() -> Shown {
        let eni = Eni {
            id: "eni-1".to_owned(),
            device_number: 0,
            is_primary: true,
            is_trunk: false,
            created_at_ms: 0,
            addresses: vec![
                address("10.0.0.2", Some(key("c1\u{1b}[2J")), Some(5)),
                address("10.0.0.3", None, Some(70_000)),
                address("10.0.0.4", None, Some(69_999)),
                address("10.0.0.5", None, None),
            ],
        };
        Shown {
            instance: "ipam".to_owned(),
            guest: ShownGuest {
                name: "ipam".to_owned(),
                version: "1".to_owned(),
                digest: "sha256:0".to_owned(),
            },
            read: true,
            error: None,
            stats: Stats {
                enis: 1,
                addresses: 4,
                assigned: 1,
                held: 1,
                free: 2,
                resting: 1,
            },
            cooling_period_ms: 30_000,
            enis: vec![eni],
            held: vec![PodIpInfo {
                key: key("c9"),
                ip: "10.0.7.5".to_owned(),
                device_number: -1,
            }],
            released: vec!["eni-9".to_owned()],
            pods: BTreeMap::from([("10.0.0.2".to_owned(), "default/web-0".to_owned())]),
            missing: None,
        }
    }

    #[test]
    fn a_person_sees_who_has_which_address_and_how_long_others_rest() {
        let lines = lines(&shown(), 100_000);
        let text = lines.join("\n");
        assert_eq!(
            text,
            r"instance  ipam
guest     ipam@1 sha256:0
store     read
total     1 interface, 4 addresses: 1 assigned, 1 held

INTERFACE  DEVICE  FLAGS     ADDRESSES  ASSIGNED  RESTING  FREE
eni-1      0       primary   4          1         1        2
eni-9      -       given up  -          -         -        -

ADDRESS   INTERFACE  STATE                POD            NETWORK  CONTAINER    IN POD
10.0.0.2  eni-1      assigned             default/web-0  net      c1\u{1b}[2J  eth0
10.0.0.3  eni-1      resting, 0.0 s left
10.0.0.4  eni-1      free
10.0.0.5  eni-1      free
10.0.7.5  -          held                 -              net      c9           eth0"
        );
    }

    #[test]
    fn what_the_runtime_forgot_for_long_enough_is_to_be_freed() {
        let missing = |ip: &str, container: &str, missing_ms| Forgotten {
            ip: ip.to_owned(),
            key: key(container),
            pod: None,
            missing_ms,
        };
        let asks = Shown {
            missing: Some(vec![
                missing("10.0.0.2", "c1", 300_000),
                missing("10.0.7.5", "c9", 299_999),
            ]),
            ..shown()
        };
        let freed = to_free(&asks, &[]).unwrap();
        assert_eq!(
            freed.iter().map(|freed| freed.ip.as_str()).collect::<Vec<_>>(),
            ["10.0.0.2"]
        );
        let lines = released_lines(&Released {
            instance: "ipam".to_owned(),
            applied: false,
            addresses: freed,
        });
        assert_eq!(
            lines.join("\n"),
            r"ADDRESS   POD  CONTAINER  MISSING
10.0.0.2  -    c1         300.0 s
1 address would be freed; nothing was changed: `--apply` frees them"
        );
        assert!(to_free(&shown(), &[]).is_err(), "the host does not ask the runtime");
        let named = to_free(&shown(), &["c9".to_owned()]).unwrap();
        assert_eq!(named[0].ip, "10.0.7.5");
        assert!(to_free(&asks, &["c9".to_owned(), "c7".to_owned()]).is_err());
    }

    #[test]
    fn an_unread_store_comes_first_and_nothing_rests_without_a_period() {
        let unread = Shown {
            read: false,
            error: Some("unavailable: disk full".to_owned()),
            cooling_period_ms: 0,
            ..shown()
        };
        let lines = lines(&unread, 70_000);
        let expected = [
            "store     not read: unavailable: disk full",
            "",
            "INTERFACE  DEVICE  FLAGS     ADDRESSES  ASSIGNED  RESTING  FREE",
            "eni-1      0       primary   4          -         -        -",
        ];
        assert_eq!(lines[2..6], expected);
        let free = ["10.0.0.3", "10.0.0.4", "10.0.0.5"].map(|ip| format!("{ip}  eni-1      unknown"));
        assert!(free.iter().all(|line| lines.contains(line)), "{lines:#?}");
    }
}
