//! `[source.kubernetes]`.

use trueup_sources::kubernetes;

use super::*;

#[test]
fn a_cluster_is_a_source_too() {
    let with = |source: &str| load(&LEAST.replace("manifests = \"manifests\"", source), &[]);
    let config = with("kubernetes = {}").unwrap();
    let default = kubernetes::Settings::default();
    assert_eq!(lbaas(&config).source, Source::Kubernetes(default.clone()));
    assert_eq!(default.watch.len(), 4, "everything");

    let config = with(
        "[source.kubernetes]\nkubeconfig = \"config\"\ncontext = \"prod\"\nnamespaces = [\"a\", \"b\"]\n\
         watch = [\"services\", \"nodes\"]\npage_size = 10\nrequest_timeout_ms = 5000",
    )
    .unwrap();
    let folder = config.file.parent().unwrap();
    let settings = kubernetes::Settings {
        kubeconfig: Some(folder.join("config")),
        context: Some("prod".to_owned()),
        namespaces: vec!["a".to_owned(), "b".to_owned()],
        pods_of: None,
        watch: vec![Kind::Node, Kind::Service],
        needed: vec![Kind::Service, Kind::Node],
        page_size: 10,
        request_timeout_ms: 5000,
    };
    assert_eq!(lbaas(&config).source, Source::Kubernetes(settings));
}

#[test]
fn mistakes_about_a_cluster_are_named() {
    refused_with(
        "manifests = \"manifests\"",
        "manifests = \"manifests\"\nkubernetes = { contxt = \"prod\", namespaces = [\"A\"], watch = [\"services\", \"secrets\"], page_size = 0 }",
        &[
            "trueup.toml:3: source.manifests: goes without `kubernetes`: leave one of them out",
            "trueup.toml:4: source.kubernetes.namespaces[0]: was \"A\", must be at most 63 lower case letters, digits and `-`, with a letter or digit at each end",
            "trueup.toml:4: source.kubernetes.page_size: was 0, must be a whole number from 1 to 100000",
            "trueup.toml:4: source.kubernetes.watch: must hold \"nodes\", which load balancers are made from",
            "trueup.toml:4: source.kubernetes.watch[1]: was \"secrets\", must be \"endpointslices\" or \"nodes\" or \"pods\" or \"services\"",
            "trueup.toml:4: unknown key `contxt` in [source.kubernetes]; did you mean `context`? \
             (known: context, kubeconfig, namespaces, page_size, request_timeout_ms, watch)",
        ],
    );
}
