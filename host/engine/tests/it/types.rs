//! Guests that were built from two texts of one version.

use trueup_engine::{Engine, Guest, Options};
use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// A guest of `a:b/i@0.1.0`, whose function takes a record with these fields, which are numbers.
fn guest(fields: &[&str]) -> Guest {
    let list: Vec<String> = fields.iter().map(|field| format!("{field}: u32")).collect();
    let wit = format!(
        "package a:b@0.1.0; interface i {{ record port {{ {} }} record desired {{ port: port }}
         same: func(p: u32); f: func(p: desired) -> result<u32>; }} world w {{ export i; }}",
        list.join(", ")
    );
    let mut resolve = Resolve::default();
    let package = resolve.push_str("a.wit", &wit).unwrap();
    let world = resolve.select_world(&[package], None).unwrap();
    let params = vec!["i32"; fields.len()].join(" ");
    let text = format!(
        r#"(module (memory (export "memory") 1) (func (export "a:b/i@0.1.0#same") (param i32))
            (func (export "a:b/i@0.1.0#f") (param {params}) (result i32) unreachable))"#
    );
    let mut module = wat::parse_str(text).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    Engine::new(&Options::default()).unwrap().load(&module).unwrap()
}

#[test]
fn another_text_of_the_same_version_is_told_by_function_and_field() {
    let wanted = guest(&["name", "port"]);
    assert_eq!(guest(&["name", "port"]).differs_in_type(&wanted), None);
    for fields in [&["name", "port", "weight"][..], &["name", "number"]] {
        let expected = format!(
            "`a:b/i@0.1.0#f`: p.port: a record of {}, must be of name, port",
            fields.join(", ")
        );
        assert_eq!(guest(fields).differs_in_type(&wanted), Some(expected));
    }
}
