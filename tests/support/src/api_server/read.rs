//! Lists of a kind, in pages, at the present or an earlier version.
//!
//! Knows no HTTP. Later pages show the version of the first one, or report that it is forgotten.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use serde_json::{Value, json};

use super::failure::Failure;
use super::kinds::Kind;
use super::select::Selector;
use super::store::{Key, Store};

/// The options of a list, besides the kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// `None` for all.
    pub namespace: Option<String>,
    pub selector: Selector,
    /// The most objects in one answer; 0 means no limit.
    pub limit: usize,
    /// The token at the end of the previous page; empty starts a list.
    pub proceed: String,
    /// Empty means the newest, 0 any.
    pub version: String,
    /// `Exact`, `NotOlderThan` or empty.
    pub version_match: String,
}

/// A page of a list.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub objects: Vec<Arc<Value>>,
    /// The version that the list shows.
    pub version: u64,
    /// The token for the next page; empty after the last.
    pub proceed: String,
    /// How many are left, unless a selector makes that unknown.
    pub remaining: Option<usize>,
}

/// Makes a page.
pub(super) fn list(store: &Store, kind: &Kind, wanted: &Wanted) -> Result<Listed, Failure> {
    let (at, after) = from_where(store, wanted)?;
    let namespace = wanted.namespace.as_deref();
    let Some(all) = store.list_at(kind, namespace, at) else {
        let mut failure = Failure::expired(if wanted.proceed.is_empty() {
            FORGOTTEN
        } else {
            FORGOTTEN_PAGE
        });
        failure.proceed = after.map(|(namespace, name)| token(0, &namespace, &name));
        return Err(failure);
    };
    let is_after = |key: &Key| {
        after
            .as_ref()
            .is_none_or(|(namespace, name)| (&key.namespace, &key.name) > (namespace, name))
    };
    let mut left = all
        .into_iter()
        .filter(|(key, object)| is_after(key) && wanted.selector.has(object))
        .peekable();
    // Like a server with a watch cache, which does not split lists from it into pages.
    let any = wanted.version == "0" && wanted.proceed.is_empty();
    let limit = if wanted.limit == 0 || any {
        usize::MAX
    } else {
        wanted.limit
    };
    let page: Vec<(Key, Arc<Value>)> = left.by_ref().take(limit).collect();
    let more = left.peek().is_some();
    let last = page.last().map(|(key, _)| token(at, &key.namespace, &key.name));
    Ok(Listed {
        objects: page.into_iter().map(|(_, object)| object).collect(),
        version: at,
        proceed: last.filter(|_| more).unwrap_or_default(),
        remaining: (more && wanted.selector.is_empty()).then(|| left.count()),
    })
}

const FORGOTTEN: &str = "The resourceVersion for the provided list is too old.";

const FORGOTTEN_PAGE: &str = "The provided continue parameter is too old to display a consistent list result. You can start a \
    new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
    results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
    deleted between the time the first chunk was returned and now may show up in the list.";

/// The version to show, and the object to start after.
fn from_where(store: &Store, wanted: &Wanted) -> Result<(u64, Option<(String, String)>), Failure> {
    let newest = store.version();
    if !wanted.proceed.is_empty() {
        if !matches!(wanted.version.as_str(), "" | "0") {
            let message = "specifying resource version is not allowed when using continue";
            return Err(Failure::bad_request(message));
        }
        let (version, namespace, name) =
            read_token(&wanted.proceed).ok_or_else(|| Failure::bad_request("continue key is not valid"))?;
        let at = if version == 0 { newest } else { version };
        return Ok((at, Some((namespace, name))));
    }
    let asked = read_version(&wanted.version)?;
    if asked == 0 && !wanted.version_match.is_empty() && (wanted.version.is_empty() || wanted.version_match == "Exact")
    {
        let why = if wanted.version.is_empty() {
            "resourceVersionMatch is forbidden unless resourceVersion is provided"
        } else {
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""
        };
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: {why}");
        return Err(Failure::unprocessable(message));
    }
    if asked > newest {
        return Err(Failure::too_new(asked, newest));
    }
    let exact = wanted.version_match == "Exact" || wanted.version_match.is_empty() && wanted.limit > 0 && asked > 0;
    Ok((if exact { asked } else { newest }, None))
}

/// Parses a resourceVersion; empty and 0 are 0.
pub(super) fn read_version(text: &str) -> Result<u64, Failure> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        let message = format!("Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax");
        Failure::bad_request(format!("resourceVersion: {message}"))
    })
}

fn token(version: u64, namespace: &str, name: &str) -> String {
    BASE64_STANDARD_NO_PAD.encode(json!({ "v": version, "namespace": namespace, "name": name }).to_string())
}

fn read_token(token: &str) -> Option<(u64, String, String)> {
    let token: Value = serde_json::from_slice(&BASE64_STANDARD_NO_PAD.decode(token).ok()?).ok()?;
    let text = |name: &str| token[name].as_str().map(str::to_owned);
    Some((token["v"].as_u64()?, text("namespace")?, text("name")?))
}
