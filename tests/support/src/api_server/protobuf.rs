//! Objects in Kubernetes' protobuf, which newer kubectls use for objects that they create: `kubectl create namespace`,
//! `kubectl auth can-i`.
//!
//! Only reads, and only these kinds; all answers are JSON. The numbers are those of Kubernetes' `generated.proto`.
//!
//! ```text
//! "k8s\0" | Unknown { 1: TypeMeta { 1: apiVersion, 2: kind }, 2: the object's bytes }
//! ```

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

/// The media type of this form.
pub(super) const MEDIA: &str = "application/vnd.kubernetes.protobuf";

const MAGIC: &[u8] = b"k8s\0";

/// The fields of a message: number, name in JSON, and type.
type Fields = &'static [(u64, &'static str, Form)];

#[derive(Clone, Copy, Debug)]
enum Form {
    Text,
    Texts,
    Number,
    Flag,
    /// A map from text to text.
    Map,
    /// A map from text to bytes, base64 in JSON.
    BytesMap,
    IntOrString,
    One(Fields),
    Many(Fields),
}

use Form::{BytesMap, Flag, IntOrString, Many, Number, One, Text, Texts};

const METADATA: Fields = &[
    (1, "name", Text),
    (2, "generateName", Text),
    (3, "namespace", Text),
    (5, "uid", Text),
    (6, "resourceVersion", Text),
    (11, "labels", Form::Map),
    (12, "annotations", Form::Map),
    (14, "finalizers", Texts),
];

const PORT: Fields = &[
    (1, "name", Text),
    (2, "protocol", Text),
    (3, "port", Number),
    (4, "targetPort", IntOrString),
    (5, "nodePort", Number),
    (6, "appProtocol", Text),
];

const SERVICE: Fields = &[
    (1, "ports", Many(PORT)),
    (2, "selector", Form::Map),
    (3, "clusterIP", Text),
    (4, "type", Text),
    (5, "externalIPs", Texts),
    (7, "sessionAffinity", Text),
    (8, "loadBalancerIP", Text),
    (9, "loadBalancerSourceRanges", Texts),
    (10, "externalName", Text),
    (11, "externalTrafficPolicy", Text),
];

const RULE: Fields = &[
    (1, "verbs", Texts),
    (2, "apiGroups", Texts),
    (3, "resources", Texts),
    (4, "resourceNames", Texts),
    (5, "nonResourceURLs", Texts),
];

const SUBJECT: Fields = &[
    (1, "kind", Text),
    (2, "apiGroup", Text),
    (3, "name", Text),
    (4, "namespace", Text),
];

const ROLE_REF: Fields = &[(1, "apiGroup", Text), (2, "kind", Text), (3, "name", Text)];

const ACCESS: Fields = &[
    (1, "namespace", Text),
    (2, "verb", Text),
    (3, "group", Text),
    (4, "version", Text),
    (5, "resource", Text),
    (6, "subresource", Text),
    (7, "name", Text),
];

/// The fields of a kind; `None` if this module can't read it.
fn fields_of(kind: &str) -> Option<Fields> {
    Some(match kind {
        "Namespace" | "ServiceAccount" => &[(1, "metadata", One(METADATA))],
        "ConfigMap" => &[
            (1, "metadata", One(METADATA)),
            (2, "data", Form::Map),
            (3, "binaryData", BytesMap),
            (4, "immutable", Flag),
        ],
        "Secret" => &[
            (1, "metadata", One(METADATA)),
            (2, "data", BytesMap),
            (3, "type", Text),
            (4, "stringData", Form::Map),
            (5, "immutable", Flag),
        ],
        "Service" => &[(1, "metadata", One(METADATA)), (2, "spec", One(SERVICE))],
        "Role" | "ClusterRole" => &[(1, "metadata", One(METADATA)), (2, "rules", Many(RULE))],
        "RoleBinding" | "ClusterRoleBinding" => &[
            (1, "metadata", One(METADATA)),
            (2, "subjects", Many(SUBJECT)),
            (3, "roleRef", One(ROLE_REF)),
        ],
        "SelfSubjectAccessReview" => &[
            (1, "metadata", One(METADATA)),
            (2, "spec", One(&[(1, "resourceAttributes", One(ACCESS))])),
        ],
        "DeleteOptions" => &[
            (1, "gracePeriodSeconds", Number),
            (
                2,
                "preconditions",
                One(&[(1, "uid", Text), (2, "resourceVersion", Text)]),
            ),
            (3, "orphanDependents", Flag),
            (4, "propagationPolicy", Text),
            (5, "dryRun", Texts),
        ],
        _ => return None,
    })
}

/// An object from its bytes; `None` if they are invalid, or of an unsupported kind.
pub(super) fn object(bytes: &[u8]) -> Option<Value> {
    let (mut meta, mut raw): (Value, &[u8]) = (Value::Null, &[]);
    for (number, wire) in items(bytes.strip_prefix(MAGIC)?)? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => meta = message(bytes, &[(1, "apiVersion", Text), (2, "kind", Text)])?,
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let mut object = message(raw, fields_of(meta["kind"].as_str()?)?)?;
    for name in ["apiVersion", "kind"] {
        object[name] = meta[name].clone();
    }
    Some(object)
}

/// The value of a field on the wire.
#[derive(Clone, Copy, Debug)]
enum Wire<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

fn items(mut bytes: &[u8]) -> Option<Vec<(u64, Wire<'_>)>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let wire = match key & 7 {
            0 => Wire::Varint(varint(&mut bytes)?),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                let (inner, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                Wire::Bytes(inner)
            }
            // Kubernetes' objects have no numbers of fixed size.
            _ => return None,
        };
        found.push((key >> 3, wire));
    }
    Some(found)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn message(bytes: &[u8], fields: Fields) -> Option<Value> {
    let mut object = Map::new();
    for (number, wire) in items(bytes)? {
        let Some((_, name, form)) = fields.iter().find(|(known, ..)| *known == number) else {
            continue;
        };
        let list = matches!(form, Texts | Many(_));
        let value = value(wire, *form)?;
        // Go's encoder writes empty texts, which JSON leaves out.
        if value == "" && !list {
            continue;
        }
        let there = object.entry(*name).or_insert(Value::Null);
        match (&mut *there, value) {
            (Value::Array(items), value) => items.push(value),
            (Value::Object(known), Value::Object(more)) => known.extend(more),
            (there, value) if list => *there = json!([value]),
            (there, value) => *there = value,
        }
    }
    Some(Value::Object(object))
}

fn value(wire: Wire<'_>, form: Form) -> Option<Value> {
    let bytes = match (wire, form) {
        (Wire::Varint(number), Flag) => return Some(json!(number != 0)),
        // Two's complement, even for negative numbers.
        (Wire::Varint(number), Number) => return Some(json!(number.cast_signed())),
        (Wire::Varint(_), _) => return None,
        (Wire::Bytes(bytes), _) => bytes,
    };
    Some(match form {
        Text | Texts => json!(std::str::from_utf8(bytes).ok()?),
        One(fields) | Many(fields) => message(bytes, fields)?,
        Form::Map | BytesMap => {
            let (mut name, mut value): (&[u8], &[u8]) = (&[], &[]);
            for (number, wire) in items(bytes)? {
                match (number, wire) {
                    (1, Wire::Bytes(bytes)) => name = bytes,
                    (2, Wire::Bytes(bytes)) => value = bytes,
                    _ => {}
                }
            }
            let value = if matches!(form, BytesMap) {
                BASE64_STANDARD.encode(value)
            } else {
                std::str::from_utf8(value).ok()?.to_owned()
            };
            json!({ std::str::from_utf8(name).ok()?: value })
        }
        IntOrString => {
            let either = message(bytes, &[(1, "type", Number), (2, "number", Number), (3, "text", Text)])?;
            if either["type"] == 1 {
                either["text"].clone()
            } else {
                either["number"].clone()
            }
        }
        Number | Flag => return None,
    })
}
