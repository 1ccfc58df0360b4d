//! Label selectors and field selectors.
//!
//! Pure. Labels by equality and by set, as in `app=web,tier in (a,b),!old`; fields as the API server supports them.

use serde_json::Value;

use super::kinds::Kind;

/// The selectors of a list or a watch. An empty one selects everything.
#[derive(Clone, Debug, Default)]
pub(super) struct Selector {
    labels: Vec<Label>,
    fields: Vec<(String, String, bool)>,
}

#[derive(Clone, Debug)]
enum Label {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Missing(String),
}

impl Selector {
    /// Parses the parameters of a request. The error is the invalid part.
    pub(super) fn read(labels: &str, fields: &str) -> Result<Self, String> {
        Ok(Self {
            labels: parts(labels).into_iter().map(label).collect::<Result<_, _>>()?,
            fields: parts(fields).into_iter().map(field).collect::<Result<_, _>>()?,
        })
    }

    /// Whether it selects everything.
    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// A field that this kind can't be selected by.
    pub(super) fn unknown_field(&self, kind: &Kind) -> Option<&str> {
        // The newer group calls the object of an Event `regarding`.
        let older = |path: &str| path.replacen("regarding.", "involvedObject.", 1);
        let known = |path: &str| {
            matches!(path, "metadata.name" | "metadata.namespace") || fields_of(kind).contains(&older(path).as_str())
        };
        self.fields
            .iter()
            .map(|(path, ..)| path.as_str())
            .find(|path| !known(path))
    }

    /// Whether it selects the object.
    pub(super) fn has(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        let of = |name: &str| labels.get(name).and_then(Value::as_str);
        let labels = self.labels.iter().all(|label| match label {
            Label::In(name, values) => of(name).is_some_and(|value| values.iter().any(|one| one == value)),
            Label::NotIn(name, values) => of(name).is_none_or(|value| values.iter().all(|one| one != value)),
            Label::Exists(name) => of(name).is_some(),
            Label::Missing(name) => of(name).is_none(),
        });
        labels
            && self
                .fields
                .iter()
                .all(|(path, value, wanted)| (text_at(object, path) == *value) == *wanted)
    }
}

/// The text at a path such as `involvedObject.uid`; empty if there is none.
fn text_at(object: &Value, path: &str) -> String {
    let path = match path {
        // The source of an Event means its component.
        "source" => "source.component",
        path => path,
    };
    let path = path.replacen("regarding.", "involvedObject.", 1);
    match path.split('.').try_fold(object, |value, name| value.get(name)) {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => String::new(),
        Some(value) => value.to_string(),
    }
}

/// Splits at commas that are not in parentheses.
fn parts(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let split = |letter: char| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    };
    text.split(split)
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect()
}

fn label(part: &str) -> Result<Label, String> {
    if let Some((name, values)) = part.strip_suffix(')').and_then(|part| part.split_once('(')) {
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        return match name.split_whitespace().collect::<Vec<_>>().as_slice() {
            [name, "in"] => Ok(Label::In((*name).to_owned(), values)),
            [name, "notin"] => Ok(Label::NotIn((*name).to_owned(), values)),
            _ => Err(format!("unable to parse requirement: {part}")),
        };
    }
    if let Some((name, value, equal)) = equation(part) {
        let values = vec![value.to_owned()];
        return Ok(if equal {
            Label::In(name.to_owned(), values)
        } else {
            Label::NotIn(name.to_owned(), values)
        });
    }
    if part.contains(char::is_whitespace) {
        return Err(format!("unable to parse requirement: {part}"));
    }
    Ok(match part.strip_prefix('!') {
        Some(name) => Label::Missing(name.trim().to_owned()),
        None => Label::Exists(part.to_owned()),
    })
}

fn field(part: &str) -> Result<(String, String, bool), String> {
    let Some((name, value, equal)) = equation(part) else {
        return Err(format!("invalid selector: '{part}'; can't understand '{part}'"));
    };
    Ok((name.to_owned(), value.to_owned(), equal))
}

fn equation(part: &str) -> Option<(&str, &str, bool)> {
    let (name, value, equal) = if let Some((name, value)) = part.split_once("!=") {
        (name, value, false)
    } else if let Some((name, value)) = part.split_once("==") {
        (name, value, true)
    } else {
        let (name, value) = part.split_once('=')?;
        (name, value, true)
    };
    Some((name.trim(), value.trim(), equal))
}

/// The fields that a selector may name, besides name and namespace.
fn fields_of(kind: &Kind) -> &'static [&'static str] {
    match kind.plural {
        "pods" => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        "nodes" => &["spec.unschedulable"],
        "namespaces" => &["status.phase"],
        "secrets" => &["type"],
        "services" => &["spec.clusterIP", "spec.type"],
        "events" => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_are_selected_by_equality_and_by_set() {
        let object = json!({ "metadata": { "name": "x", "labels": { "app": "web", "tier": "front", "empty": "" } } });
        let check = |labels: &str, wanted: bool| {
            assert_eq!(Selector::read(labels, "").unwrap().has(&object), wanted, "{labels}");
        };
        for labels in [
            "",
            "app=web",
            "app==web,tier",
            "app in (web, api)",
            "app!=api,other!=x",
            "!other",
            "empty=",
        ] {
            check(labels, true);
        }
        for labels in [
            "app=api",
            "app=web,other",
            "app notin (web)",
            "!app",
            "tier in (back)",
            "other=",
        ] {
            check(labels, false);
        }
        for labels in ["app within (a)", "a b"] {
            assert!(Selector::read(labels, "").is_err(), "{labels}");
        }
    }
}
