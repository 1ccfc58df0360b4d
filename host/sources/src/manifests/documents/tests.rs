//! The objects in a file's text, and the positions of errors.

use super::*;

/// Objects as `LINE name`, then flaws as `LINE: reason`.
fn said(text: &str) -> Vec<String> {
    let contents = parse(text);
    let objects = contents
        .objects
        .iter()
        .map(|found| format!("{} {}", found.line, found.object.reference()));
    let flaws = contents
        .flaws
        .iter()
        .map(|flaw| format!("{}: {}", flaw.line, flaw.reason));
    objects.chain(flaws).collect()
}

fn check(text: &str, expected: &[&str]) {
    assert_eq!(said(text), expected, "\n{text}");
}

/// Asserts one flaw that begins with `start`: the rest is the library's text.
fn check_flaw(text: &str, start: &str) {
    let said = said(text);
    assert!(
        said.len() == 1 && said[0].starts_with(start),
        "expected `{start}`, got {said:?} from\n{text}"
    );
    assert!(!said[0].contains('\n'), "{said:?}");
}

fn service(text: &str) -> Arc<k8s_openapi::api::core::v1::Service> {
    let contents = parse(text);
    match contents.objects.into_iter().next() {
        Some(Found {
            object: Object::Service(service),
            ..
        }) => service,
        other => panic!("no Service but {other:?}, {:?} from\n{text}", contents.flaws),
    }
}

#[test]
fn documents_count_lines_from_the_start_of_the_file() {
    let text = "\
# the shop
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
---
# nothing here
---
apiVersion: v1
kind: Node
metadata:
  name: n1
...
---
apiVersion: v1
kind: Service
metadata: {name: api}
";
    check(text, &["2 Service shop/web", "8 Node n1", "14 Service default/api"]);
    check(
        &text.replace('\n', "\r\n"),
        &["2 Service shop/web", "8 Node n1", "14 Service default/api"],
    );
    check(
        &format!("\u{feff}%YAML 1.2\n---\n{text}"),
        &["4 Service shop/web", "10 Node n1", "16 Service default/api"],
    );
}

#[test]
fn nothing_is_no_problem() {
    for text in [
        "",
        "\n\n",
        "---\n",
        "# only a comment\n---\n# and another\n",
        "---\n...\n",
        "null\n",
    ] {
        check(text, &[]);
    }
}

#[test]
fn a_broken_document_hides_no_other() {
    let text = "\
apiVersion: v1
kind: Service
metadata: {name: one}
---
apiVersion: v1
kind: Service
metadata: {name: [two
---
apiVersion: v1
kind: Service
metadata: {name: three}
";
    let said = said(text);
    assert_eq!(said[..2], ["1 Service default/one", "9 Service default/three"]);
    assert_eq!(said.len(), 3, "{said:?}");
    let line: u64 = said[2].split(':').next().unwrap().parse().unwrap();
    assert!((5..=8).contains(&line), "{said:?}");
}

#[test]
fn lists_are_taken_apart() {
    let text = "\
apiVersion: v1
kind: List
metadata: {resourceVersion: \"\"}
items:
- apiVersion: v1
  kind: Node
  metadata: {name: n1}
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web}
- apiVersion: v1
  kind: Service
  metadata: {name: web}
  spec:
    ports:
    - port: http
";
    check(
        text,
        &[
            "5 Node n1",
            "16: spec.ports[0].port: invalid type: string \"http\", expected a whole number",
        ],
    );
    check(
        "{apiVersion: v1, kind: ServiceList, items: [{metadata: {name: web}}]}",
        &["1 Service default/web"],
    );
    check("{apiVersion: v1, kind: List, items: null}", &[]);
    check(
        "apiVersion: v1\nkind: List\nitems: 3\n",
        &["3: items: must be a list of objects"],
    );
}

#[test]
fn kinds_that_are_never_read_are_passed_over() {
    check(
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: x}, spec: {replicas: many}}",
        &[],
    );
    check(
        "{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: x}}",
        &[],
    );
    check(
        "{apiVersion: example.org/v1, kind: PriceList, metadata: {name: x}, items: [1]}",
        &[],
    );
}

#[test]
fn what_is_no_object_is_said() {
    check(
        "- a\n- b\n",
        &["1: is no Kubernetes object: must be a map with apiVersion and kind"],
    );
    check("kind: Service\n", &["1: apiVersion: must be text, such as `v1`"]);
    check(
        "apiVersion: v1\nkind: 5\n",
        &["1: kind: must be text, such as `Service`"],
    );
    check(
        "kind: Service\napiVersion: v2\n",
        &["2: apiVersion: was `v2`, must be `v1` for kind Service"],
    );
    check(
        "apiVersion: v1\nkind: Service\n",
        &["1: metadata.name: is missing from this Service"],
    );
    check(
        "apiVersion: v1\nkind: Node\nmetadata:\n  labels: {}\n",
        &["4: metadata.name: is missing from this Node"],
    );
}

#[test]
fn names_are_what_kubernetes_lets_them_be() {
    for name in ["..", "a/b", "Web", "-a", "a-", "a..b", "a b", "\\u001b[31m"] {
        let text = format!("apiVersion: v1\nkind: Service\nmetadata:\n  name: \"{name}\"\n");
        check_flaw(&text, "4: metadata.name: was `");
        let text = format!("apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  namespace: \"{name}\"\n");
        check_flaw(&text, "5: metadata.namespace: was `");
    }
    check(
        "{apiVersion: v1, kind: Node, metadata: {name: n-1.example.org}}",
        &["1 Node n-1.example.org"],
    );
    check_flaw(
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: a.b}}",
        "1: metadata.namespace: was `a.b`",
    );
}

#[test]
fn scalars_are_typed_as_in_kubernetes() {
    let port = |value: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec:\n  ports:\n  - port: {value}\n    name: http\n"
        )
    };
    assert_eq!(
        service(&port("80")).spec.as_ref().unwrap().ports.as_ref().unwrap()[0].port,
        80
    );
    check_flaw(&port("\"80\""), "6: spec.ports[0].port: invalid type: string \"80\"");
    check_flaw(&port("80.5"), "6: spec.ports[0].port: invalid type: floating point");
    check_flaw(
        &port("3000000000"),
        "6: spec.ports[0].port: invalid value: integer `3000000000`",
    );

    let annotation = |value: &str| {
        format!("{{apiVersion: v1, kind: Service, metadata: {{name: web, annotations: {{a: {value}}}}}}}")
    };
    for text in ["on", "yes", "\"true\"", "\"80\"", "2026-01-01", "10.0.0.1"] {
        let annotations = service(&annotation(text)).metadata.annotations.clone().unwrap();
        assert_eq!(annotations["a"], text.trim_matches('"'));
    }
    check_flaw(
        &annotation("true"),
        "1: metadata.annotations.a: invalid type: boolean `true`",
    );
    check_flaw(
        &annotation("80"),
        "1: metadata.annotations.a: invalid type: integer `80`",
    );
}

#[test]
fn what_a_cluster_prints_can_be_read() {
    let text = "\
apiVersion: v1
kind: Node
metadata:
  name: n1
  creationTimestamp: \"2026-01-02T03:04:05Z\"
  labels: {kubernetes.io/os: linux}
status:
  capacity: {cpu: \"4\", memory: 16Gi, pods: 110}
  conditions:
  - {type: Ready, status: \"True\", lastHeartbeatTime: \"2026-01-02T03:04:05Z\"}
  addresses: [{type: InternalIP, address: 10.1.0.1}]
---
apiVersion: v1
kind: Service
metadata: {name: web, creationTimestamp: null, deletionTimestamp: null, uid: u1}
spec:
  ports: [{port: 80, targetPort: http}, {port: 81, targetPort: 8081}]
status: {loadBalancer: {}}
";
    check(text, &["1 Node n1", "13 Service default/web"]);
}

#[test]
fn anchors_and_json_are_yaml_too() {
    let text = "\
apiVersion: v1
kind: Service
metadata: {name: web, labels: &labels {app: web}}
spec:
  selector: *labels
";
    assert_eq!(
        service(text).spec.as_ref().unwrap().selector.as_ref().unwrap()["app"],
        "web"
    );

    let text = "{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"Service\",\n\t\"metadata\": {\"name\":\"web\",\n\t\t\"annotations\": {\"a\": \"\\/\\u00e4\\ud83d\\ude00\"}}\n}\n";
    assert_eq!(
        service(text).metadata.annotations.as_ref().unwrap()["a"],
        "/\u{e4}\u{1f600}"
    );
    let compact = r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},"spec":{"ports":[{"port":80},{"port":"81"}]}}"#;
    check_flaw(compact, "1: spec.ports[1].port: invalid type");
}

#[test]
fn a_cut_off_file_is_a_flaw_or_less() {
    check_flaw("apiVersion: v1\nkind: Service\nmetadata: {name: we", "");
    check_flaw("{\"apiVersion\": \"v1\", \"kind\": \"Serv", "");
}

#[test]
fn a_key_twice_is_a_flaw() {
    check_flaw(
        "apiVersion: v1\nkind: Service\nkind: Node\nmetadata: {name: web}\n",
        "3: ",
    );
}

#[test]
fn a_list_of_ten_thousand_services_fits_the_limits() {
    let item = "- {apiVersion: v1, kind: Service, metadata: {name: web-NUMBER}, spec: {ports: [{port: 80, nodePort: 30080}]}}\n";
    let items: String = (0..10_000)
        .map(|number| item.replace("NUMBER", &number.to_string()))
        .collect();
    let contents = parse(&format!("apiVersion: v1\nkind: List\nitems:\n{items}"));
    assert_eq!((contents.objects.len(), contents.flaws), (10_000, vec![]));
    assert_eq!(contents.objects[9_999].line, 10_003);
}

#[test]
fn endpoint_slices_and_pods_are_read_in_their_version() {
    let contents = parse(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, namespace: shop}\naddressType: IPv4\nendpoints: []\n\
         ---\napiVersion: v1\nkind: Pod\nmetadata: {name: web-0}\nspec: {containers: []}\n\
         ---\napiVersion: metrics.k8s.io/v1beta1\nkind: Pod\nmetadata: {name: other}\n",
    );
    let named: Vec<String> = contents
        .objects
        .iter()
        .map(|found| found.object.reference().to_string())
        .collect();
    assert_eq!(named, ["EndpointSlice shop/web-1", "Pod default/web-0"]);
    assert_eq!(contents.flaws, []);

    let old = parse("apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\nmetadata: {name: a}\n");
    assert_eq!(
        old.flaws[0].reason,
        "apiVersion: was `discovery.k8s.io/v1beta1`, must be `discovery.k8s.io/v1` for kind EndpointSlice"
    );
}

#[test]
fn a_field_that_a_kind_does_not_have_is_a_flaw_with_its_line() {
    let service = |spec: &str| format!("apiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec:\n{spec}");
    check(
        &service("  type: ClusterIP\n  prots:\n  - port: 80\n"),
        &["7: spec.prots: unknown field; did you mean `ports`?"],
    );
    check(
        &service("  ports:\n  - port: 80\n    nodeport: 1\n"),
        &["8: spec.ports[0].nodeport: unknown field; did you mean `nodePort`?"],
    );
    check(
        "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nxyz: 1\n",
        &["4: xyz: unknown field (known: apiVersion, kind, metadata, spec, status)"],
    );
    check(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - image: web\n    nmae: web\n",
        &["7: spec.containers[0].nmae: unknown field; did you mean `name`?"],
    );
    check(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: s}\naddressType: IPv4\nendpoints:\n- addreses: []\n",
        &["6: endpoints[0].addreses: unknown field; did you mean `addresses`?"],
    );
    check(
        "apiVersion: v1\nkind: List\nitmes: []\n",
        &["3: itmes: unknown field; did you mean `items`?"],
    );
    check("apiVersion: v1\nkind: List\n", &["1: missing field `items`"]);
}

#[test]
fn a_value_that_an_api_server_refuses_is_a_flaw_with_its_line() {
    let spec = |spec: &str| format!("apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {{{spec}}}\n");
    for (text, flaw) in [
        (
            "type: Loadbalancer, ports: [{port: 80}]",
            "4: spec.type: was `Loadbalancer`, must be one of ClusterIP, NodePort",
        ),
        (
            "ports: [{port: 0}]",
            "4: spec.ports[0].port: was 0, must be a whole number from 1 to 65535",
        ),
        (
            "ports: [{port: 80}, {port: -1}]",
            "4: spec.ports[1].port: was -1, must be",
        ),
        (
            "ports: [{port: 80, nodePort: 65536}]",
            "4: spec.ports[0].nodePort: was 65536, must be a whole number from 0",
        ),
        ("ports: [{name: http}]", "4: spec.ports[0].port: is missing"),
        (
            "ports: [{port: 80, protocol: tcp}]",
            "4: spec.ports[0].protocol: was `tcp`, must be one of TCP, UDP, SCTP",
        ),
        (
            "externalTrafficPolicy: local",
            "4: spec.externalTrafficPolicy: was `local`, must be one of Cluster, Local",
        ),
        (
            "ipFamilies: [IPv4, ipv6]",
            "4: spec.ipFamilies[1]: was `ipv6`, must be one of IPv4, IPv6",
        ),
        (
            "type: LoadBalancer",
            "4: spec.ports: is missing: a Service of type LoadBalancer has at least one port",
        ),
        (
            "type: LoadBalancer, ports: []",
            "4: spec.ports: is missing: a Service of type LoadBalancer",
        ),
    ] {
        check_flaw(&spec(text), flaw);
    }
    for text in [
        "type: \"\", ports: [{port: 80, nodePort: 0, protocol: null}]",
        "clusterIP: None",
        "type: ExternalName",
    ] {
        check(&spec(text), &["1 Service default/web"]);
    }
}
