//! Parses the text of a manifest file into Kubernetes objects.
//!
//! Pure: opens no file. Documents are independent, so an unreadable one hides no other. `List`s are expanded, and
//! unsupported kinds are ignored.
//!
//! ```text
//! text -> documents -> (items ->) objects with their lines, and problems with theirs
//! ```
//!
//! JSON is read as YAML. Scalars follow YAML's core schema (`on` and `yes` are text). Types are those of Kubernetes: a
//! number instead of a text is a problem, and so is the reverse. Like an API server with strict field validation, this
//! module rejects an object with an unknown field, and with anything that `rules.rs` rejects.

use std::sync::Arc;

use serde_saphyr::{DefaultMessageFormatter, MessageFormatter, Options};

use super::rules;
use crate::object::{Kind, Object};
use crate::yaml::{FieldError, Node, Value, read};

/// The maximum number of values in a document. 10,000 Services printed by `kubectl get -o yaml` have about a million.
const VALUES_MAX: usize = 10_000_000;

/// An object and its first line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) object: Object,
    pub(super) line: u64,
}

/// Why a part of a file is not an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Flaw {
    pub(super) line: u64,
    pub(super) reason: String,
}

impl Flaw {
    /// The reason goes on one line, so this removes the line breaks of libraries.
    fn new(line: u64, reason: &str) -> Self {
        let words: Vec<_> = reason.split_whitespace().collect();
        let reason = words.join(" ");
        Self { line, reason }
    }
}

impl From<FieldError> for Flaw {
    fn from(error: FieldError) -> Self {
        Self::new(error.line.unwrap_or(1), &error.to_string())
    }
}

/// The content of a file, in its order.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Contents {
    pub(super) objects: Vec<Found>,
    pub(super) flaws: Vec<Flaw>,
    /// Whether it contains no value: it is empty, or has only comments and markers.
    pub(super) is_blank: bool,
}

/// Parses the text of a file.
pub(super) fn parse(text: &str) -> Contents {
    let mut contents = Contents {
        is_blank: true,
        ..Contents::default()
    };
    for (text, lines_before) in split(text) {
        let mut found = parse_document(text);
        contents.is_blank &= found.is_blank;
        found.objects.iter_mut().for_each(|found| found.line += lines_before);
        found.flaws.iter_mut().for_each(|flaw| flaw.line += lines_before);
        contents.objects.append(&mut found.objects);
        contents.flaws.append(&mut found.flaws);
    }
    contents
}

/// Parses one document. Lines count from its start.
fn parse_document(text: &str) -> Contents {
    let mut contents = Contents::default();
    match serde_saphyr::from_str_with_options::<Node>(text, options()) {
        Ok(value) => {
            contents.is_blank = value.value == Value::Null;
            take(&value, None, &mut contents);
        }
        Err(error) => contents.flaws.push(flaw_of(&error)),
    }
    contents
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: VALUES_MAX,
            // Each value is one event; each list and map has another one for its end.
            max_events: 2 * VALUES_MAX,
        },
        strict_booleans: true,
        with_snippet: false,
    }
}

fn flaw_of(error: &serde_saphyr::Error) -> Flaw {
    use serde_saphyr::Error;
    let line = error.location().map_or(1, |location| location.line().max(1));
    let error = error.without_snippet();
    let message = DefaultMessageFormatter.format_message(error);
    // The library's message is for programmers; replace it with one for the author of the file.
    let reason = match error {
        _ if message.starts_with("budget breached") => {
            "holds too much, or aliases that repeat too much, for a manifest: not read".to_owned()
        }
        _ if message.starts_with("recursion limit") => {
            "holds values too deep within values for a manifest: not read".to_owned()
        }
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("not YAML: the key `{}` is here twice", key.escape_debug())
        }
        _ => format!("not YAML: {message}"),
    };
    Flaw::new(line, &reason)
}

/// Splits at document markers. Returns each document, and how many lines are before it. Splitting by lines is correct:
/// YAML permits no marker at the start of a line inside a value.
fn split(text: &str) -> Vec<(&str, u64)> {
    let mut documents = Vec::new();
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines_before = 0;
    while !rest.is_empty() {
        let (mut bytes, mut lines) = (0, 0);
        for line in rest.split_inclusive('\n') {
            if lines > 0 && is_marker(line, "---") {
                break;
            }
            bytes += line.len();
            lines += 1;
            if is_marker(line, "...") {
                break;
            }
        }
        let (document, after) = rest.split_at_checked(bytes).unwrap_or((rest, ""));
        if !document.lines().all(says_nothing) {
            documents.push((document, lines_before));
        }
        lines_before += lines;
        rest = after;
    }
    documents
}

fn is_marker(line: &str, marker: &str) -> bool {
    let after = line.strip_prefix(marker);
    after.is_some_and(|after| after.is_empty() || after.starts_with(char::is_whitespace))
}

/// A blank line, a comment, a directive or a bare marker. A document with only such lines is empty.
fn says_nothing(line: &str) -> bool {
    let after = line.strip_prefix("---").or_else(|| line.strip_prefix("..."));
    let line = after.unwrap_or(line).trim_start();
    line.is_empty() || line.starts_with(['#', '%'])
}

/// Adds an object, or the items of a list. Items of a typed list (`ServiceList`) may omit what the list defines: `list`
/// is then its apiVersion and the kind of its items.
fn take(value: &Node, list: Option<(&str, &str)>, contents: &mut Contents) {
    let line = value.line;
    let flaw = |reason| Flaw::new(line, reason);
    match value.value {
        Value::Null => return,
        Value::Map(_) => {}
        _ => {
            let reason = "is no Kubernetes object: must be a map with apiVersion and kind";
            return contents.flaws.push(flaw(reason));
        }
    }
    let said = |key| value.text(key).filter(|text| !text.is_empty());
    let (of_list, of_items) = list.unzip();
    let Some(api_version) = said("apiVersion").or(of_list) else {
        return contents.flaws.push(flaw("apiVersion: must be text, such as `v1`"));
    };
    let Some(kind) = said("kind").or(of_items) else {
        return contents.flaws.push(flaw("kind: must be text, such as `Service`"));
    };
    let metadata = value.entry("metadata");
    let is_named = metadata.is_some_and(|metadata| metadata.text("name").is_some());
    let is_list = kind.ends_with("List") && !is_named;
    if is_list && is_read_here(api_version, kind) {
        let mut entries = value.entries().iter();
        if let Some(entry) = entries.find(|entry| !OF_LIST.contains(&entry.key.as_str())) {
            return contents.flaws.push(FieldError::unknown(entry, &OF_LIST).into());
        }
        if value.entry("items").is_none() {
            return contents.flaws.push(flaw("missing field `items`"));
        }
    }
    if let Some(items) = value.entry("items").filter(|_| is_list) {
        let of_items = kind.strip_suffix("List").filter(|kind| !kind.is_empty());
        let list = of_items.map(|kind| (api_version, kind));
        return match &items.value {
            Value::List(items) => items.iter().for_each(|item| take(item, list, contents)),
            Value::Null => {}
            _ => contents
                .flaws
                .push(Flaw::new(items.line, "items: must be a list of objects")),
        };
    }
    match object(value, api_version, kind) {
        Ok(Some(object)) => contents.objects.push(Found { object, line }),
        Ok(None) => tracing::debug!(
            kind,
            api_version,
            line,
            "passed over an object of a kind that is not used"
        ),
        Err(flaw) => contents.flaws.push(flaw),
    }
}

/// The fields of a list, with any content: objects are parsed one by one. `items` must be there.
const OF_LIST: [&str; 4] = ["apiVersion", "kind", "metadata", "items"];

/// Whether the kind of a list means that its items are of supported kinds.
fn is_read_here(api_version: &str, kind: &str) -> bool {
    let of_kind = |known: Kind| known.api_version() == api_version && kind.strip_suffix("List") == Some(known.name());
    (api_version, kind) == ("v1", "List") || Kind::ALL.into_iter().any(of_kind)
}

/// One object. `None` if its kind is not used here.
fn object(value: &Node, api_version: &str, kind: &str) -> Result<Option<Object>, Flaw> {
    let Some(kind) = Kind::ALL.into_iter().find(|known| known.name() == kind) else {
        let Some(meant) = meant(api_version, kind) else {
            return Ok(None);
        };
        let line = value.entry("kind").unwrap_or(value).line;
        let reason = format!("kind: was `{}`; did you mean `{meant}`?", kind.escape_debug());
        return Err(Flaw::new(line, &reason));
    };
    let must = kind.api_version();
    if api_version != must {
        let group = |version: &str| version.split_once('/').map(|(group, _)| group.to_owned());
        // Another group may have a kind with the same name.
        if group(api_version).is_some_and(|group_of_it| Some(group_of_it) != group(must)) {
            return Ok(None);
        }
        let line = value.entry("apiVersion").unwrap_or(value).line;
        let kind = kind.name();
        let reason = format!("apiVersion: was `{api_version}`, must be `{must}` for kind {kind}");
        return Err(Flaw::new(line, &reason));
    }
    let object = match kind {
        Kind::EndpointSlice => Object::EndpointSlice(Arc::new(read(value)?)),
        Kind::Pod => Object::Pod(Arc::new(read(value)?)),
        Kind::Node => Object::Node(Arc::new(read(value)?)),
        Kind::Service => Object::Service(Arc::new(read(value)?)),
    };
    rules::check(kind, value)?;
    check_names(value, &object)?;
    Ok(Some(object))
}

/// The supported kind that was probably meant: one letter is wrong, or two letters are swapped. Ignoring the object
/// would silently lose it. No other kind of Kubernetes' core group is so similar.
fn meant(api_version: &str, kind: &str) -> Option<&'static str> {
    /// `Pod` and `Node` have 0.5, `Secret` and `Service` 0.6.
    const LIKENESS_MIN: f64 = 0.7;
    let near = |known: &&str| strsim::normalized_damerau_levenshtein(known, kind) >= LIKENESS_MIN;
    let mut known = Kind::ALL.into_iter().map(Kind::name);
    known.find(near).filter(|_| !api_version.contains('/'))
}

/// Names become parts of file names, tags and resources' names, so they must follow the rules of Kubernetes.
fn check_names(value: &Node, object: &Object) -> Result<(), Flaw> {
    let metadata = value.entry("metadata");
    let line = |key| metadata.and_then(|at| at.entry(key)).or(metadata).unwrap_or(value).line;
    let name = object.metadata().name.as_deref().unwrap_or_default();
    let wrong = |key, reason: String| Err(Flaw::new(line(key), &format!("metadata.{key}: {reason}")));
    if name.is_empty() {
        return wrong("name", format!("is missing from this {}", object.kind().name()));
    }
    // Lengths and characters: RFC 1123, as in Kubernetes.
    if name.len() > 253 || !name.split('.').all(is_label) {
        let must = "at most 253 lower case letters, digits, `-` and `.`, with a letter or digit at each end of a part";
        return wrong("name", format!("was `{}`, must be {must}", name.escape_debug()));
    }
    let namespace = object.reference().namespace;
    if object.kind().has_namespace() && (namespace.len() > 63 || !is_label(&namespace)) {
        let must = "at most 63 lower case letters, digits and `-`, with a letter or digit at each end";
        let was = namespace.escape_debug();
        return wrong("namespace", format!("was `{was}`, must be {must}"));
    }
    Ok(())
}

fn is_label(label: &str) -> bool {
    let letter = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit();
    label.starts_with(letter)
        && label.ends_with(letter)
        && label.chars().all(|character| letter(character) || character == '-')
}

#[cfg(test)]
mod tests;
