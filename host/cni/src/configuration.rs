//! The network configuration on stdin: the raw input, and the members that every command needs.
//!
//! Pure but for `read`.

use std::fmt::Display;
use std::io::{self, IsTerminal, Read};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::error::{CniError, DECODING, INVALID_CONFIGURATION, IO, shown};
use crate::version::Version;

/// The configuration with `prevResult` and a GC's list of attachments: a hundred bytes for each of 10,000 pods.
const CONFIGURATION_BYTES_MAX: usize = 1 << 20;

/// The members of `ipam` that this plugin reads, and those of the CNI conventions that others read.
const IPAM_MEMBERS: [&str; 14] = [
    "type",
    "socket",
    "instance",
    "timeoutMs",
    "spoolDir",
    "gcMigrated",
    "prefixLength",
    "gateway",
    "routes",
    "subnet",
    "ranges",
    "dataDir",
    "addresses",
    "dns",
];

/// Linux: `sun_path` holds 108 bytes with the closing NUL.
const SOCKET_BYTES_MAX: usize = 107;

/// One day. A longer timeout is a mistake.
const TIMEOUT_MS_MAX: u64 = 86_400_000;

/// How many letters of a member's name may be wrong, missing, extra, or swapped with the next.
const WRONG_LETTERS_MAX: usize = 2;

/// What stdin held.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Input {
    /// A JSON object.
    Object(Value),
    /// Only white space, for which VERSION has an answer.
    Nothing(CniError),
    /// Neither: the error for every command.
    Unusable(CniError),
}

impl Input {
    /// The `cniVersion` to answer in: the caller's if the plugin speaks it, else the newest.
    pub(crate) fn version(&self) -> Version {
        match self {
            Self::Object(object) => Version::parse(object.get("cniVersion")).unwrap_or(Version::NEWEST),
            Self::Nothing(_) | Self::Unusable(_) => Version::NEWEST,
        }
    }

    /// Parses the bytes read.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let unusable = |what: String| {
            let msg = format!("the network configuration on stdin is {what}");
            Self::Unusable(CniError::new(DECODING, msg))
        };
        if bytes.len() > CONFIGURATION_BYTES_MAX {
            return unusable(format!("longer than {CONFIGURATION_BYTES_MAX} bytes"));
        }
        if bytes.trim_ascii().is_empty() {
            let msg = "stdin is empty; it must hold the network configuration";
            return Self::Nothing(CniError::new(DECODING, msg));
        }
        match serde_json::from_slice(bytes) {
            Ok(object @ Value::Object(_)) => Self::Object(object),
            Ok(_) => unusable("not a JSON object".to_owned()),
            Err(error) => unusable(format!("not JSON: {error}")),
        }
    }
}

/// Reads stdin up to the limit. A terminal counts as empty, so that a manual call gets an error, not silence.
pub(crate) fn read(stdin: io::Stdin) -> Input {
    if stdin.is_terminal() {
        return Input::parse(b"");
    }
    let mut bytes = Vec::new();
    // One byte over the limit shows that the input is too long.
    let limit = CONFIGURATION_BYTES_MAX as u64 + 1;
    match stdin.lock().take(limit).read_to_end(&mut bytes) {
        Ok(_) => Input::parse(&bytes),
        Err(error) => {
            let msg = format!("reading the network configuration from stdin: {error}");
            Input::Unusable(CniError::new(IO, msg))
        }
    }
}

/// The settings for every command that asks the host.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub(crate) struct Settings {
    /// The network's name.
    #[serde(rename = "name", deserialize_with = "filled")]
    pub(crate) network: String,
    #[serde(rename = "ipam")]
    pub(crate) plugin: PluginSettings,
    /// What ADD prints beside the address.
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) dns: Map<String, Value>,
}

/// What `ipam` of the network says to this plugin.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PluginSettings {
    /// The name of this plugin, by which the runtime found it.
    #[serde(rename = "type")]
    _type: String,
    /// The host's.
    #[serde(default = "socket_default", deserialize_with = "socket")]
    pub(crate) socket: PathBuf,
    /// Which guest. `None` means the host's only one.
    #[serde(default, deserialize_with = "filled_if_given")]
    pub(crate) instance: Option<String>,
    /// For connecting, asking and reading the answer together, in milliseconds.
    #[serde(default = "timeout_ms_default", deserialize_with = "timeout_ms")]
    pub(crate) timeout_ms: u64,
    /// The folder that keeps releases while the host is down. `None` keeps none: only here null has a meaning of its
    /// own.
    #[serde(default = "spool_dir_default", deserialize_with = "spool_dir")]
    pub(crate) spool_dir: Option<PathBuf>,
    /// GC frees migrated keys too.
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) gc_migrated: bool,
    /// Of the address that ADD prints.
    #[serde(default = "prefix_length_default", deserialize_with = "prefix_length")]
    pub(crate) prefix_length: u8,
    pub(crate) gateway: Option<Ipv4Addr>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) routes: Vec<Route>,
}

/// A route as the plugin passes it on, without absent members.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Route {
    #[serde(deserialize_with = "network")]
    dst: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    gw: Option<IpAddr>,
    // Since 1.1.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    advmss: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<u8>,
}

impl Settings {
    /// Reads the whole configuration, whose version is already known.
    ///
    /// # Errors
    /// Code 7, naming the first member that is missing or wrong.
    pub(crate) fn read(configuration: &Value, version: Version) -> Result<Self, CniError> {
        refuse_misspelt(configuration.get("ipam"))?;
        if version >= Version::V1_1_0 {
            return members(configuration);
        }
        // Before 1.1.0 the later members of routes are unknown: ignore them, whatever they hold.
        let mut known = configuration.clone();
        let routes = known.pointer_mut("/ipam/routes").and_then(Value::as_array_mut);
        for route in routes.into_iter().flatten().filter_map(Value::as_object_mut) {
            route.retain(|name, _| matches!(name.as_str(), "dst" | "gw"));
        }
        members(&known)
    }
}

/// Reads the members of a configuration that `T` has.
///
/// # Errors
/// Code 7, naming the first member that is missing or wrong.
pub(crate) fn members<T: DeserializeOwned>(configuration: &Value) -> Result<T, CniError> {
    serde_path_to_error::deserialize(configuration).map_err(|error| {
        let at = error.path().to_string();
        let at = if at == "." { String::new() } else { format!("`{at}`: ") };
        CniError::new(INVALID_CONFIGURATION, at + &shown(error.inner().to_string()))
    })
}

/// Refuses an unknown member of `ipam` whose name is close to a known one. Ignoring it would apply the default.
fn refuse_misspelt(ipam: Option<&Value>) -> Result<(), CniError> {
    let bare = |name: &str| name.replace(['_', '-'], "").to_ascii_lowercase();
    let names = ipam.and_then(Value::as_object).into_iter().flat_map(Map::keys);
    for name in names.filter(|name| !IPAM_MEMBERS.contains(&name.as_str())) {
        let distance = |known: &&str| strsim::damerau_levenshtein(&bare(name), &bare(known));
        let nearest = IPAM_MEMBERS.into_iter().min_by_key(distance);
        if let Some(meant) = nearest.filter(|known| distance(known) <= WRONG_LETTERS_MAX) {
            let msg = format!("`ipam.{name}` is no member of this plugin; did you mean `{meant}`?");
            return Err(CniError::new(INVALID_CONFIGURATION, msg));
        }
    }
    Ok(())
}

fn socket_default() -> PathBuf {
    "/run/trueup/cni.sock".into()
}

fn spool_dir_default() -> Option<PathBuf> {
    Some("/var/lib/trueup/cni-spool".into())
}

fn spool_dir<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    Option::deserialize(from)?.map(absolute).transpose()
}

/// A runtime calls plugins in any folder, so a relative path would name a different file each time.
fn absolute<E: serde::de::Error>(path: PathBuf) -> Result<PathBuf, E> {
    match path.is_absolute() {
        true => Ok(path),
        false => Err(E::custom(format!("{path:?} is not an absolute path"))),
    }
}

/// Long enough for a restarting host to answer from its backlog, shorter than any runtime's patience.
fn timeout_ms_default() -> u64 {
    10_000
}

/// An IPv4 address alone, for main plugins that do the routing themselves.
fn prefix_length_default() -> u8 {
    32
}

/// A text of at least one character.
pub(crate) fn filled<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    not_empty(String::deserialize(from)?)
}

fn filled_if_given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Option::deserialize(from)?.map(not_empty).transpose()
}

fn not_empty<E: serde::de::Error>(text: String) -> Result<String, E> {
    if text.is_empty() {
        return Err(E::custom("must not be empty"));
    }
    Ok(text)
}

/// The host's socket: the kernel takes no longer path, and no zero byte in it.
fn socket<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    let path: PathBuf = absolute(Deserialize::deserialize(from)?)?;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() > SOCKET_BYTES_MAX || bytes.contains(&0) {
        return Err(D::Error::custom(format!(
            "must be a path of at most {SOCKET_BYTES_MAX} bytes, without a zero byte"
        )));
    }
    Ok(path)
}

/// Null counts as missing.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

fn prefix_length<'de, D: Deserializer<'de>>(from: D) -> Result<u8, D::Error> {
    let length = Option::deserialize(from)?.unwrap_or_else(prefix_length_default);
    up_to(32, length)
}

fn timeout_ms<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    up_to(
        TIMEOUT_MS_MAX,
        Option::deserialize(from)?.unwrap_or_else(timeout_ms_default),
    )
}

fn up_to<T: PartialOrd + Display + From<u8>, E: serde::de::Error>(most: T, number: T) -> Result<T, E> {
    match number >= T::from(1) && number <= most {
        true => Ok(number),
        false => Err(E::custom(format!("{number} is not a whole number from 1 to {most}"))),
    }
}

/// A network as written, such as `0.0.0.0/0`.
fn network<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    let wrong = || D::Error::custom(format!("{text:?} is not a network such as 0.0.0.0/0"));
    let (address, length) = text.split_once('/').ok_or_else(wrong)?;
    let most = match address.parse().map_err(|_| wrong())? {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    };
    let is_number = length.bytes().all(|byte| byte.is_ascii_digit());
    let fits = is_number && length.parse::<u8>().is_ok_and(|length| length <= most);
    if fits { Ok(text) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn settings(configuration: &Value, version: Version) -> Result<Settings, CniError> {
        Settings::read(configuration, version)
    }

    fn with_ipam(member: &str, value: Value) -> Value {
        let mut configuration = json!({"name": "net", "ipam": {"type": "trueup-cni"}});
        configuration["ipam"][member] = value;
        configuration
    }

    #[test]
    fn a_configuration_of_what_is_needed_gets_the_defaults() {
        let read = settings(&with_ipam("other", json!(1)), Version::V1_0_0).unwrap();
        assert_eq!((read.network.as_str(), read.dns), ("net", Map::new()));
        let ipam = read.plugin;
        assert_eq!(ipam.socket, Path::new("/run/trueup/cni.sock"));
        assert_eq!(ipam.spool_dir, spool_dir_default());
        assert_eq!((ipam.instance, ipam.timeout_ms), (None, 10_000));
        assert_eq!((ipam.gc_migrated, ipam.prefix_length, ipam.gateway), (false, 32, None));
        assert_eq!(ipam.routes, []);
    }

    #[test]
    fn every_member_is_read() {
        let configuration = json!({
            "name": "net", "dns": {"nameservers": ["10.0.0.53"]},
            "ipam": {
                "type": "trueup-cni", "socket": "/s", "instance": "pods", "prefixLength": 24, "gateway": "10.0.0.1",
                "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1", "mtu": 1400, "color": 1}],
                "timeoutMs": 1, "spoolDir": null, "gcMigrated": true
            }
        });
        let Settings { plugin: ipam, dns, .. } = settings(&configuration, Version::V1_1_0).unwrap();
        assert_eq!(json!(dns), json!({"nameservers": ["10.0.0.53"]}));
        assert_eq!(ipam.socket, Path::new("/s"));
        assert_eq!(ipam.instance.as_deref(), Some("pods"));
        assert_eq!((ipam.timeout_ms, ipam.spool_dir, ipam.gc_migrated), (1, None, true));
        assert_eq!(ipam.prefix_length, 24);
        assert_eq!(ipam.gateway, Some(Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(
            json!(ipam.routes),
            json!([{"dst": "0.0.0.0/0", "gw": "10.0.0.1", "mtu": 1400}])
        );
    }

    #[test]
    fn the_later_members_of_routes_are_passed_through_from_1_1_0_on() {
        let full =
            json!([{"dst": "::/0", "mtu": 1, "advmss": 2, "priority": 0, "table": 4_294_967_295_u32, "scope": 255}]);
        let configuration = with_ipam("routes", full.clone());
        let newest = settings(&configuration, Version::V1_1_0).unwrap();
        assert_eq!(json!(newest.plugin.routes), full);
        for older in [Version::V0_4_0, Version::V1_0_0] {
            let read = settings(&configuration, older).unwrap();
            assert_eq!(json!(read.plugin.routes), json!([{"dst": "::/0"}]));
        }
        let wrong = with_ipam("routes", json!([{"dst": "::/0", "mtu": "1"}]));
        assert!(settings(&wrong, Version::V1_0_0).is_ok(), "they are unknown there");
        assert!(settings(&wrong, Version::V1_1_0).is_err());
    }

    #[test]
    fn null_is_the_same_as_missing_where_missing_means_none() {
        for member in ["instance", "gateway", "routes"] {
            let read = settings(&with_ipam(member, Value::Null), Version::V1_0_0);
            let without = settings(&with_ipam("other", Value::Null), Version::V1_0_0);
            assert_eq!(read, without, "{member}");
        }
        let no_spool = settings(&with_ipam("spoolDir", Value::Null), Version::V1_0_0);
        assert_eq!(no_spool.unwrap().plugin.spool_dir, None);
    }

    #[test]
    fn a_wrong_member_is_named_with_what_it_was_and_may_be() {
        let check = |configuration: Value, expected: &str| {
            let error = settings(&configuration, Version::V1_1_0).unwrap_err();
            assert_eq!(error.code, 7, "{configuration}");
            assert!(error.msg.starts_with(expected), "{expected}: {}", error.msg);
        };
        check(json!({}), "missing field `name`");
        check(json!({"name": "net"}), "missing field `ipam`");
        check(
            json!({"name": "net", "ipam": "x"}),
            "`ipam`: invalid type: string \"x\"",
        );
        check(json!({"name": "net", "ipam": {}}), "`ipam`: missing field `type`");
        check(
            json!({"name": "net", "dns": [], "ipam": {"type": "t"}}),
            "`dns`: invalid type: sequence",
        );
        for (member, value, rule) in [
            ("type", json!(5), "invalid type: integer `5`"),
            ("socket", json!("run/s"), "\"run/s\" is not an absolute path"),
            ("socket", json!(null), "invalid type: null"),
            ("spoolDir", json!(""), "\"\" is not an absolute path"),
            ("instance", json!(1), "invalid type: integer `1`"),
            ("prefixLength", json!(0), "0 is not a whole number from 1 to 32"),
            ("prefixLength", json!(33), "33 is not a whole number from 1 to 32"),
            ("prefixLength", json!(24.0), "invalid type: floating point `24.0`"),
            ("prefixLength", json!("24"), "invalid type: string \"24\""),
            ("timeoutMs", json!(-1), "invalid value: integer `-1`"),
            ("gateway", json!("::1"), "invalid IPv4 address syntax"),
            ("gateway", json!("10.0.0.01"), "invalid IPv4 address syntax"),
            ("gcMigrated", json!("yes"), "invalid type: string \"yes\""),
            ("routes", json!({}), "invalid type: map"),
        ] {
            check(with_ipam(member, value), &format!("`ipam.{member}`: {rule}"));
        }
        for (routes, expected) in [
            (json!([1]), "[0]`: invalid type: integer `1`"),
            (json!([{"dst": "::/0"}, {}]), "[1]`: missing field `dst`"),
            (
                json!([{"dst": "10.0.0.0"}]),
                "[0].dst`: \"10.0.0.0\" is not a network such as 0.0.0.0/0",
            ),
            (json!([{"dst": "::/0", "gw": 1}]), "[0].gw`: "),
            (
                json!([{"dst": "::/0", "scope": 256}]),
                "[0].scope`: invalid value: integer `256`",
            ),
        ] {
            check(with_ipam("routes", routes), &format!("`ipam.routes{expected}"));
        }
    }

    #[test]
    fn a_network_is_an_address_and_a_length_that_fits() {
        let is_network = |text: &str| network(&json!(text)).is_ok();
        for good in ["0.0.0.0/0", "10.1.2.3/8", "10.0.0.0/32", "::/0", "fd00::/128"] {
            assert!(is_network(good), "{good}");
        }
        for wrong in [
            "",
            "/",
            "10.0.0.0",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0/8",
            "::/129",
            "a/8",
        ] {
            assert!(!is_network(wrong), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_json_object_can_not_be_decoded() {
        for wrong in [
            &b"{"[..],
            b"[]",
            b"null",
            b"{} {}",
            b"{\"a\":\"\xff\"}",
            "[".repeat(5000).as_bytes(),
        ] {
            let Input::Unusable(error) = Input::parse(wrong) else {
                panic!("{wrong:?}")
            };
            assert_eq!(error.code, 6);
        }
        let Input::Nothing(error) = Input::parse(b" \n") else {
            panic!("there was nothing")
        };
        assert_eq!(error.code, 6);
        assert_eq!(Input::parse(b"{}"), Input::Object(json!({})));
    }

    #[test]
    fn a_configuration_of_a_mebibyte_is_read_and_one_byte_more_is_not() {
        let mut bytes = b"{}".to_vec();
        bytes.resize(CONFIGURATION_BYTES_MAX, b' ');
        assert_eq!(Input::parse(&bytes), Input::Object(json!({})));
        bytes.push(b' ');
        let Input::Unusable(error) = Input::parse(&bytes) else {
            panic!("it is too long")
        };
        assert_eq!(error.code, 6);
        assert!(error.msg.ends_with("is longer than 1048576 bytes"), "{error:?}");
    }

    #[test]
    fn null_counts_as_missing_and_a_timeout_has_a_range() {
        for member in [
            "timeoutMs",
            "prefixLength",
            "gcMigrated",
            "instance",
            "gateway",
            "routes",
        ] {
            let read = settings(&with_ipam(member, json!(null)), Version::V1_1_0).unwrap();
            let missing = settings(&with_ipam("other", json!(null)), Version::V1_1_0).unwrap();
            assert_eq!(read, missing, "{member}");
        }
        for wrong in [json!(0), json!(86_400_001), json!(-1), json!("1 s")] {
            let error = settings(&with_ipam("timeoutMs", wrong.clone()), Version::V1_1_0).unwrap_err();
            assert!(
                error.code == 7 && error.msg.starts_with("`ipam.timeoutMs`: "),
                "{wrong}: {error:?}"
            );
        }
    }

    #[test]
    fn a_misspelt_member_is_refused_with_the_one_that_is_meant() {
        for (member, meant) in [
            ("spool_dir", "spoolDir"),
            ("SpoolDir", "spoolDir"),
            ("spooldir", "spoolDir"),
            ("timeout_ms", "timeoutMs"),
            ("sokcet", "socket"),
            ("instances", "instance"),
            ("route", "routes"),
            ("gc-migrated", "gcMigrated"),
        ] {
            let error = settings(&with_ipam(member, json!("x")), Version::V1_1_0).unwrap_err();
            let expected = format!("`ipam.{member}` is no member of this plugin; did you mean `{meant}`?");
            assert_eq!((error.code, error.msg), (7, expected));
        }
        for other in ["subnet", "ranges", "dataDir", "dns", "mtu", "other", "cni.dev/x"] {
            assert!(
                settings(&with_ipam(other, json!([])), Version::V1_1_0).is_ok(),
                "{other}"
            );
        }
    }
}
