//! The `CNI_*` variables: which command, for which container and interface. The command is the question to the host;
//! `plan` adds to it what the configuration says.
//!
//! Pure but for `Variables::of_process`.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::error::{CniError, INVALID_ENVIRONMENT};

/// Linux: `IFNAMSIZ` is 16 with the closing NUL.
const IF_NAME_BYTES_MAX: usize = 15;

/// The variables of the call, by name. `CNI_PATH` is not read: this plugin calls no other. `CNI_NETNS` is required for
/// ADD and CHECK; its value is not used. `CNI_ARGS` is for the log, and for the pod's name.
#[derive(Clone, Default, Debug)]
pub(crate) struct Variables(pub(crate) BTreeMap<&'static str, OsString>);

impl Variables {
    /// Those of this process.
    pub(crate) fn of_process() -> Self {
        let names = ["CNI_COMMAND", "CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS", "CNI_ARGS"];
        let set = names.map(|name| Some((name, env::var_os(name)?)));
        Self(set.into_iter().flatten().collect())
    }

    /// The value of a variable; empty if it is not set.
    pub(crate) fn get(&self, name: &str) -> &OsStr {
        self.0.get(name).map(OsString::as_os_str).unwrap_or_default()
    }

    /// `namespace/name` of the pod, as kubelet's runtimes put it into `CNI_ARGS`. `None` if either is missing.
    pub(crate) fn pod(&self) -> Option<String> {
        let args = self.get("CNI_ARGS").to_str()?;
        let of = |name: &str| {
            let pairs = args.split(';').filter_map(|pair| pair.split_once('='));
            let mut values = pairs.filter_map(|(key, value)| (key == name).then_some(value));
            values.next().filter(|value| !value.is_empty())
        };
        Some(format!("{}/{}", of("K8S_POD_NAMESPACE")?, of("K8S_POD_NAME")?))
    }
}

/// A container's interface. With the network's name, it is the key of an allocation. Both are valid CNI texts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Attachment {
    /// `CNI_CONTAINERID`.
    #[serde(rename = "containerID")]
    pub(crate) container_id: String,
    /// `CNI_IFNAME`.
    #[serde(rename = "ifName")]
    pub(crate) if_name: String,
}

/// The question to the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// Give the attachment an address.
    Add(Attachment),
    /// Free the attachment's address.
    Del(Attachment),
    /// Which address the attachment has; it must be among these, which the configuration says.
    Check(Attachment, Vec<Ipv4Addr>),
    /// Whether ADD could be served.
    Status,
    /// Free the whole network except for these, which the configuration says.
    Gc(Vec<Attachment>),
}

impl What {
    /// The command's name.
    pub(crate) fn command(&self) -> &'static str {
        match self {
            Self::Add(_) => "ADD",
            Self::Del(_) => "DEL",
            Self::Check(..) => "CHECK",
            Self::Status => "STATUS",
            Self::Gc(_) => "GC",
        }
    }

    /// Parses the variables, the command first. `None` for VERSION, which asks nothing.
    ///
    /// # Errors
    /// Code 4 for an unknown command, and for a required variable that is missing or wrong.
    pub(crate) fn parse(variables: &Variables) -> Result<Option<Self>, CniError> {
        Ok(Some(match text("CNI_COMMAND", variables)? {
            "ADD" => Self::Add(with_netns(variables)?),
            "DEL" => Self::Del(attachment(variables)?),
            "CHECK" => Self::Check(with_netns(variables)?, Vec::new()),
            "STATUS" => Self::Status,
            "GC" => Self::Gc(Vec::new()),
            "VERSION" => return Ok(None),
            other => {
                let msg =
                    format!("`CNI_COMMAND`: unknown command {other:?}; known: ADD, CHECK, DEL, GC, STATUS, VERSION");
                return Err(CniError::new(INVALID_ENVIRONMENT, msg));
            }
        }))
    }
}

fn with_netns(variables: &Variables) -> Result<Attachment, CniError> {
    let attachment = attachment(variables)?;
    // A path of any bytes: the plugin never opens it, so it need not be text.
    if variables.get("CNI_NETNS").is_empty() {
        return Err(missing("CNI_NETNS"));
    }
    Ok(attachment)
}

fn attachment(variables: &Variables) -> Result<Attachment, CniError> {
    Ok(Attachment {
        container_id: container_id(text("CNI_CONTAINERID", variables)?)?,
        if_name: if_name(text("CNI_IFNAME", variables)?)?,
    })
}

fn text<'a>(name: &str, variables: &'a Variables) -> Result<&'a str, CniError> {
    let value = variables.get(name);
    match value.is_empty() {
        true => Err(missing(name)),
        false => value.to_str().ok_or_else(|| wrong(name, value, "is not UTF-8")),
    }
}

fn container_id(id: &str) -> Result<String, CniError> {
    let first = id.starts_with(|first: char| first.is_ascii_alphanumeric());
    let rest = |next: char| next.is_ascii_alphanumeric() || matches!(next, '_' | '.' | '-');
    if !first || !id.chars().all(rest) {
        let rule = "is not a letter or digit, then letters, digits, `_`, `.`, `-`";
        return Err(wrong("CNI_CONTAINERID", OsStr::new(id), rule));
    }
    Ok(id.to_owned())
}

fn if_name(name: &str) -> Result<String, CniError> {
    let refused = |one: char| matches!(one, '/' | ':') || one.is_whitespace();
    if name.len() > IF_NAME_BYTES_MAX || matches!(name, "." | "..") || name.contains(refused) {
        let rule = "is not 1 to 15 bytes without `/`, `:` and white space, and not `.` or `..`";
        return Err(wrong("CNI_IFNAME", OsStr::new(name), rule));
    }
    Ok(name.to_owned())
}

fn missing(name: &str) -> CniError {
    CniError::new(INVALID_ENVIRONMENT, format!("`{name}` is not set"))
}

fn wrong(name: &str, value: &OsStr, rule: &str) -> CniError {
    CniError::new(INVALID_ENVIRONMENT, format!("`{name}`: {value:?} {rule}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn variables(command: &str, container_id: &str, if_name: &str, netns: &str) -> Variables {
        let all = [
            ("CNI_COMMAND", command),
            ("CNI_CONTAINERID", container_id),
            ("CNI_IFNAME", if_name),
            ("CNI_NETNS", netns),
        ];
        let set = all.into_iter().filter(|(_, value)| *value != "unset");
        Variables(set.map(|(name, value)| (name, value.into())).collect())
    }

    /// The message of a refused environment.
    fn refused(variables: &Variables) -> String {
        let error = What::parse(variables).unwrap_err();
        assert_eq!(error.code, 4, "{error:?}");
        error.msg
    }

    #[test]
    fn the_pod_is_named_where_the_arguments_name_both_parts() {
        let pod = |args: &str| Variables([("CNI_ARGS", args.into())].into()).pod();
        let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_UID=7";
        assert_eq!(pod(args).as_deref(), Some("default/web-0"));
        for none in ["", ";", "K8S_POD_NAME=web-0", "K8S_POD_NAMESPACE=;K8S_POD_NAME=web-0"] {
            assert_eq!(pod(none), None, "{none}");
        }
    }

    #[test]
    fn each_command_needs_what_the_specification_says_and_no_more() {
        let attachment = || Attachment {
            container_id: "c1".to_owned(),
            if_name: "eth0".to_owned(),
        };
        for (command, netns, expected) in [
            ("ADD", "/proc/1/ns/net", What::Add(attachment())),
            ("CHECK", "/proc/1/ns/net", What::Check(attachment(), Vec::new())),
            ("DEL", "unset", What::Del(attachment())),
            ("DEL", "", What::Del(attachment())),
        ] {
            let parsed = What::parse(&variables(command, "c1", "eth0", netns));
            assert_eq!(parsed, Ok(Some(expected)), "{command}");
            for (id, name, missing) in [
                ("unset", "unset", "`CNI_CONTAINERID`"),
                ("", "eth0", "`CNI_CONTAINERID`"),
                ("c1", "unset", "`CNI_IFNAME`"),
                ("c1", "", "`CNI_IFNAME`"),
            ] {
                let said = refused(&variables(command, id, name, netns));
                assert_eq!(said, format!("{missing} is not set"));
            }
        }
        for command in ["ADD", "CHECK"] {
            for netns in ["unset", ""] {
                let said = refused(&variables(command, "c1", "eth0", netns));
                assert_eq!(said, "`CNI_NETNS` is not set");
            }
        }
        for (command, expected) in [
            ("STATUS", Some(What::Status)),
            ("GC", Some(What::Gc(Vec::new()))),
            ("VERSION", None),
        ] {
            let parsed = What::parse(&variables(command, "/", "a b", "unset"));
            assert_eq!(parsed, Ok(expected), "{command}");
        }
    }

    #[test]
    fn an_unknown_command_is_refused_before_anything_else() {
        for command in ["unset", "", "add", "ADD ", "UPDATE"] {
            let said = refused(&variables(command, "/", "/", "unset"));
            assert!(said.starts_with("`CNI_COMMAND`"), "{said}");
        }
    }

    #[test]
    fn container_ids_and_interface_names_are_held_to_their_spelling() {
        let good = [
            ("0", "e"),
            ("a_b.c-D9", "eth0:".trim_end_matches(':')),
            (&"a".repeat(300), "fifteen-bytes--"),
            ("c", "..."),
        ];
        for (id, name) in good {
            assert!(What::parse(&variables("DEL", id, name, "")).is_ok(), "{id} {name}");
        }
        for id in ["-a", ".a", "_a", "a b", "a/b", "ä", "aä", "a\n"] {
            let said = refused(&variables("DEL", id, "eth0", ""));
            assert!(said.starts_with("`CNI_CONTAINERID`: "), "{said}");
        }
        for name in [
            ".",
            "..",
            "a/b",
            "a:b",
            "a b",
            "a\tb",
            "a\u{a0}b",
            "sixteen-bytes---",
            "ääääääää",
        ] {
            let said = refused(&variables("DEL", "c1", name, ""));
            assert!(said.starts_with("`CNI_IFNAME`: "), "{said}");
        }
    }

    #[test]
    fn a_variable_that_is_not_utf_8_is_refused_where_it_is_needed_as_text() {
        let with_bytes = |names: &[&'static str]| {
            let mut all = variables("ADD", "c1", "eth0", "/ns");
            let bytes = || OsString::from_vec(vec![b'c', 0xff]);
            all.0.extend(names.iter().map(|name| (*name, bytes())));
            all
        };
        for name in ["CNI_COMMAND", "CNI_CONTAINERID", "CNI_IFNAME"] {
            assert_eq!(
                refused(&with_bytes(&[name])),
                format!("`{name}`: \"c\\xFF\" is not UTF-8")
            );
        }
        let unused = with_bytes(&["CNI_NETNS", "CNI_ARGS"]);
        assert!(What::parse(&unused).is_ok());
    }
}
