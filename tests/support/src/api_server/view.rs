//! The forms of objects in answers: whole, as rows of a table, or their metadata alone.
//!
//! The `Accept` header chooses the form. JSON only.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{Column, columns};
use super::events;
use super::failure::Failure;
use super::kinds::Kind;
use super::read::Listed;

/// A form of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// Whole objects.
    Whole,
    /// Rows, each with its object or with its metadata.
    Table(Row),
    /// Only metadata.
    Metadata,
}

/// The object in a row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    Nothing,
    Metadata,
    Object,
}

/// The forms that this server offers, for the answer to other requests.
pub(super) const OFFERED: &str = "application/json";

/// The first supported form in `accept`. `include` is the parameter `includeObject`.
pub(super) fn wanted(accept: &str, include: &str) -> Result<View, Failure> {
    if accept.trim().is_empty() {
        return Ok(View::Whole);
    }
    accept
        .split(',')
        .find_map(|kind| of_media(kind, include))
        .ok_or_else(|| Failure::not_acceptable(OFFERED))
}

fn of_media(media: &str, include: &str) -> Option<View> {
    let mut parts = media.split(';').map(str::trim);
    if !matches!(parts.next()?, "application/json" | "application/*" | "*/*") {
        return None;
    }
    let mut shape = "";
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        match (name, value) {
            ("as", value) => shape = value,
            ("g", "meta.k8s.io") | ("v", "v1" | "v1beta1") | ("stream" | "q" | "charset", _) => {}
            // Forms of other groups, such as discovery's.
            ("g" | "v", _) => return None,
            _ => {}
        }
    }
    match shape {
        "" => Some(View::Whole),
        "Table" => Some(View::Table(match include {
            "None" => Row::Nothing,
            "Object" => Row::Object,
            _ => Row::Metadata,
        })),
        "PartialObjectMetadata" | "PartialObjectMetadataList" => Some(View::Metadata),
        _ => None,
    }
}

fn metadata_of(object: &Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] })
}

fn table(kind: &Kind, rows: Vec<Value>, metadata: Value, with_columns: bool) -> Value {
    let column = |(name, wide, _): Column| {
        json!({
            "name": name, "type": "string", "description": "", "priority": u8::from(wide),
            "format": if name == "Name" { "name" } else { "" },
        })
    };
    // A watch sends the columns once.
    let columns: Vec<Value> = if with_columns {
        let of_none = columns(kind, &Value::Null, Timestamp::UNIX_EPOCH);
        of_none.into_iter().map(column).collect()
    } else {
        Vec::new()
    };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": columns, "rows": rows,
    })
}

fn row(kind: &Kind, object: &Value, row: Row, now: Timestamp) -> Value {
    let cells = columns(kind, object, now).into_iter().map(|(_, _, cell)| cell);
    let mut shown = json!({ "cells": cells.collect::<Vec<Value>>() });
    match row {
        Row::Nothing => {}
        Row::Metadata => shown["object"] = metadata_of(object),
        Row::Object => shown["object"] = events::shown(kind, object),
    }
    shown
}

impl View {
    /// One object, as the answer to a request for it or as an event of a watch. `first` is true only in the first event
    /// of a watch.
    pub(super) fn one(self, kind: &Kind, object: &Value, now: Timestamp, first: bool) -> Value {
        match self {
            Self::Whole => events::shown(kind, object),
            Self::Metadata => metadata_of(object),
            Self::Table(with) => {
                let version = json!({ "resourceVersion": object["metadata"]["resourceVersion"] });
                table(kind, vec![row(kind, object, with, now)], version, first)
            }
        }
    }

    /// A page of a list.
    pub(super) fn many(self, kind: &Kind, listed: &Listed, now: Timestamp) -> Value {
        let mut metadata = json!({ "resourceVersion": listed.version.to_string() });
        if !listed.proceed.is_empty() {
            metadata["continue"] = json!(listed.proceed);
        }
        if let Some(remaining) = listed.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        let objects = listed.objects.iter();
        let (api_version, list, items): (String, String, Vec<Value>) = match self {
            Self::Table(with) => {
                let rows = objects.map(|object| row(kind, object, with, now)).collect();
                return table(kind, rows, metadata, true);
            }
            Self::Whole => {
                let items = objects.map(|object| events::shown(kind, object));
                (kind.api_version(), format!("{}List", kind.kind), items.collect())
            }
            Self::Metadata => {
                let items = objects.map(|object| metadata_of(object));
                (
                    "meta.k8s.io/v1".to_owned(),
                    "PartialObjectMetadataList".to_owned(),
                    items.collect(),
                )
            }
        };
        json!({ "kind": list, "apiVersion": api_version, "metadata": metadata, "items": items })
    }
}
