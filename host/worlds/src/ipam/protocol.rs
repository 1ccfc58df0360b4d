//! The socket's protocol: one line of JSON each way, and the CNI code of each of the guest's errors.
//!
//! Pure. `server.rs` decides which clients may connect, and sets time limits; `actor.rs` executes requests.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Number, Value};
use trueup_work::status::pods::Stats;

use super::holders::Forgotten;
use crate::ipam::guest::{Assignment, Eni, Error, IpamKey, PodIpInfo};

/// The version of the protocol.
pub const PROTOCOL: u64 = 1;

/// The longest request and the longest answer to a pod's request, including line ends. A GC names every container of
/// a node, and a thousand of them are 100 kB.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// The answer to an ADD if no address is free.
const EXHAUSTED: &str = "no address is free";

/// What the refusal of a change begins with that the store did not take.
const UNSTORED: &str = "backing-store: ";

/// A namespace has at most 63 bytes, a name 253.
const POD_BYTES_MAX: usize = 320;

/// The network of allocations that were learned from the container runtime. It is part of the stored format.
pub(super) const MIGRATED_NETWORK: &str = "_migrated-from-cri";

/// CNI's error codes.
pub mod code {
    /// The container is not known.
    pub const CONTAINER_UNKNOWN: u32 = 3;
    /// An environment variable of the plugin is missing or wrong.
    pub const ENVIRONMENT: u32 = 4;
    /// An I/O error, or an unsupported version of the protocol.
    pub const IO: u32 = 5;
    /// The request can't be decoded.
    pub const DECODING: u32 = 6;
    /// The network configuration is wrong.
    pub const CONFIGURATION: u32 = 7;
    /// Try again later.
    pub const TRY_AGAIN: u32 = 11;
    /// ADD can't be served.
    pub const NOT_ABLE: u32 = 50;
}

/// One request. Unknown members are ignored.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Request {
    /// The instance. `None` for the host's only one.
    pub(super) instance: Option<String>,
    /// The command.
    #[serde(flatten)]
    pub(super) command: Command,
    /// `namespace/name` of the pod, if the plugin knows it. Only for display.
    #[serde(default, deserialize_with = "pod_name")]
    pub(super) pod: Option<String>,
}

/// The command of a request.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "command", rename_all = "UPPERCASE")]
pub(super) enum Command {
    Add(#[serde(with = "Spelled")] IpamKey),
    Del(#[serde(with = "Spelled")] IpamKey),
    Check(#[serde(with = "Spelled")] IpamKey),
    Gc(Gc),
    Status,
    /// The host's own command, for `trueup ipam show`.
    Show,
}

/// A key as requests spell it.
#[derive(Deserialize)]
#[serde(remote = "IpamKey", rename_all = "camelCase")]
struct Spelled {
    #[serde(rename = "network")]
    network_name: String,
    container_id: String,
    if_name: String,
}

/// Frees what is no longer used.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Gc {
    network: String,
    /// Container ids and interface names that stay. Required: an empty list frees everything.
    valid: BTreeSet<(String, String)>,
    /// Whether to free also allocations that were learned from the container runtime.
    #[serde(default, rename = "gcMigrated")]
    migrated: bool,
}

/// Ignores an invalid name: it decides nothing.
fn pod_name<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let pod = Value::deserialize(from)?;
    Ok(pod.as_str().filter(|pod| pod.len() <= POD_BYTES_MAX).map(str::to_owned))
}

/// The answer to a request.
pub(super) type Answer = Result<Done, Refusal>;

/// The contents of `ok`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Done {
    /// An address, and the device number of its interface; -1 if no interface has it.
    Allocation {
        ip: String,
        #[serde(rename = "deviceNumber")]
        device_number: i32,
    },
    /// No data.
    Nothing {},
    /// The state of the instance.
    Shown(Box<Shown>),
}

/// What a host answers for `trueup ipam show`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// The instance.
    pub instance: String,
    /// The guest.
    pub guest: ShownGuest,
    /// Whether the store was read. Pods get addresses only then.
    pub read: bool,
    /// Why the store is not read, why it did not take the last change, or why the instance is not there. `None` if
    /// there is no error.
    pub error: Option<String>,
    /// Counts.
    pub stats: Stats,
    /// How long an address rests after its release, in milliseconds, from the guest's settings. 0 if it does not
    /// rest.
    pub cooling_period_ms: u64,
    /// Interfaces by device number then id, with their addresses and holders.
    pub enis: Vec<Eni>,
    /// Allocations whose address is on no interface, by address.
    pub held: Vec<PodIpInfo>,
    /// The ids of interfaces that were given up and are still in the list of interfaces.
    pub released: Vec<String>,
    /// The pods that hold addresses, `namespace/name` by address, as far as the plugin reported them.
    #[serde(default)]
    pub pods: BTreeMap<String, String>,
    /// Holders that the container runtime does not list, by address. Absent if the host does not ask it.
    #[serde(default)]
    pub missing: Option<Vec<Forgotten>>,
}

/// The guest of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownGuest {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// `sha256:` and the digest of its bytes.
    pub digest: String,
}

/// The contents of `error`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// One of [`code`].
    pub code: u32,
    /// One line.
    pub msg: String,
    /// `NETWORK/CONTAINER/IFNAME` of the allocation, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<String>,
}

impl Refusal {
    pub(super) fn new(code: u32, msg: impl Into<String>) -> Self {
        Self {
            code,
            msg: msg.into(),
            details: None,
        }
    }

    /// A refusal that asks to try again later.
    pub(super) fn later(msg: impl Into<String>) -> Self {
        Self::new(code::TRY_AGAIN, msg)
    }

    /// Whether it says that no address is free.
    pub(super) fn is_exhausted(&self) -> bool {
        self.code == code::TRY_AGAIN && self.msg == EXHAUSTED
    }

    /// Whether it says that the store took no change, and why.
    pub(super) fn unstored(&self) -> Option<&str> {
        self.msg.strip_prefix(UNSTORED).filter(|_| self.code == code::TRY_AGAIN)
    }
}

/// `NETWORK/CONTAINER/IFNAME`.
fn named(key: &IpamKey) -> String {
    format!("{}/{}/{}", key.network_name, key.container_id, key.if_name)
}

impl From<Assignment> for Done {
    fn from(Assignment { ip, device_number }: Assignment) -> Self {
        Self::Allocation { ip, device_number }
    }
}

impl Command {
    /// The name of the command and its key. `None` if it is not about a pod.
    fn of_pod(&self) -> Option<(&'static str, &IpamKey)> {
        match self {
            Self::Add(key) => Some(("ADD", key)),
            Self::Del(key) => Some(("DEL", key)),
            Self::Check(key) => Some(("CHECK", key)),
            Self::Gc(_) | Self::Status | Self::Show => None,
        }
    }

    /// The key of the command, if it has one.
    pub(super) fn key(&self) -> Option<&IpamKey> {
        self.of_pod().map(|(_, key)| key)
    }

    /// The request in words. `None` if it is not about a pod.
    pub(super) fn about(&self, instance: &str) -> Option<String> {
        let (verb, key) = self.of_pod()?;
        Some(format!("{instance} {verb} {}", named(key)))
    }

    /// Adds the key to the refusal, and maps its code to the one that this command uses for an instance that can't
    /// serve.
    pub(super) fn refuse(&self, mut refusal: Refusal) -> Refusal {
        if let Some(key) = self.key() {
            refusal.details = Some(named(key));
        } else if *self == Self::Status && refusal.code == code::TRY_AGAIN {
            refusal.code = code::NOT_ABLE;
        }
        refusal
    }
}

/// Parses a request, without its line end.
pub(super) fn parse(line: &[u8]) -> Result<Request, Refusal> {
    #[derive(Deserialize)]
    struct Versioned {
        v: Number,
    }
    let Versioned { v } = read(line)?;
    if v.as_u64() != Some(PROTOCOL) {
        let msg = format!("version {v} of the protocol is not known; this host speaks {PROTOCOL}");
        return Err(Refusal::new(code::IO, msg));
    }
    read(line)
}

fn read<T: DeserializeOwned>(line: &[u8]) -> Result<T, Refusal> {
    let undecodable = |error| Refusal::new(code::DECODING, format!("the request is not understood: {error}"));
    serde_json::from_slice(line).map_err(undecodable)
}

impl Gc {
    /// The allocations to free, in the given order.
    pub(super) fn unused(&self, allocated: Vec<PodIpInfo>) -> Vec<IpamKey> {
        let keys = allocated.into_iter().map(|pod| pod.key);
        keys.filter(|key| self.frees(key)).collect()
    }

    fn frees(&self, key: &IpamKey) -> bool {
        if key.network_name == MIGRATED_NETWORK {
            // Their network and interface are unknown.
            let container_stays = self.valid.iter().any(|(container, _)| *container == key.container_id);
            return self.migrated && !container_stays;
        }
        let attachment = (key.container_id.clone(), key.if_name.clone());
        key.network_name == self.network && !self.valid.contains(&attachment)
    }
}

/// The answer to an unassignment. Succeeds too if there was nothing to free, so that it can be repeated.
pub(super) fn unassigned(result: Result<Assignment, Error>) -> Result<Option<Assignment>, Refusal> {
    match result {
        Ok(freed) => Ok(Some(freed)),
        Err(Error::UnknownPod) => Ok(None),
        Err(error) => Err(refusal(error)),
    }
}

/// An error of the guest as a CNI error.
pub(super) fn refusal(error: Error) -> Refusal {
    match error {
        Error::NoAvailableIp => Refusal::later(EXHAUSTED),
        Error::BackingStore(text) => Refusal::later(format!("{UNSTORED}{text}")),
        Error::InvalidKey(field) if field == "network-name" => {
            Refusal::new(code::CONFIGURATION, "the network's name is empty")
        }
        Error::InvalidKey(field) => Refusal::new(code::ENVIRONMENT, format!("{field} is empty")),
        // None of these is a valid answer to a pod's request: the guest is wrong, not the pod.
        other => Refusal::later(format!("the guest answered {}", name(&other))),
    }
}

/// An error of the guest as the contract names it.
pub(super) fn name(error: &Error) -> String {
    match error {
        Error::DuplicatedEni => "duplicated-eni".to_owned(),
        Error::IpAlreadyInStore => "ip-already-in-store".to_owned(),
        Error::UnknownIp => "unknown-ip".to_owned(),
        Error::IpInUse => "ip-in-use".to_owned(),
        Error::EniInUse => "eni-in-use".to_owned(),
        Error::UnknownEni => "unknown-eni".to_owned(),
        Error::UnknownPod => "unknown-pod".to_owned(),
        Error::NoAvailableIp => "no-available-ip".to_owned(),
        Error::InvalidIp(text) => format!("invalid-ip({text})"),
        Error::InvalidKey(field) => format!("invalid-key({field})"),
        Error::BackingStore(text) => format!("backing-store({text})"),
    }
}

/// The line of an answer, with its end.
pub(super) fn line(answer: &Answer) -> Vec<u8> {
    let (member, said) = match answer {
        Ok(done) => ("ok", serde_json::to_string(done)),
        Err(refusal) => ("error", serde_json::to_string(refusal)),
    };
    // Text and numbers always serialize to JSON.
    let said = said.unwrap_or_default();
    format!("{{\"v\":{PROTOCOL},\"{member}\":{said}}}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(network: &str, container: &str, interface: &str) -> IpamKey {
        IpamKey {
            network_name: network.to_owned(),
            container_id: container.to_owned(),
            if_name: interface.to_owned(),
        }
    }

    #[test]
    fn requests_are_read_as_the_specification_spells_them() {
        let c1 = || key("net", "c1", "eth0");
        let gc = |migrated| {
            Command::Gc(Gc {
                network: "net".to_owned(),
                valid: BTreeSet::from([("c1".to_owned(), "eth0".to_owned())]),
                migrated,
            })
        };
        for (line, instance, command) in [
            (
                r#"{"v":1,"command":"ADD","instance":null,"network":"net","containerId":"c1","ifName":"eth0"}"#,
                None,
                Command::Add(c1()),
            ),
            (
                r#"{"v":1,"command":"DEL","network":"net","containerId":"c1","ifName":"eth0","more":[1]}"#,
                None,
                Command::Del(c1()),
            ),
            (
                r#"{"v":1,"command":"CHECK","instance":"pods","network":"net","containerId":"c1","ifName":"eth0"}"#,
                Some("pods"),
                Command::Check(c1()),
            ),
            (
                r#"{"v":1,"command":"GC","instance":null,"network":"net","valid":[["c1","eth0"]],"gcMigrated":true}"#,
                None,
                gc(true),
            ),
            (
                r#"{"v":1,"command":"GC","network":"net","valid":[["c1","eth0"]]}"#,
                None,
                gc(false),
            ),
            (
                r#"{"v":1,"command":"STATUS","instance":"pods"}"#,
                Some("pods"),
                Command::Status,
            ),
            (r#"{"v":1,"command":"SHOW"}"#, None, Command::Show),
        ] {
            let instance = instance.map(str::to_owned);
            let request = Request {
                instance,
                command,
                pod: None,
            };
            assert_eq!(parse(line.as_bytes()), Ok(request), "{line}");
        }
        let named = |pod: &str| {
            let line = format!(r#"{{"v":1,"command":"STATUS","pod":{pod}}}"#);
            parse(line.as_bytes()).unwrap().pod
        };
        assert_eq!(named(r#""default/web-0""#).as_deref(), Some("default/web-0"));
        assert_eq!(named("1"), None);
        assert_eq!(named(&format!("{:?}", "x".repeat(321))), None);
    }

    #[test]
    fn another_version_is_5_and_what_is_no_request_is_6() {
        for (line, code, msg) in [
            ("", 6, "EOF"),
            ("{", 6, "EOF"),
            ("[1]", 6, ""),
            (r#"{"command":"STATUS"}"#, 6, "missing field `v`"),
            (r#"{"v":"1","command":"STATUS"}"#, 6, "invalid type: string \"1\""),
            (
                r#"{"v":2,"command":"WHATEVER"}"#,
                5,
                "version 2 of the protocol is not known; this host speaks 1",
            ),
            (r#"{"v":1.5}"#, 5, "version 1.5"),
            (r#"{"v":1}"#, 6, "missing field `command`"),
            (
                r#"{"v":1,"command":"add"}"#,
                6,
                "unknown variant `add`, expected one of `ADD`",
            ),
            (
                r#"{"v":1,"command":"STATUS","instance":1}"#,
                6,
                "invalid type: integer `1`",
            ),
            (
                r#"{"v":1,"command":"ADD","containerId":"c","ifName":"e"}"#,
                6,
                "missing field `network`",
            ),
            (
                r#"{"v":1,"command":"ADD","network":"n","containerId":7,"ifName":"e"}"#,
                6,
                "invalid type: integer `7`",
            ),
            (r#"{"v":1,"command":"GC","network":"n"}"#, 6, "missing field `valid`"),
            (
                r#"{"v":1,"command":"GC","network":"n","valid":[["c"]]}"#,
                6,
                "invalid length 1",
            ),
            (
                r#"{"v":1,"command":"GC","network":"n","valid":[],"gcMigrated":null}"#,
                6,
                "invalid type: null",
            ),
        ] {
            let refusal = parse(line.as_bytes()).unwrap_err();
            assert_eq!(refusal.code, code, "{line}");
            let said = refusal.msg.trim_start_matches("the request is not understood: ");
            assert!(said.starts_with(msg), "{line}: {said}");
        }
    }

    #[test]
    fn answers_are_one_line_as_the_specification_spells_them() {
        let allocation = Assignment {
            ip: "10.0.0.5".to_owned(),
            device_number: 1,
        };
        let add = Command::Add(key("net", "c1", "eth0"));
        for (answer, expected) in [
            (
                Ok(allocation.into()),
                r#"{"v":1,"ok":{"ip":"10.0.0.5","deviceNumber":1}}"#,
            ),
            (Ok(Done::Nothing {}), r#"{"v":1,"ok":{}}"#),
            (
                Err(add.refuse(refusal(Error::NoAvailableIp))),
                r#"{"v":1,"error":{"code":11,"msg":"no address is free","details":"net/c1/eth0"}}"#,
            ),
            (
                Err(Refusal::new(5, "a\nb")),
                r#"{"v":1,"error":{"code":5,"msg":"a\nb"}}"#,
            ),
        ] {
            assert_eq!(String::from_utf8(line(&answer)).unwrap(), format!("{expected}\n"));
        }
    }

    #[test]
    fn each_error_has_the_code_that_the_specification_gives_it() {
        for (error, expected) in [
            (Error::NoAvailableIp, code::TRY_AGAIN),
            (Error::BackingStore("unavailable: full".to_owned()), code::TRY_AGAIN),
            (Error::InvalidKey("network-name".to_owned()), code::CONFIGURATION),
            (Error::InvalidKey("if-name".to_owned()), code::ENVIRONMENT),
        ] {
            assert_eq!(refusal(error).code, expected);
        }
        assert_eq!(unassigned(Err(Error::UnknownPod)), Ok(None));
        assert_eq!(
            unassigned(Err(Error::BackingStore("x".to_owned()))).unwrap_err().code,
            code::TRY_AGAIN
        );
        let down = || Refusal::later("down");
        assert_eq!(Command::Status.refuse(down()).code, code::NOT_ABLE);
        assert_eq!(Command::Show.refuse(down()).code, code::TRY_AGAIN);
    }

    #[test]
    fn gc_frees_what_is_not_listed_and_migrated_ones_only_when_asked() {
        let pod = |key| PodIpInfo {
            key,
            ip: "10.0.0.1".to_owned(),
            device_number: -1,
        };
        let migrated = |container| key(MIGRATED_NETWORK, container, "unknown");
        let all = || {
            vec![
                pod(key("net", "c1", "eth0")),
                pod(key("net", "c1", "eth1")),
                pod(key("net", "c2", "eth0")),
                pod(key("other", "c3", "eth0")),
                pod(migrated("c1")),
                pod(migrated("c4")),
            ]
        };
        let gc = |network: &str, migrated| Gc {
            network: network.to_owned(),
            valid: BTreeSet::from([("c1".to_owned(), "eth0".to_owned())]),
            migrated,
        };
        let of_net = [key("net", "c1", "eth1"), key("net", "c2", "eth0")];
        assert_eq!(gc("net", false).unused(all()), of_net);
        assert_eq!(gc("net", true).unused(all()), [&of_net[..], &[migrated("c4")]].concat());
        assert_eq!(gc(MIGRATED_NETWORK, false).unused(all()), []);
    }
}
