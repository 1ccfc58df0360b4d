//! Prepares a Service: defaults, addresses and node ports, and validation.
//!
//! IPv4 only, and one address for each Service. Refusals use Kubernetes' words.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::failure::Cause;
use super::store::{NODE_PORTS, Store, node_ports};

/// The default of three hours for a session by client address, `DefaultClientIPServiceAffinitySeconds`.
const AFFINITY_S: u64 = 10_800;

/// Completes a new Service, or a change of `old`.
pub(super) fn complete(store: &mut Store, service: &mut Value, old: Option<&Value>) -> Result<(), Vec<Cause>> {
    set_defaults(&mut service["spec"]);
    if let Some(old) = old {
        keep_allocated(&mut service["spec"], &old["spec"]);
    }
    drop_other_types_fields(&mut service["spec"]);
    let wrong = faults(&service["spec"], old.map(|old| &old["spec"]));
    if !wrong.is_empty() {
        return Err(wrong);
    }
    allocate(store, service, old)
}

fn kind_of(spec: &Value) -> &str {
    spec["type"].as_str().unwrap_or("ClusterIP")
}

fn has_node_ports(spec: &Value) -> bool {
    let wanted = spec["allocateLoadBalancerNodePorts"] != false;
    kind_of(spec) == "NodePort" || kind_of(spec) == "LoadBalancer" && wanted
}

fn set(spec: &mut Value, name: &str, value: Value) {
    if spec[name].is_null() || spec[name] == "" {
        spec[name] = value;
    }
}

fn set_defaults(spec: &mut Value) {
    set(spec, "type", json!("ClusterIP"));
    set(spec, "sessionAffinity", json!("None"));
    if spec["sessionAffinity"] == "ClientIP" && spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"].is_null() {
        spec["sessionAffinityConfig"] = json!({ "clientIP": { "timeoutSeconds": AFFINITY_S } });
    }
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        set(port, "protocol", json!("TCP"));
        if port["targetPort"].is_null() || port["targetPort"] == 0 || port["targetPort"] == "" {
            port["targetPort"] = port["port"].clone();
        }
    }
    let kind = kind_of(spec).to_owned();
    if kind == "ExternalName" {
        return;
    }
    set(spec, "internalTrafficPolicy", json!("Cluster"));
    set(spec, "ipFamilies", json!(["IPv4"]));
    set(spec, "ipFamilyPolicy", json!("SingleStack"));
    if kind == "NodePort" || kind == "LoadBalancer" {
        set(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if kind == "LoadBalancer" {
        set(spec, "allocateLoadBalancerNodePorts", json!(true));
    }
}

/// A change need not repeat what the server chose for the Service.
fn keep_allocated(spec: &mut Value, old: &Value) {
    if kind_of(spec) != "ExternalName" && kind_of(old) != "ExternalName" {
        set(spec, "clusterIP", old["clusterIP"].clone());
        if spec["clusterIPs"].as_array().is_none_or(Vec::is_empty) {
            spec["clusterIPs"] = old["clusterIPs"].clone();
        }
    }
    if !has_node_ports(spec) || !has_node_ports(old) {
        return;
    }
    let before: Vec<Value> = old["ports"].as_array().cloned().unwrap_or_default();
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        let same = |other: &&Value| other["port"] == port["port"] && other["protocol"] == port["protocol"];
        if port["nodePort"].as_u64().unwrap_or(0) == 0
            && let Some(other) = before.iter().find(same)
        {
            port["nodePort"] = other["nodePort"].clone();
        }
    }
    if spec["externalTrafficPolicy"] == "Local" && spec["healthCheckNodePort"].as_u64().unwrap_or(0) == 0 {
        spec["healthCheckNodePort"] = old["healthCheckNodePort"].clone();
    }
}

fn drop_other_types_fields(spec: &mut Value) {
    let kind = kind_of(spec).to_owned();
    let with_ports = kind == "NodePort" || kind == "LoadBalancer";
    let Some(fields) = spec.as_object_mut() else { return };
    if !with_ports {
        fields.remove("externalTrafficPolicy");
        for port in fields
            .get_mut("ports")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            port.as_object_mut().map(|port| port.remove("nodePort"));
        }
    }
    if kind != "LoadBalancer" {
        fields.remove("allocateLoadBalancerNodePorts");
        fields.remove("loadBalancerClass");
    }
    if kind != "LoadBalancer"
        || fields
            .get("externalTrafficPolicy")
            .is_none_or(|policy| policy != "Local")
    {
        fields.remove("healthCheckNodePort");
    }
    if kind == "ExternalName" {
        for name in [
            "clusterIP",
            "clusterIPs",
            "ipFamilies",
            "ipFamilyPolicy",
            "internalTrafficPolicy",
        ] {
            fields.remove(name);
        }
    }
    fields.retain(|_, value| !value.is_null());
}

fn faults(spec: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut wrong = Vec::new();
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !kinds.contains(&kind_of(spec)) {
        wrong.push(Cause::unsupported("spec.type", &spec["type"], &kinds));
    }
    for (field, known) in [
        ("sessionAffinity", ["ClientIP", "None"]),
        ("externalTrafficPolicy", ["Cluster", "Local"]),
        ("internalTrafficPolicy", ["Cluster", "Local"]),
    ] {
        if !spec[field].is_null() && !known.iter().any(|value| spec[field] == *value) {
            wrong.push(Cause::unsupported(format!("spec.{field}"), &spec[field], &known));
        }
    }
    if kind_of(spec) == "ExternalName" && spec["externalName"].as_str().is_none_or(str::is_empty) {
        wrong.push(Cause::required("spec.externalName", ""));
    }
    wrong.extend(faults_of_ports(spec));
    let Some(old) = old else { return wrong };
    let fixed = !old["clusterIP"].is_null() && !spec["clusterIP"].is_null();
    if fixed && old["clusterIP"] != spec["clusterIP"] {
        wrong.push(Cause::invalid(
            "spec.clusterIPs[0]",
            &json!([spec["clusterIP"]]),
            "may not change once set",
        ));
    }
    let both_balanced = kind_of(old) == "LoadBalancer" && kind_of(spec) == "LoadBalancer";
    if both_balanced && old["loadBalancerClass"] != spec["loadBalancerClass"] {
        let class = &spec["loadBalancerClass"];
        wrong.push(Cause::invalid(
            "spec.loadBalancerClass",
            class,
            "may not change once set",
        ));
    }
    wrong
}

fn faults_of_ports(spec: &Value) -> Vec<Cause> {
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut wrong = Vec::new();
    if ports.is_empty() && kind_of(spec) != "ExternalName" && spec["clusterIP"] != "None" {
        wrong.push(Cause::required("spec.ports", ""));
    }
    let mut names = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    for (at, port) in ports.iter().enumerate() {
        let field = |name: &str| format!("spec.ports[{at}].{name}");
        let name = port["name"].as_str().unwrap_or_default();
        if name.is_empty() && ports.len() > 1 {
            wrong.push(Cause::required(field("name"), ""));
        } else if !name.is_empty() && !names.insert(name) {
            wrong.push(Cause::duplicate(field("name"), &port["name"]));
        }
        if !port["port"]
            .as_i64()
            .is_some_and(|number| (1..=65_535).contains(&number))
        {
            wrong.push(Cause::invalid(
                field("port"),
                &port["port"],
                "must be between 1 and 65535, inclusive",
            ));
        }
        let target = port["targetPort"].as_i64();
        if target.is_some_and(|number| !(1..=65_535).contains(&number)) {
            wrong.push(Cause::invalid(
                field("targetPort"),
                &port["targetPort"],
                "must be between 1 and 65535, inclusive",
            ));
        }
        if !["SCTP", "TCP", "UDP"].iter().any(|known| port["protocol"] == *known) {
            wrong.push(Cause::unsupported(
                field("protocol"),
                &port["protocol"],
                &["SCTP", "TCP", "UDP"],
            ));
        }
        if !numbers.insert((port["port"].as_i64(), port["protocol"].as_str())) {
            let both = json!({ "port": port["port"], "protocol": port["protocol"] });
            wrong.push(Cause::duplicate(format!("spec.ports[{at}]"), &both));
        }
    }
    wrong
}

fn allocate(store: &mut Store, service: &mut Value, old: Option<&Value>) -> Result<(), Vec<Cause>> {
    let held = old.map(node_ports).unwrap_or_default();
    let spec = &mut service["spec"];
    let mut chosen = BTreeSet::new();
    for (at, port) in spec["ports"].as_array().into_iter().flatten().enumerate() {
        let number = port["nodePort"].as_u64().unwrap_or(0);
        if number == 0 || held.contains(&number) {
            continue;
        }
        let field = format!("spec.ports[{at}].nodePort");
        if !NODE_PORTS.contains(&number) {
            let why = "provided port is not in the valid range. The range of valid ports is 30000-32767";
            return Err(vec![Cause::invalid(field, &json!(number), why)]);
        }
        if store.is_node_port_taken(number) || !chosen.insert(number) {
            return Err(vec![Cause::invalid(
                field,
                &json!(number),
                "provided port is already allocated",
            )]);
        }
    }
    chosen.extend(held);
    let with_ports = has_node_ports(spec);
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        if with_ports && port["nodePort"].as_u64().unwrap_or(0) == 0 {
            port["nodePort"] = next_port(store, &mut chosen)?;
        }
    }
    let checked = kind_of(spec) == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local";
    if checked && spec["healthCheckNodePort"].as_u64().unwrap_or(0) == 0 {
        spec["healthCheckNodePort"] = next_port(store, &mut chosen)?;
    }
    if kind_of(spec) == "ExternalName" {
        return Ok(());
    }
    if spec["clusterIP"].as_str().is_none_or(str::is_empty) {
        spec["clusterIP"] = json!(store.next_cluster_ip());
    }
    spec["clusterIPs"] = json!([spec["clusterIP"]]);
    Ok(())
}

fn next_port(store: &Store, chosen: &mut BTreeSet<u64>) -> Result<Value, Vec<Cause>> {
    let Some(port) = store.next_node_port(chosen) else {
        let why = "failed to allocate a nodePort: range is full";
        return Err(vec![Cause::forbidden("spec.ports[0].nodePort", why)]);
    };
    chosen.insert(port);
    Ok(json!(port))
}

/// The faults of a Service's status.
pub(super) fn status_faults(service: &Value) -> Vec<Cause> {
    let mut wrong = Vec::new();
    let ingress = service["status"]["loadBalancer"]["ingress"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let field = "status.loadBalancer.ingress";
    if !ingress.is_empty() && kind_of(&service["spec"]) != "LoadBalancer" {
        wrong.push(Cause::forbidden(
            field,
            "may only be used when `spec.type` is \"LoadBalancer\"",
        ));
    }
    for (at, one) in ingress.iter().enumerate() {
        if let Some(ip) = one["ip"].as_str().filter(|ip| !ip.is_empty())
            && ip.parse::<IpAddr>().is_err()
        {
            let why = "must be a valid IP address";
            wrong.push(Cause::invalid(format!("{field}[{at}].ip"), &one["ip"], why));
        }
        if !one["ipMode"].is_null() && one["ip"].is_null() {
            let why = "may not be specified when `ip` is not set";
            wrong.push(Cause::forbidden(format!("{field}[{at}].ipMode"), why));
        }
    }
    wrong
}
