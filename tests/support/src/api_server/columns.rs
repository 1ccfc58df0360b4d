//! The output of `kubectl get` for each kind: the server makes the columns.
//!
//! Pure; the time is an argument, since ages depend on it.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kinds::Kind;

/// A column: its name, whether it is shown only with `-o wide`, and the object's cell.
pub(super) type Column = (&'static str, bool, Value);

fn near(name: &'static str, cell: Value) -> Column {
    (name, false, cell)
}

fn wide(name: &'static str, cell: Value) -> Column {
    (name, true, cell)
}

/// The columns of an object in its stored form. All objects of a kind have the same ones, and so has null.
pub(super) fn columns(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Column> {
    let meta = &object["metadata"];
    let (spec, status) = (&object["spec"], &object["status"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = near("Name", meta["name"].clone());
    let born = near("Age", json!(age(&meta["creationTimestamp"], now)));
    let size = near("Data", json!(object["data"].as_object().map_or(0, |data| data.len())));
    match kind.plural {
        "services" => vec![
            name,
            near("Type", spec["type"].clone()),
            near("Cluster-IP", json!(or_none(&text(&spec["clusterIP"])))),
            near("External-IP", json!(external_ip(object))),
            near("Port(s)", json!(ports_of_service(spec))),
            born,
            wide("Selector", json!(or_none(&pairs(&spec["selector"])))),
        ],
        "nodes" => vec![
            name,
            near("Status", json!(node_status(object))),
            near("Roles", json!(or_none(&roles(meta)))),
            born,
            near("Version", json!(text(&status["nodeInfo"]["kubeletVersion"]))),
            wide("Internal-IP", json!(or_none(&address(status, "InternalIP")))),
            wide("External-IP", json!(or_none(&address(status, "ExternalIP")))),
        ],
        "pods" => {
            let (ready, all, restarts) = containers(object);
            let phase = if meta["deletionTimestamp"].is_null() {
                status["phase"].clone()
            } else {
                json!("Terminating")
            };
            vec![
                name,
                near("Ready", json!(format!("{ready}/{all}"))),
                near("Status", phase),
                near("Restarts", json!(restarts.to_string())),
                born,
                wide("IP", json!(or_none(&text(&status["podIP"])))),
                wide("Node", json!(or_none(&text(&spec["nodeName"])))),
            ]
        }
        "namespaces" => vec![name, near("Status", status["phase"].clone()), born],
        "events" => {
            let about = &object["involvedObject"];
            let subject = format!("{}/{}", text(&about["kind"]).to_lowercase(), text(&about["name"]));
            let source = first_text(&[&object["source"]["component"], &object["reportingComponent"]]);
            let (last, count) = last_seen(object);
            vec![
                near("Last Seen", json!(age(&last, now))),
                near("Type", object["type"].clone()),
                near("Reason", object["reason"].clone()),
                near("Object", json!(subject)),
                wide("Source", json!(source)),
                near("Message", json!(text(&object["message"]).trim())),
                wide("Count", json!(count)),
                wide("Name", meta["name"].clone()),
            ]
        }
        "configmaps" => vec![name, size, born],
        "secrets" => vec![name, near("Type", object["type"].clone()), size, born],
        "endpointslices" => vec![
            name,
            near("AddressType", object["addressType"].clone()),
            near("Ports", json!(slice_ports(object))),
            near("Endpoints", json!(slice_addresses(object))),
            born,
        ],
        "leases" => vec![name, near("Holder", json!(text(&spec["holderIdentity"]))), born],
        "statefulsets" => {
            let ready = status["readyReplicas"].as_u64().unwrap_or(0);
            let wanted = spec["replicas"].as_u64().unwrap_or(1);
            vec![name, near("Ready", json!(format!("{ready}/{wanted}"))), born]
        }
        "poddisruptionbudgets" => {
            let either = |value: &Value| match value {
                Value::Null => json!("N/A"),
                Value::String(text) => json!(text),
                number => json!(number.to_string()),
            };
            let allowed = status["disruptionsAllowed"].as_u64().unwrap_or(0);
            vec![
                name,
                near("Min Available", either(&spec["minAvailable"])),
                near("Max Unavailable", either(&spec["maxUnavailable"])),
                near("Allowed Disruptions", json!(allowed)),
                born,
            ]
        }
        "rolebindings" | "clusterrolebindings" => {
            let role = &object["roleRef"];
            let role = format!("{}/{}", text(&role["kind"]), text(&role["name"]));
            vec![name, near("Role", json!(role)), born]
        }
        "roles" | "clusterroles" => vec![name, near("Created At", meta["creationTimestamp"].clone())],
        _ => vec![name, born],
    }
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "<none>" } else { text }
}

fn first_text(values: &[&Value]) -> String {
    values
        .iter()
        .filter_map(|value| value.as_str())
        .find(|text| !text.is_empty())
        .unwrap_or_default()
        .to_owned()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn pairs(map: &Value) -> String {
    let pair = |(name, value): (&String, &Value)| format!("{name}={}", value.as_str().unwrap_or_default());
    map.as_object()
        .into_iter()
        .flatten()
        .map(pair)
        .collect::<Vec<_>>()
        .join(",")
}

fn external_ip(service: &Value) -> String {
    let spec = &service["spec"];
    if spec["type"] == "ExternalName" {
        return spec["externalName"].as_str().unwrap_or_default().to_owned();
    }
    let ingress = items(&service["status"]["loadBalancer"]["ingress"]);
    let mut addresses: Vec<String> = ingress
        .iter()
        .map(|one| first_text(&[&one["ip"], &one["hostname"]]))
        .filter(|text| !text.is_empty())
        .collect();
    let balanced = spec["type"] == "LoadBalancer";
    addresses.extend(
        items(&spec["externalIPs"])
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned),
    );
    match (addresses.is_empty(), balanced) {
        (true, true) => "<pending>".to_owned(),
        (true, false) => "<none>".to_owned(),
        (false, _) => addresses.join(","),
    }
}

fn ports_of_service(spec: &Value) -> String {
    let shown = items(&spec["ports"]).iter().map(|port| {
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        match port["nodePort"].as_u64().filter(|number| *number > 0) {
            Some(node_port) => format!("{}:{node_port}/{protocol}", port["port"]),
            None => format!("{}/{protocol}", port["port"]),
        }
    });
    or_none(&shown.collect::<Vec<_>>().join(",")).to_owned()
}

fn node_status(node: &Value) -> String {
    let ready = items(&node["status"]["conditions"])
        .iter()
        .find(|condition| condition["type"] == "Ready");
    let said = match ready.map(|condition| condition["status"] == "True") {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    };
    let closed = if node["spec"]["unschedulable"] == true {
        ",SchedulingDisabled"
    } else {
        ""
    };
    format!("{said}{closed}")
}

fn roles(meta: &Value) -> String {
    let labels = meta["labels"].as_object().into_iter().flatten();
    labels
        .filter_map(|(name, _)| name.strip_prefix("node-role.kubernetes.io/"))
        .collect::<Vec<_>>()
        .join(",")
}

fn address(status: &Value, kind: &str) -> String {
    let found = items(&status["addresses"])
        .iter()
        .find(|address| address["type"] == kind);
    found
        .and_then(|address| address["address"].as_str())
        .unwrap_or_default()
        .to_owned()
}

fn containers(pod: &Value) -> (usize, usize, u64) {
    let statuses = items(&pod["status"]["containerStatuses"]);
    let ready = statuses.iter().filter(|status| status["ready"] == true).count();
    let restarts = statuses
        .iter()
        .filter_map(|status| status["restartCount"].as_u64())
        .sum();
    (ready, items(&pod["spec"]["containers"]).len(), restarts)
}

fn last_seen(event: &Value) -> (Value, u64) {
    let series = &event["series"];
    if !series.is_null() {
        return (
            series["lastObservedTime"].clone(),
            series["count"].as_u64().unwrap_or(1),
        );
    }
    let times = [&event["lastTimestamp"], &event["firstTimestamp"], &event["eventTime"]];
    let last = times
        .into_iter()
        .find(|time| !time.is_null())
        .cloned()
        .unwrap_or_default();
    (last, event["count"].as_u64().unwrap_or(1).max(1))
}

/// How many are shown before the number of the others.
const SHOWN_MAX: usize = 3;

fn some_of(all: &[String], none: &str) -> String {
    match all.len().checked_sub(SHOWN_MAX).filter(|more| *more > 0) {
        Some(more) => format!(
            "{} + {more} more...",
            all.iter().take(SHOWN_MAX).cloned().collect::<Vec<_>>().join(",")
        ),
        None if all.is_empty() => none.to_owned(),
        None => all.join(","),
    }
}

fn slice_ports(slice: &Value) -> String {
    let number = |port: &Value| {
        port["port"]
            .as_u64()
            .map_or_else(|| "*".to_owned(), |number| number.to_string())
    };
    let all: Vec<String> = items(&slice["ports"]).iter().map(number).collect();
    some_of(&all, "<unset>")
}

fn slice_addresses(slice: &Value) -> String {
    let addresses = items(&slice["endpoints"])
        .iter()
        .flat_map(|endpoint| items(&endpoint["addresses"]));
    let all: Vec<String> = addresses.filter_map(Value::as_str).map(str::to_owned).collect();
    some_of(&all, "<unset>")
}

/// An age in kubectl's form: `5s`, `3m20s`, `4d`.
fn age(moment: &Value, now: Timestamp) -> String {
    let Some(then) = moment.as_str().and_then(|text| text.parse::<Timestamp>().ok()) else {
        return "<unknown>".to_owned();
    };
    let seconds = (now.as_second() - then.as_second()).max(0);
    let two = |major: i64, unit: &str, minor: i64, small: &str| match minor {
        0 => format!("{major}{unit}"),
        minor => format!("{major}{unit}{minor}{small}"),
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(hours / 24, "d", hours % 24, "h"),
        _ => format!("{}d", hours / 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_the_units_that_kubectl_shows() {
        let now: Timestamp = "2026-05-10T12:00:00Z".parse().unwrap();
        let check = |moment: &str, shown: &str| assert_eq!(age(&json!(moment), now), shown, "{moment}");
        check("2026-05-10T12:00:00Z", "0s");
        check("2026-05-10T11:58:01Z", "119s");
        check("2026-05-10T11:56:40Z", "3m20s");
        check("2026-05-10T11:30:30Z", "29m");
        check("2026-05-10T08:50:00Z", "3h10m");
        check("2026-05-07T11:00:00Z", "3d1h");
        check("2026-04-10T12:00:00Z", "30d");
        check("", "<unknown>");
    }
}
