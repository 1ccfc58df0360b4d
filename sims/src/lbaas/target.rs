//! Which resource a path under `/api/` names.

use percent_encoding::percent_decode_str;

use super::kinds::Kind;

/// Where resources of any kind are listed and tagged.
const RESOURCES: &str = "/api/core/v1/resource.json";

/// What a request is about. Identifiers and tags are decoded.
#[derive(Debug, PartialEq)]
pub(super) enum Target {
    /// All objects of a kind.
    Collection(Kind),
    Object(Kind, String),
    /// All objects of any kind.
    Resources,
    Resource(String),
    /// A resource, and one of its tags.
    Tag(String, String),
}

impl Target {
    /// `None` if the API has no such path.
    pub(super) fn parse(path: &str) -> Option<Self> {
        if let Some(rest) = path.strip_prefix(RESOURCES) {
            return match segments(rest)?.as_slice() {
                [] => Some(Self::Resources),
                [resource] => Some(Self::Resource(resource.clone())),
                [resource, tags, tag] if tags == "tags" => Some(Self::Tag(resource.clone(), tag.clone())),
                _ => None,
            };
        }
        Kind::ALL.into_iter().find_map(
            |kind| match segments(path.strip_prefix(kind.about().path)?)?.as_slice() {
                [] => Some(Self::Collection(kind)),
                [identifier] => Some(Self::Object(kind, identifier.clone())),
                _ => None,
            },
        )
    }

    /// The path without identifiers and tags.
    pub(super) fn template(&self) -> String {
        match self {
            Self::Collection(kind) => kind.about().path.to_owned(),
            Self::Object(kind, _) => format!("{}/{{id}}", kind.about().path),
            Self::Resources => RESOURCES.to_owned(),
            Self::Resource(_) => format!("{RESOURCES}/{{id}}"),
            Self::Tag(..) => format!("{RESOURCES}/{{id}}/tags/{{tag}}"),
        }
    }
}

/// The decoded parts of `/a/b`; `None` if one is empty or not UTF-8.
fn segments(rest: &str) -> Option<Vec<String>> {
    if rest.is_empty() {
        return Some(Vec::new());
    }
    let decoded = rest.strip_prefix('/')?.split('/').map(|segment| {
        let text = percent_decode_str(segment).decode_utf8().ok()?;
        (!text.is_empty()).then(|| text.into_owned())
    });
    decoded.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_one_thing_or_nothing() {
        let tag = |resource: &str, tag: &str| Target::Tag(resource.to_owned(), tag.to_owned());
        for (path, target) in [
            ("/api/LBaaS/v1/bind.json", Some(Target::Collection(Kind::Bind))),
            (
                "/api/LBaaS/v1/bind.json/a%2Fb",
                Some(Target::Object(Kind::Bind, "a/b".to_owned())),
            ),
            ("/api/LBaaS/v1/bind.json/", None),
            ("/api/LBaaS/v1/bind.jsonx", None),
            ("/api/LBaaS/v1/bind.json/a/b", None),
            ("/api/LBaaS/v1/bind.json/%ff", None),
            ("/api/LBaaS/v1/rule.json", None),
            ("/api/core/v1/resource.json", Some(Target::Resources)),
            ("/api/core/v1/resource.json/a", Some(Target::Resource("a".to_owned()))),
            ("/api/core/v1/resource.json/a/tags", None),
            ("/api/core/v1/resource.json/a/tags/x%3D%2F", Some(tag("a", "x=/"))),
            ("/api/core/v1/resource.json/a/tags/x/y", None),
            ("/", None),
        ] {
            assert_eq!(Target::parse(path), target, "{path}");
        }
    }
}
