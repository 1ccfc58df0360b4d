//! The network configuration on stdin: the raw input, and the members that every command needs.
//!
//! Pure but for `read`.

use std::io::{self, IsTerminal, Read};
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::{CniError, DECODING, INVALID_CONFIGURATION, IO};
use crate::members::{Members, each};
use crate::version::Version;

/// The configuration with `prevResult` and a GC's list of attachments: a hundred bytes for each of 10,000 pods.
const CONFIGURATION_BYTES_MAX: usize = 1 << 20;
/// The host's socket unless `ipam.socket` sets another.
const SOCKET_DEFAULT: &str = "/run/trueup/cni.sock";
/// Where to keep releases while the host is down, unless `ipam.spoolDir` sets another folder.
const SPOOL_DIR_DEFAULT: &str = "/var/lib/trueup/cni-spool";
/// Linux: `sun_path` holds 108 bytes with the closing NUL.
const SOCKET_BYTES_MAX: usize = 107;
/// An IPv4 address alone, for main plugins that do the routing themselves.
const PREFIX_LENGTH_DEFAULT: u8 = 32;
/// Long enough for a restarting host to answer from its backlog, shorter than any runtime's patience.
const TIMEOUT_MS_DEFAULT: u64 = 10_000;
/// One day. A longer timeout is a mistake, and any clock can add this much.
const TIMEOUT_MS_MAX: u64 = 86_400_000;
/// Linux: `RT_SCOPE_NOWHERE`, the greatest scope of a route.
const SCOPE_MAX: u64 = 255;

/// What stdin held.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Input {
    /// A JSON object.
    Object(Map<String, Value>),
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
            Ok(Value::Object(object)) => Self::Object(object),
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
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Settings {
    /// `name`: the network's.
    pub(crate) network: String,
    /// `ipam.socket`: the host's.
    pub(crate) socket: PathBuf,
    /// `ipam.instance`: which guest. `None` means the host's only one.
    pub(crate) instance: Option<String>,
    /// `ipam.timeoutMs`: for connecting, asking and reading the answer together.
    pub(crate) timeout: Duration,
    /// `ipam.spoolDir`. `None` keeps no releases.
    pub(crate) spool_dir: Option<PathBuf>,
    /// `ipam.gcMigrated`: GC frees migrated keys too.
    pub(crate) gc_migrated: bool,
    /// What ADD prints beside the address.
    pub(crate) result: ResultSettings,
}

/// What the configuration adds to an address.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ResultSettings {
    /// `ipam.prefixLength`, 1 to 32.
    pub(crate) prefix_length: u8,
    /// `ipam.gateway`.
    pub(crate) gateway: Option<Ipv4Addr>,
    /// `ipam.routes`.
    pub(crate) routes: Vec<Route>,
    /// `dns` of the network, an object.
    pub(crate) dns: Value,
}

/// A route as the plugin passes it on: texts as written, without absent members.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Route {
    dst: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    gw: Option<String>,
    // Since 1.1.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    advmss: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<u64>,
}

impl Settings {
    /// Reads the whole configuration, whose version is already known.
    ///
    /// # Errors
    /// Code 7, naming the first member that is missing or wrong.
    pub(crate) fn read(configuration: &Map<String, Value>, version: Version) -> Result<Self, CniError> {
        let network = Members::new(configuration, "");
        let name = network.text("name")?;
        let ipam = Members::new(network.object("ipam")?, "ipam.");
        ipam.text("type")?;
        Ok(Self {
            network: name.to_owned(),
            socket: socket(ipam)?,
            instance: ipam
                .given("instance")
                .map(|_| ipam.text("instance"))
                .transpose()?
                .map(str::to_owned),
            timeout: Duration::from_millis(
                ipam.number("timeoutMs", 1, TIMEOUT_MS_MAX)?
                    .unwrap_or(TIMEOUT_MS_DEFAULT),
            ),
            spool_dir: spool_dir(ipam)?,
            gc_migrated: ipam.flag("gcMigrated")?,
            result: ResultSettings {
                prefix_length: prefix_length(ipam)?,
                gateway: ipam.ipv4("gateway")?,
                routes: routes(ipam, version)?,
                dns: dns(network)?,
            },
        })
    }
}

fn socket(ipam: Members<'_>) -> Result<PathBuf, CniError> {
    let socket = ipam
        .path("socket")?
        .unwrap_or_else(|| Path::new(SOCKET_DEFAULT).to_owned());
    if socket.as_os_str().as_bytes().len() > SOCKET_BYTES_MAX {
        let msg = format!("`ipam.socket` is longer than {SOCKET_BYTES_MAX} bytes, which no unix socket's path may be");
        return Err(CniError::new(INVALID_CONFIGURATION, msg));
    }
    Ok(socket)
}

/// The only member where null and missing differ: null switches the spool off.
fn spool_dir(ipam: Members<'_>) -> Result<Option<PathBuf>, CniError> {
    if ipam.get("spoolDir").is_some_and(Value::is_null) {
        return Ok(None);
    }
    let given = ipam.path("spoolDir")?;
    Ok(Some(given.unwrap_or_else(|| Path::new(SPOOL_DIR_DEFAULT).to_owned())))
}

fn prefix_length(ipam: Members<'_>) -> Result<u8, CniError> {
    let given = ipam.number("prefixLength", 1, 32)?;
    Ok(given
        .and_then(|length| u8::try_from(length).ok())
        .unwrap_or(PREFIX_LENGTH_DEFAULT))
}

fn routes(ipam: Members<'_>, version: Version) -> Result<Vec<Route>, CniError> {
    each(ipam.list("routes")?, "ipam.routes", |members| route(members, version))
}

fn route(members: Members<'_>, version: Version) -> Result<Route, CniError> {
    let word = u64::from(u32::MAX);
    // Before 1.1.0 these members are unknown: ignore them, whatever they hold.
    let newer = |name, most| match version {
        Version::V1_1_0 => members.number(name, 0, most),
        Version::V0_4_0 | Version::V1_0_0 => Ok(None),
    };
    Ok(Route {
        dst: members.cidr_text("dst")?,
        gw: members.ip_text("gw")?,
        mtu: newer("mtu", word)?,
        advmss: newer("advmss", word)?,
        priority: newer("priority", word)?,
        table: newer("table", word)?,
        scope: newer("scope", SCOPE_MAX)?,
    })
}

fn dns(network: Members<'_>) -> Result<Value, CniError> {
    match network.given("dns") {
        Some(dns @ Value::Object(_)) => Ok(dns.clone()),
        Some(other) => Err(network.wrong("dns", other, "an object")),
        None => Ok(Value::Object(Map::new())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(configuration: Value, version: Version) -> Result<Settings, CniError> {
        Settings::read(configuration.as_object().unwrap(), version)
    }

    fn with_ipam(member: &str, value: Value) -> Value {
        let mut configuration = json!({"name": "net", "ipam": {"type": "trueup-cni"}});
        configuration["ipam"][member] = value;
        configuration
    }

    #[test]
    fn a_configuration_of_what_is_needed_gets_the_defaults() {
        let read = settings(
            json!({"name": "net", "ipam": {"type": "trueup-cni", "other": 1}}),
            Version::V1_0_0,
        );
        assert_eq!(
            read,
            Ok(Settings {
                network: "net".to_owned(),
                socket: "/run/trueup/cni.sock".into(),
                instance: None,
                timeout: Duration::from_secs(10),
                spool_dir: Some("/var/lib/trueup/cni-spool".into()),
                gc_migrated: false,
                result: ResultSettings {
                    prefix_length: 32,
                    gateway: None,
                    routes: Vec::new(),
                    dns: json!({}),
                },
            })
        );
    }

    #[test]
    fn every_member_is_read() {
        let read = settings(
            json!({
                "name": "net", "dns": {"nameservers": ["10.0.0.53"]},
                "ipam": {
                    "type": "trueup-cni", "socket": "/s", "instance": "pods", "prefixLength": 24, "gateway": "10.0.0.1",
                    "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1", "mtu": 1400, "color": 1}],
                    "timeoutMs": 1, "spoolDir": null, "gcMigrated": true
                }
            }),
            Version::V1_1_0,
        )
        .unwrap();
        assert_eq!(read.socket, Path::new("/s"));
        assert_eq!(read.instance.as_deref(), Some("pods"));
        assert_eq!(
            (read.timeout.as_millis(), read.spool_dir, read.gc_migrated),
            (1, None, true)
        );
        assert_eq!(read.result.prefix_length, 24);
        assert_eq!(read.result.gateway, Some(Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(read.result.dns, json!({"nameservers": ["10.0.0.53"]}));
        assert_eq!(
            json!(read.result.routes),
            json!([{"dst": "0.0.0.0/0", "gw": "10.0.0.1", "mtu": 1400}])
        );
    }

    #[test]
    fn the_later_members_of_routes_are_passed_through_from_1_1_0_on() {
        let full =
            json!([{"dst": "::/0", "mtu": 1, "advmss": 2, "priority": 0, "table": 4_294_967_295_u32, "scope": 255}]);
        let configuration = with_ipam("routes", full.clone());
        let newest = settings(configuration.clone(), Version::V1_1_0).unwrap();
        assert_eq!(json!(newest.result.routes), full);
        for older in [Version::V0_4_0, Version::V1_0_0] {
            let read = settings(configuration.clone(), older).unwrap();
            assert_eq!(json!(read.result.routes), json!([{"dst": "::/0"}]));
        }
        let wrong = with_ipam("routes", json!([{"dst": "::/0", "mtu": "1"}]));
        assert!(
            settings(wrong.clone(), Version::V1_0_0).is_ok(),
            "the attachments are not named"
        );
        assert!(settings(wrong, Version::V1_1_0).is_err());
    }

    #[test]
    fn null_is_the_same_as_missing_where_missing_means_none() {
        for member in ["instance", "gateway", "routes"] {
            let read = settings(with_ipam(member, Value::Null), Version::V1_0_0);
            assert_eq!(
                read,
                settings(with_ipam("other", Value::Null), Version::V1_0_0),
                "{member}"
            );
        }
        assert_eq!(
            settings(with_ipam("spoolDir", Value::Null), Version::V1_0_0)
                .unwrap()
                .spool_dir,
            None
        );
    }

    #[test]
    fn a_wrong_member_is_named_with_what_it_was_and_may_be() {
        let check = |configuration: Value, expected: &str| {
            let error = settings(configuration, Version::V1_1_0).unwrap_err();
            assert_eq!((error.code, error.msg.as_str()), (7, expected));
        };
        check(json!({}), "`name` is missing");
        check(json!({"name": "net"}), "`ipam` is missing");
        check(json!({"name": "net", "ipam": "x"}), "`ipam`: \"x\" is not an object");
        check(json!({"name": "net", "ipam": {}}), "`ipam.type` is missing");
        check(
            json!({"name": "", "ipam": {"type": "t"}}),
            "`name`: \"\" is not a text of at least one character",
        );
        check(
            json!({"name": "net", "dns": [], "ipam": {"type": "t"}}),
            "`dns`: [] is not an object",
        );
        let (prefix, timeout) = ("a whole number from 1 to 32", "a whole number from 1 to 86400000");
        for (member, value, rule) in [
            ("type", json!(5), "a text of at least one character"),
            ("socket", json!("run/s"), "an absolute path"),
            ("socket", json!(null), "an absolute path"),
            ("spoolDir", json!(""), "an absolute path"),
            ("instance", json!(1), "a text of at least one character"),
            ("prefixLength", json!(0), prefix),
            ("prefixLength", json!(33), prefix),
            ("prefixLength", json!(24.0), prefix),
            ("prefixLength", json!("24"), prefix),
            ("timeoutMs", json!(0), timeout),
            ("timeoutMs", json!(-1), timeout),
            ("gateway", json!("::1"), "an IPv4 address"),
            ("gateway", json!("10.0.0.01"), "an IPv4 address"),
            ("gcMigrated", json!("yes"), "`true` or `false`"),
            ("routes", json!({}), "a list"),
        ] {
            let expected = format!("`ipam.{member}`: {value} is not {rule}");
            check(with_ipam(member, value), &expected);
        }
        for (routes, expected) in [
            (json!([1]), "[0]`: 1 is not an object"),
            (json!([{"dst": "::/0"}, {}]), "[1].dst` is missing"),
            (
                json!([{"dst": "10.0.0.0"}]),
                "[0].dst`: \"10.0.0.0\" is not a network such as 0.0.0.0/0",
            ),
            (json!([{"dst": "::/0", "gw": 1}]), "[0].gw`: 1 is not an IP address"),
            (
                json!([{"dst": "::/0", "scope": 256}]),
                "[0].scope`: 256 is not a whole number from 0 to 255",
            ),
        ] {
            check(with_ipam("routes", routes), &format!("`ipam.routes{expected}"));
        }
        check(
            with_ipam("socket", json!("/a\0")),
            "`ipam.socket`: \"/a\\u0000\" is not an absolute path",
        );
        check(
            with_ipam("socket", json!(format!("/{}", "s".repeat(107)))),
            "`ipam.socket` is longer than 107 bytes, which no unix socket's path may be",
        );
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
        assert_eq!(Input::parse(b"{}"), Input::Object(Map::new()));
    }

    #[test]
    fn a_configuration_of_a_mebibyte_is_read_and_one_byte_more_is_not() {
        let mut bytes = b"{}".to_vec();
        bytes.resize(CONFIGURATION_BYTES_MAX, b' ');
        assert_eq!(Input::parse(&bytes), Input::Object(Map::new()));
        bytes.push(b' ');
        let Input::Unusable(error) = Input::parse(&bytes) else {
            panic!("it is too long")
        };
        assert_eq!(error.code, 6);
        assert!(error.msg.ends_with("is longer than 1048576 bytes"), "{error:?}");
    }
}
