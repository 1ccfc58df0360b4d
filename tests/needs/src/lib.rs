//! `#[needs(etcd, root)]` above `#[test]`: the test needs these beyond Rust.
//!
//! If one is missing, the test still compiles, and the test runner reports it as ignored, by name and with its needs.
//! `build.rs` has the list of names, and looks for them when the tests are built.

use proc_macro::{TokenStream, TokenTree};

/// Marks a test that needs components beyond Rust. See the crate.
#[proc_macro_attribute]
pub fn needs(names: TokenStream, test: TokenStream) -> TokenStream {
    let mut missing = Vec::new();
    for name in names {
        let TokenTree::Ident(name) = name else { continue };
        let name = name.to_string();
        if !is_in(env!("TRUEUP_TEST_KNOWN"), &name) {
            return error(&format!(
                "`{name}` is no component; there are: {}",
                env!("TRUEUP_TEST_KNOWN")
            ));
        }
        if is_in(env!("TRUEUP_TEST_MISSING"), &name) {
            missing.push(name);
        }
    }
    if missing.is_empty() {
        return test;
    }
    let mut marked = parsed(&format!("#[ignore = \"needs {}\"]", missing.join(", ")));
    marked.extend(test);
    marked
}

fn is_in(list: &str, name: &str) -> bool {
    list.split(',').any(|it| it == name)
}

fn error(text: &str) -> TokenStream {
    parsed(&format!("compile_error!({text:?});"))
}

fn parsed(text: &str) -> TokenStream {
    text.parse().unwrap_or_default()
}
