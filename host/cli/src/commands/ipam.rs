//! `trueup ipam`: which pod has which address of this node, as the host that runs says it.

use std::path::{Path, PathBuf};

use trueup_runtime::capabilities::clock::{Clock as _, SystemClock};
use trueup_runtime::config::SOCKET;
use trueup_runtime::guests::ipam::{AddressInfo, Eni, IpamKey};
use trueup_runtime::ipam::{self, Shown};

use super::run::{counted, seconds};
use crate::exit::{Ending, Exit, misused};
use crate::output::{self, Output, printable, table};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Shows network interfaces, addresses and the pods that have them. Asks the host that runs; changes nothing.
    #[command(
        after_help = "Examples:\n  trueup ipam show\n  trueup ipam show /etc/trueup\n  trueup ipam show --socket /run/trueup/cni.sock --output json | jq '.stats'"
    )]
    Show(Show),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    /// The configuration of the host: a TOML file, or a folder with `trueup.toml`. Default: none is read.
    config: Option<PathBuf>,
    /// Where the host listens. Default: where the configuration says, else `/run/trueup/cni.sock`.
    #[arg(long)]
    socket: Option<PathBuf>,
}

pub(crate) fn exec(command: Command, output: Output) -> Ending {
    let Command::Show(args) = command;
    let (socket, instance) = match &args.config {
        Some(config) => {
            let (socket, instance) = configured(config)?;
            (args.socket.unwrap_or(socket), Some(instance))
        }
        None => (args.socket.unwrap_or_else(|| PathBuf::from(SOCKET)), None),
    };
    let shown = super::block_on(ipam::show(&socket, instance.as_deref()))?.map_err(anyhow::Error::msg)?;
    match output {
        Output::Json => output::json(&shown)?,
        Output::Text => {
            for line in lines(&shown, SystemClock.now_ms()) {
                output::line(&line)?;
            }
        }
    }
    Ok(Exit::Done)
}

/// The socket and the instance that a configuration names.
fn configured(config: &Path) -> Result<(PathBuf, String), crate::exit::Failure> {
    let config = super::run::read(config, &[])?;
    match config.ipam {
        Some(ipam) => Ok((ipam.adapter.socket, ipam.adapter.instance)),
        None => Err(misused(anyhow::anyhow!(
            "{}: nothing to show: it has no `[adapter.ipam]`",
            config.file.display()
        ))),
    }
}

/// How an address stands.
enum State<'a> {
    Assigned(&'a IpamKey),
    /// So many milliseconds more.
    Resting(u64),
    Free,
}

impl<'a> State<'a> {
    /// The rule is the guest's: at exactly the period's end it still rests, and a clock that went back makes it rest anew.
    fn of(address: &'a AddressInfo, cooling_period_ms: u64, now_ms: u64) -> Self {
        match (&address.key, address.unassigned_at_ms) {
            (Some(key), _) => Self::Assigned(key),
            (None, Some(at_ms)) if cooling_period_ms > 0 => {
                match cooling_period_ms.checked_sub(now_ms.saturating_sub(at_ms)) {
                    Some(left_ms) => Self::Resting(left_ms),
                    None => Self::Free,
                }
            }
            (None, _) => Self::Free,
        }
    }
}

/// What a person reads: the whole, each interface, each address.
fn lines(shown: &Shown, now_ms: u64) -> Vec<String> {
    let mut lines = vec![
        format!("instance  {}", shown.instance),
        format!(
            "guest     {}@{} {}",
            shown.guest.name, shown.guest.version, shown.guest.digest
        ),
    ];
    let store = match (shown.read, &shown.error) {
        (true, None) => "read".to_owned(),
        (true, Some(error)) => printable(error),
        (false, None) => "not read yet".to_owned(),
        (false, Some(error)) => format!("not read: {}", printable(error)),
    };
    lines.push(format!("store     {store}"));
    lines.push(format!("total     {}", counted(&shown.stats)));
    lines.push(String::new());
    lines.extend(table(&interfaces(shown, now_ms)));
    let addresses = addresses(shown, now_ms);
    if addresses.len() > 1 {
        lines.push(String::new());
        lines.extend(table(&addresses));
    }
    lines
}

fn interfaces(shown: &Shown, now_ms: u64) -> Vec<Vec<String>> {
    let head = [
        "INTERFACE",
        "DEVICE",
        "FLAGS",
        "ADDRESSES",
        "ASSIGNED",
        "RESTING",
        "FREE",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for eni in &shown.enis {
        let (mut assigned, mut resting, mut free) = (0_usize, 0_usize, 0_usize);
        for address in &eni.addresses {
            match State::of(address, shown.cooling_period_ms, now_ms) {
                State::Assigned(_) => assigned += 1,
                State::Resting(_) => resting += 1,
                State::Free => free += 1,
            }
        }
        let mut row = vec![printable(&eni.id), eni.device_number.to_string(), flags(eni)];
        row.extend([eni.addresses.len(), assigned, resting, free].map(|count| count.to_string()));
        rows.push(row);
    }
    for id in &shown.released {
        let mut row = vec![printable(id), "-".to_owned(), "given up".to_owned()];
        row.extend(["-", "-", "-", "-"].map(str::to_owned));
        rows.push(row);
    }
    rows
}

fn flags(eni: &Eni) -> String {
    match (eni.is_primary, eni.is_trunk) {
        (true, true) => "primary, trunk",
        (true, false) => "primary",
        (false, true) => "trunk",
        (false, false) => "-",
    }
    .to_owned()
}

fn addresses(shown: &Shown, now_ms: u64) -> Vec<Vec<String>> {
    let row = |cells: [&str; 6]| cells.map(printable).to_vec();
    let mut rows = vec![row(["ADDRESS", "INTERFACE", "STATE", "NETWORK", "CONTAINER", "IN POD"])];
    for eni in &shown.enis {
        for info in &eni.addresses {
            let (address, id) = (&info.address, &eni.id);
            rows.push(match State::of(info, shown.cooling_period_ms, now_ms) {
                State::Assigned(key) => row([
                    address,
                    id,
                    "assigned",
                    &key.network_name,
                    &key.container_id,
                    &key.if_name,
                ]),
                State::Resting(ms) => row([address, id, &format!("resting, {} left", seconds(ms)), "", "", ""]),
                State::Free => row([address, id, "free", "", "", ""]),
            });
        }
    }
    for held in &shown.held {
        let key = &held.key;
        rows.push(row([
            &held.ip,
            "-",
            "held",
            &key.network_name,
            &key.container_id,
            &key.if_name,
        ]));
    }
    rows
}

#[cfg(test)]
mod tests {
    use trueup_runtime::guests::ipam::PodIpInfo;
    use trueup_runtime::ipam::{ShownGuest, Stats};

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
            },
            cooling_period_ms: 30_000,
            enis: vec![eni],
            held: vec![PodIpInfo {
                key: key("c9"),
                ip: "10.0.7.5".to_owned(),
                device_number: -1,
            }],
            released: vec!["eni-9".to_owned()],
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

ADDRESS   INTERFACE  STATE                NETWORK  CONTAINER    IN POD
10.0.0.2  eni-1      assigned             net      c1\u{1b}[2J  eth0
10.0.0.3  eni-1      resting, 0.0 s left
10.0.0.4  eni-1      free
10.0.0.5  eni-1      free
10.0.7.5  -          held                 net      c9           eth0"
        );
    }

    #[test]
    fn a_store_that_is_not_read_is_said_first_and_nothing_rests_without_a_period() {
        let unread = Shown {
            read: false,
            error: Some("unavailable: disk full".to_owned()),
            cooling_period_ms: 0,
            ..shown()
        };
        let lines = lines(&unread, 70_000);
        assert_eq!(lines[2], "store     not read: unavailable: disk full");
        assert!(lines.iter().all(|line| !line.contains("resting")), "{lines:#?}");
    }
}
