//! The names of the pods' interfaces: a pattern, or a file that lists each.
//!
//! A name is used in full or not at all: a truncated name is no interface, or that of another pod.

use std::collections::BTreeMap;
use std::path::Path;

use serde_saphyr::{DefaultMessageFormatter, MessageFormatter, Spanned};
use trueup_base::text;
use trueup_config::interfaces::mistake;
use trueup_work::objects::Id;

pub use trueup_config::interfaces::Pattern;

use super::index::Pod;

/// The names of the interfaces of this node's pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Interfaces {
    /// The interfaces are unknown.
    #[default]
    None,
    /// One pattern for all.
    Pattern(Pattern),
    /// The listed names. A pod that is not listed has no known interface.
    File(BTreeMap<Id, String>),
}

impl Interfaces {
    /// The interface of a pod. `None` if it has none of its own, or it is unknown.
    ///
    /// # Errors
    /// One line: why the pattern yields no valid name.
    pub(super) fn of(&self, id: &Id, pod: &Pod) -> Result<Option<String>, String> {
        if pod.is_on_host_network {
            return Ok(None);
        }
        match self {
            Self::None => Ok(None),
            Self::Pattern(pattern) => {
                let refused = |cause: &str| Err(format!("pod `{id}`: no interface is known: by `{pattern}` {cause}"));
                let Some(name) = pattern.filled(&id.namespace, &id.name, &pod.uid) else {
                    return refused("it takes its uid, and it has none");
                };
                match mistake(&name) {
                    None => Ok(Some(name)),
                    Some(cause) => refused(&format!("it would be `{}`, which {cause}", name.escape_debug())),
                }
            }
            Self::File(names) => Ok(names.get(id).cloned()),
        }
    }
}

/// Reads the text of an interface file: YAML, `namespace/name: interface` for each pod. An empty file lists none.
///
/// # Errors
/// `FILE:LINE: reason`, for the first invalid line.
pub fn read_interfaces(text: &str, file: &Path) -> Result<BTreeMap<Id, String>, String> {
    let refused = |line: u64, reason: &str| format!("{}:{line}: {}", file.display(), text::line(reason));
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    let entries: Option<BTreeMap<String, Spanned<String>>> = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| {
            let line = error.location().map_or(1, |location| location.line().max(1));
            let message = DefaultMessageFormatter.format_message(error.without_snippet());
            refused(line, &format!("must be lines such as `shop/web-0: tap1`: {message}"))
        })?;
    let mut entries: Vec<_> = entries.into_iter().flatten().collect();
    entries.sort_by_key(|(_, interface)| interface.referenced.line());
    let mut interfaces = BTreeMap::new();
    for (pod, interface) in entries {
        let line = interface.referenced.line();
        let id = pod.parse::<Id>();
        let id = id.map_err(|cause| refused(line, &format!("the pod {cause}")))?;
        if let Some(cause) = mistake(&interface.value) {
            let name = interface.value.escape_debug();
            return Err(refused(line, &format!("pod `{id}`: the interface `{name}` {cause}")));
        }
        interfaces.insert(id, interface.value);
    }
    Ok(interfaces)
}
