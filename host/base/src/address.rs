//! The one spelling of an address, so that two texts are the same address exactly where they are the same text.

use std::net::Ipv4Addr;

/// Parses an address, if the text is its canonical form: four numbers without leading zeros.
pub fn canonical(text: &str) -> Option<Ipv4Addr> {
    // The standard library accepts no other spelling.
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_spelling() {
        for text in ["0.0.0.0", "255.255.255.255", "10.0.0.1"] {
            assert!(canonical(text).is_some(), "{text}");
        }
        for text in [
            "",
            "010.0.0.1",
            "10.0.0.1/32",
            "::ffff:10.0.0.1",
            "10.0.0",
            "10.0.0.256",
            "10.0.0.1\n",
            "+1.0.0.1",
        ] {
            assert_eq!(canonical(text), None, "{text:?}");
        }
    }
}
