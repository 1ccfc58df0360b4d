//! The syntax of interface patterns and files.

use std::path::Path;

use super::*;

#[test]
fn a_pattern_that_is_none_says_what_it_may_be() {
    for good in [
        "tap-{namespace}-{name}",
        "{uid}",
        "cni0",
        "{name}{name}",
        "tap{name}-eth0",
    ] {
        assert_eq!(Pattern::parse(good).unwrap().to_string(), good);
    }
    let long = "x".repeat(64);
    for (text, cause) in [
        ("", "must be a name of interfaces, such as `tap-{namespace}-{name}`"),
        (
            "tap-{pod}",
            "may have `{namespace}`, `{name}` and `{uid}` in it, and nothing else in braces",
        ),
        (
            "{}",
            "may have `{namespace}`, `{name}` and `{uid}` in it, and nothing else in braces",
        ),
        ("tap-{name", "must have a `}` for each `{`"),
        ("tap-name}", "must have a `{` for each `}`"),
        ("tap/{name}", "must have no `/`, space or control character in it"),
        ("tap {name}", "must have no `/`, space or control character in it"),
        (&long, "must leave names of at most 63 bytes"),
    ] {
        assert_eq!(Pattern::parse(text).unwrap_err(), format!("was `{text}`, {cause}"));
    }
}

#[test]
fn a_file_names_the_interface_of_each_pod() {
    let read = |text: &str| read_interfaces(text, Path::new("interfaces.yaml"));
    assert_eq!(read("").unwrap().len(), 0);
    assert_eq!(read("# none yet\n").unwrap().len(), 0);
    let names = read("# ours\nshop/web-0: tap1\nshop/web-1: \"tap2\"\nkube-system/dns: 7\n").unwrap();
    let names: Vec<String> = names.iter().map(|(id, name)| format!("{id} {name}")).collect();
    assert_eq!(names, ["kube-system/dns 7", "shop/web-0 tap1", "shop/web-1 tap2"]);
}

#[test]
fn what_a_file_of_interfaces_may_not_say_is_named_with_its_line() {
    let refused = |text: &str| read_interfaces(text, Path::new("interfaces.yaml")).unwrap_err();
    assert_eq!(
        refused("a/b: tap1\nweb: tap2\n"),
        "interfaces.yaml:2: the pod was `web`, must be NAMESPACE/NAME, such as `shop/web-0`"
    );
    assert_eq!(
        refused("a/b: tap1\n\na/c: tap 2\n"),
        "interfaces.yaml:3: pod `a/c`: the interface `tap 2` is no name of an interface"
    );
    assert_eq!(
        refused("a/c: \"\"\n"),
        "interfaces.yaml:1: pod `a/c`: the interface `` is empty"
    );
    assert_eq!(
        refused(&format!("a/c: {}\n", "x".repeat(64))),
        format!(
            "interfaces.yaml:1: pod `a/c`: the interface `{}` has 64 bytes, and may have 63",
            "x".repeat(64)
        )
    );
    for (text, line) in [
        ("a/b: tap1\na/b: tap2\n", 2),
        ("a/b: tap1\na/c: [tap2]\n", 2),
        ("a/b: tap1\na/c: {name: tap2}\n", 2),
        ("a/b: tap1\na/c:\n", 2),
        ("- a/b\n", 1),
        ("tap1\n", 1),
        ("a/b: tap1\n  a/c: tap2\n", 2),
    ] {
        let said = refused(text);
        let begin = format!("interfaces.yaml:{line}: ");
        assert!(said.starts_with(&begin) && !said.contains('\n'), "{text:?}: {said}");
    }
}
